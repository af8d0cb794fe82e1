"""`heddle launch` for Kubernetes, SkyPilot, containers under Slurm and mpirun: what is printed is what these read.

The tables of fields were read off the published definitions: JobSet v1alpha2, TrainJob v1alpha1, core/v1.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from heddle.runs.launch_kubernetes import kubernetes_name
from heddle.yaml_text import to_yaml
from tests.cli.train.test_launch_command import printed, srun_commands  # noqa: F401
from tests.helpers.commands import ENVIRONMENT

TWO_NODES = ("--set", "plan.data=16", "--name", "My Run")
IMAGE = ("--image", "registry/heddle:1.0", "--volume", "weavers-data", "--rdma", "rdma/ib=8", "--mem", "500G")

# None: any value; a list: of such; a set: one of these words; a dict: an object with at most these fields.
CONTAINER = {
    "name": None,
    "image": None,
    "command": None,
    "workingDir": None,
    "env": [{"name": None, "value": None}],
    "resources": {"limits": None},
    "securityContext": {"capabilities": {"add": None}},
    "volumeMounts": [{"name": None, "mountPath": None}],
}
VOLUMES = [{"name": None, "emptyDir": {"medium": {"Memory"}}, "persistentVolumeClaim": {"claimName": None}}]
POD = {
    "restartPolicy": {"Never", "OnFailure"},
    "terminationGracePeriodSeconds": None,
    "containers": [CONTAINER],
    "volumes": VOLUMES,
}
JOB = {
    "parallelism": None,
    "completions": None,
    "completionMode": {"Indexed", "NonIndexed"},
    "backoffLimit": None,
    "template": {"spec": POD},
}
JOBSET = {
    "apiVersion": {"jobset.x-k8s.io/v1alpha2"},
    "kind": {"JobSet"},
    "metadata": {"name": None},
    "spec": {
        "network": {"enableDNSHostnames": None, "subdomain": None, "publishNotReadyAddresses": None},
        "failurePolicy": {"maxRestarts": None},
        "replicatedJobs": [{"name": None, "replicas": None, "template": {"spec": JOB}}],
    },
}
PATCHED = {
    "terminationGracePeriodSeconds": None,
    "containers": [{key: CONTAINER[key] for key in ("name", "env", "securityContext", "volumeMounts")}],
    "volumes": VOLUMES,
}
PATCH = {"name": None, "template": {"spec": {"template": {"spec": PATCHED}}}}
TRAINJOB = {
    "apiVersion": {"trainer.kubeflow.org/v1alpha1"},
    "kind": {"TrainJob"},
    "metadata": {"name": None},
    "spec": {
        "runtimeRef": {"name": None},
        "trainer": {
            "image": None,
            "command": None,
            "args": None,
            "env": CONTAINER["env"],
            "numNodes": None,
            "numProcPerNode": None,
            "resourcesPerNode": {"limits": None},
        },
        "runtimePatches": [
            {"manager": None, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [PATCH]}}}}
        ],
    },
}


def fits(value: Any, known: Any, where: str = "") -> None:
    if isinstance(known, dict):
        assert isinstance(value, dict), where
        for key, each in value.items():
            assert key in known, f"{where}.{key}"
            fits(each, known[key], f"{where}.{key}")
    elif isinstance(known, list):
        assert isinstance(value, list), where
        for each in value:
            fits(each, known[0], f"{where}[]")
    elif isinstance(known, set):
        assert value in known, where


def command_of(container: dict[str, Any], **environment: str) -> list[str]:
    """What the shell of a container starts, as words."""
    shell, option, text = container["command"]
    assert (shell, option) == ("sh", "-c")
    told = "\n".join(["torchrun() { printf '%s\\n' torchrun \"$@\"; }", text.replace("exec ", "").split("&& ")[-1]])
    done = subprocess.run(["sh", "-c", told], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.splitlines()


def test_a_jobset_starts_torchrun_on_every_node(printed):  # noqa: F811
    manifest = yaml.safe_load(printed("--kubernetes", *TWO_NODES, *IMAGE))
    fits(manifest, JOBSET)
    assert manifest["metadata"]["name"] == manifest["spec"]["network"]["subdomain"] == "my-run"
    (job,) = manifest["spec"]["replicatedJobs"]
    assert (job["template"]["spec"]["parallelism"], job["template"]["spec"]["completions"]) == (2, 2)
    pod = job["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8, "cpu": "64", "memory": "500Gi", "rdma/ib": 8}
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {"shm": "/dev/shm", "workspace": "/workspace"}
    assert {each["name"] for each in pod["volumes"]} == mounts.keys()
    words = command_of(container, JOB_COMPLETION_INDEX="1")
    assert words[:5] == ["torchrun", "--nnodes", "2", "--node-rank", "1"]
    assert words[words.index("--master-addr") + 1] == f"my-run-{job['name']}-0-0.my-run"
    assert words[words.index("--name") + 1] == "My Run"
    assert words[-1] == "--auto-resume"


def test_a_trainjob_leaves_nodes_and_addresses_to_kubeflow(printed):  # noqa: F811
    manifest = yaml.safe_load(printed("--kubeflow", *TWO_NODES, *IMAGE))
    fits(manifest, TRAINJOB)
    trainer = manifest["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 8)
    words = command_of(trainer)
    assert words[:4] == ["torchrun", "-m", "heddle", "train"]
    (patch,) = manifest["spec"]["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == "node"  # as the runtime calls it


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
@pytest.mark.parametrize("more", [(), IMAGE[2:]])
def test_the_published_schema_takes_it(printed, kind, more):  # noqa: F811
    """Where the definitions are at hand: the folder HEDDLE_CRDS with jobset.yaml and trainjob.yaml."""
    folder, jsonschema = os.environ.get("HEDDLE_CRDS"), pytest.importorskip("jsonschema")
    if folder is None:
        pytest.skip("HEDDLE_CRDS does not name a folder with the published definitions")
    (version,) = yaml.safe_load((Path(folder) / f"{kind}.yaml").read_text())["spec"]["versions"]
    launcher = {"jobset": "--kubernetes", "trainjob": "--kubeflow"}[kind]
    manifest = yaml.safe_load(printed(launcher, *TWO_NODES, *IMAGE[:2], *more))
    jsonschema.validate(manifest, closed(version["schema"]["openAPIV3Schema"]))


def closed(schema: Any) -> Any:
    """As the server of Kubernetes reads it: a field that is not named there is dropped, so it is a mistake."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(each) for key, each in schema.items()}
    if isinstance(found.get("properties"), dict) and "additionalProperties" not in found and found.get("properties"):
        found["additionalProperties"] = False
    if found.pop("x-kubernetes-int-or-string", False):
        found = {"type": ["integer", "string"]}
    return found


@pytest.mark.parametrize(
    ("name", "expected"), [("My Run", "my-run"), ("7b_ä", "run-7b"), ("x" * 90, "x" * 40), ("a-", "a"), ("--", "run")]
)
def test_names_are_labels_of_dns(name, expected):
    assert kubernetes_name(name) == expected


def test_skypilot_gets_a_task(printed):  # noqa: F811
    task = yaml.safe_load(printed("--skypilot", *TWO_NODES, "--image", "registry/heddle:1.0", "--cpus", "4"))
    assert task["num_nodes"] == 2
    assert task["resources"]["accelerators"] == "H100:8"
    assert task["resources"]["image_id"] == "docker:registry/heddle:1.0"
    assert task["resources"]["cpus"] == "32+"
    script = task["run"].replace("torchrun", "printf '%s\\n'")
    environment = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1"}
    done = subprocess.run(
        ["bash", "-euc", script], env=ENVIRONMENT | environment, capture_output=True, text=True, check=True
    )
    words = done.stdout.splitlines()
    assert words[words.index("--master-addr") + 1] == "10.0.0.1"
    assert words[words.index("--node-rank") + 1] == "1"
    assert words[-1] == "--auto-resume"


def test_a_gpu_that_skypilot_has_no_name_for_is_asked_for(printed):  # noqa: F811
    other = ("--set", 'cluster.device={name="Loom 9000", memory_gib=80.0, tflops={fp32=1.0}}')
    assert "--accelerator" in printed("--skypilot", *other, code=2)
    task = yaml.safe_load(printed("--skypilot", *other, "--accelerator", "MI300"))
    assert task["resources"]["accelerators"] == "MI300:1"


@pytest.mark.peers
def test_skypilot_takes_the_task(printed):  # noqa: F811
    sky = pytest.importorskip("sky", reason="SkyPilot's own package reads the task")
    for more in ((), ("--image", "registry/heddle:1.0", "--cpus", "4", "--mem", "500G")):
        task = sky.Task.from_yaml_config(yaml.safe_load(printed("--skypilot", *TWO_NODES, *more)))
        assert task.num_nodes == 2


def test_slurm_starts_its_steps_in_a_container(printed):  # noqa: F811
    (command,) = srun_commands(printed("--slurm", *TWO_NODES, "--image", "registry#heddle:1.0"))
    assert command[2] == "--container-image=registry#heddle:1.0"
    assert "--container-mounts=$PWD:$PWD" in command
    assert command[command.index("heddle") + 1] == "train"


def test_mpirun_gets_one_command(printed):  # noqa: F811
    lines = printed("--mpi", *TWO_NODES).splitlines()
    words = shlex.split(lines[-1])
    assert words[:5] == ["mpirun", "-np", "16", "--map-by", "ppr:8:node"]
    assert "MASTER_ADDR=$MASTER_ADDR" in words
    assert len(printed("--mpi", "--set", "plan.data=4").splitlines()) == 1


DOCUMENT = {
    "a": {"b": [1, "two", {"c": "3", "d": ["x y", "yes", "1e3", "- z", "#", "", "a: b", "0x1"]}]},
    "text": "first\n  second # not a comment\n",
    "true": True,
    "rates": {"lr": 3e-05, "end": 1e-05, "small": 0.0001, "scale": 1e22, "none": None},
    "n": [[1, 2]] * 0 or None,
}


def test_what_is_written_is_what_yaml_reads():
    assert yaml.safe_load(to_yaml(DOCUMENT)) == DOCUMENT


@pytest.mark.parametrize("option", ["--image", "--volume", "--rdma"])
def test_what_would_be_more_than_one_word_is_refused(printed, option):  # noqa: F811
    others = [word for word in IMAGE if re.match("--image|registry", word)] if option != "--image" else []
    assert "unchanged" in printed("--kubernetes", *others, option, "x; touch ran", code=2)
