"""Manifests for Kubernetes: a JobSet, or a TrainJob of Kubeflow's Trainer. One pod per node, torchrun in each.

The fields are those of jobset.x-k8s.io/v1alpha2 and trainer.kubeflow.org/v1alpha1.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from heddle.errors import HeddleError
from heddle.runs.launch_request import CPUS_PER_GPU, LaunchRequest, has_gpus
from heddle.spec.job import Job
from heddle.yaml_text import to_yaml

WORKSPACE = "/workspace"  # where the volume with the job and its runs is
GRACE = 120  # seconds between SIGTERM and SIGKILL, in which a run finishes its step and saves
PORT = 29500
NODE = "node"  # what Kubeflow's runtime calls its job and its container


def kubernetes_name(name: str) -> str:
    """A run's name as one of Kubernetes: a label of DNS, with room for what controllers put behind it."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return (label if label[:1].isalpha() else f"run-{label}")[:40].rstrip("-")


def jobset(job: Job, shape: tuple[int, int], train: list[str], request: LaunchRequest) -> str:
    """A JobSet: it makes the headless service by which pods find the first, and starts all again if one fails."""
    nodes, tasks = shape
    name, port = kubernetes_name(job.train.name), request.port or PORT
    where = f'--nnodes {nodes} --node-rank "$JOB_COMPLETION_INDEX"' if nodes > 1 else ""
    meet = f"--master-addr {name}-{NODE}-0-0.{name}" if nodes > 1 else "--master-addr 127.0.0.1"
    words = ["exec torchrun", where, f"{meet} --master-port {port}", f"--nproc-per-node {tasks}", _heddle(train)]
    container = {
        "name": NODE,
        "image": _image(request),
        "command": ["sh", "-c", " ".join(filter(None, words))],
        **({} if request.volume is None else {"workingDir": WORKSPACE}),  # else where the image begins
        "env": _variables(job),
        "resources": {"limits": _resources(job, tasks, request)},
        **_privileges(request),
        "volumeMounts": _mounts(request),
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "containers": [container],
        "volumes": _volumes(request),
    }
    template = {
        "parallelism": nodes,
        "completions": nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return to_yaml(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name},
            "spec": {
                "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
                "failurePolicy": {"maxRestarts": job.train.restarts},
                "replicatedJobs": [{"name": NODE, "replicas": 1, "template": {"spec": template}}],
            },
        }
    )


def trainjob(job: Job, shape: tuple[int, int], train: list[str], request: LaunchRequest) -> str:
    """A TrainJob, run by the runtime `torch-distributed`, which tells torchrun how many nodes there are and where."""
    nodes, tasks = shape
    patch = {
        "terminationGracePeriodSeconds": GRACE,
        "containers": [{"name": NODE, **_privileges(request), "volumeMounts": _mounts(request)}],
        "volumes": _volumes(request),
    }
    there = "" if request.volume is None else f"cd {WORKSPACE} && "
    changed = {"name": NODE, "template": {"spec": {"template": {"spec": patch}}}}
    return to_yaml(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": kubernetes_name(job.train.name)},
            "spec": {
                "runtimeRef": {"name": "torch-distributed"},
                "trainer": {
                    "image": _image(request),
                    "command": ["sh", "-c", f"{there}exec torchrun {_heddle(train)}"],
                    "env": _variables(job),
                    "numNodes": nodes,
                    "numProcPerNode": tasks,
                    "resourcesPerNode": {"limits": _resources(job, tasks, request)},
                },
                "runtimePatches": [
                    {
                        "manager": "heddle/launch",
                        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [changed]}}},
                    }
                ],
            },
        }
    )


def _heddle(train: list[str]) -> str:
    # pods that are started again get the same command
    return f"-m heddle {shlex.join([*train, '--auto-resume'])}"


def _image(request: LaunchRequest) -> str:
    if request.image is None:
        raise HeddleError(
            "Kubernetes needs --image.",
            "A pod runs in a container that has Heddle and PyTorch.",
            "Build one from the repository's Dockerfile and name it: --image registry/heddle:1.0",
        )
    return request.image


def _variables(job: Job) -> list[dict[str, str]]:
    found = {"PYTHONUNBUFFERED": "1"} | ({"NCCL_DEBUG": "WARN"} if has_gpus(job) else {})
    return [{"name": name, "value": value} for name, value in found.items()]


def _resources(job: Job, tasks: int, request: LaunchRequest) -> dict[str, Any]:
    """Of one pod, which has a node's processes."""
    gpus = has_gpus(job)
    found: dict[str, Any] = {"nvidia.com/gpu": tasks} if gpus else {}
    found["cpu"] = str(tasks * (request.cpus or (CPUS_PER_GPU if gpus else 1)))
    if request.mem is not None:
        found["memory"] = f"{request.mem}i" if request.mem[-1].isalpha() else f"{request.mem}Mi"
    if request.rdma is not None:
        resource, _, count = request.rdma.partition("=")
        found[resource] = int(count)
    return found


def _privileges(request: LaunchRequest) -> dict[str, Any]:
    """An adapter reads and writes memory that stays where it is, which a container may only ask for with this."""
    return {} if request.rdma is None else {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}


def _volumes(request: LaunchRequest) -> list[dict[str, Any]]:
    # 64 MiB, what a container has without asking, is too little for NCCL
    shared = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    claim = {"name": "workspace", "persistentVolumeClaim": {"claimName": request.volume}}
    return [shared, *([] if request.volume is None else [claim])]


def _mounts(request: LaunchRequest) -> list[dict[str, str]]:
    places = {"shm": "/dev/shm"} | ({} if request.volume is None else {"workspace": WORKSPACE})  # noqa: S108
    return [{"name": name, "mountPath": path} for name, path in places.items()]
