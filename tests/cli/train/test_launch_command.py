"""`heddle launch`: what it prints suits the plan, the cluster and bash, and is what the documentation shows."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from heddle.spec.changes import load_with_changes
from heddle.spec.job import load_job
from tests.helpers.commands import ENVIRONMENT, REPOSITORY, call, run_commands, write_job, write_named_blocks

DOCS = REPOSITORY / "docs" / "train/launching.md"
SHOWN = re.findall(r"```console\n\$ heddle (launch .*)\n((?:.*\n)*?)```", DOCS.read_text(encoding="utf-8"))


@pytest.fixture
def printed(tmp_path, capsys):
    """What `heddle launch` prints for a job with a cluster of 4 nodes of 8 devices, under some changes."""
    write_job(tmp_path / "jobs")
    job = tmp_path / "jobs" / "job.toml"
    changes = ["cluster.preset=dgx-h100", "cluster.nodes=4", "model.layers=8", "train.global_batch=64"]

    def launch(*arguments, code=0):
        capsys.readouterr()
        words = [word for change in changes for word in ("--set", change)]
        assert call("launch", job.relative_to(tmp_path), *words, *arguments) == code
        said = capsys.readouterr()
        return said.err if code else said.out

    return launch


def settings(script):
    return dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", script, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("plan", "nodes", "tasks"),
    [((), 1, 1), (("data=4",), 1, 4), (("data=8",), 1, 8), (("data=8", "tensor=2", "pipeline=2"), 4, 8)],
)
def test_every_device_gets_one_task(printed, plan, nodes, tasks):
    script = printed("--slurm", *(word for change in plan for word in ("--set", f"plan.{change}")))
    asked = settings(script)
    assert (asked["nodes"], asked["ntasks-per-node"], asked["gpus-per-node"]) == (str(nodes), str(tasks), str(tasks))
    subprocess.run(["bash", "-n", "-c", script], check=True)


def srun_commands(script):
    """What a script lets srun do, as words."""
    return [shlex.split(found) for found in re.findall(r"^ +if (srun .*?); then$", script, flags=re.MULTILINE)]


def test_what_was_asked_for_is_in_the_script(printed):
    options = ("--time", "1-12:00:00", "--partition", "gpu", "--account", "weavers", "--port", "4321")
    script = printed("--slurm", *options, "--name", "my run")
    asked = settings(script)
    assert [asked[key] for key in ("time", "partition", "account")] == ["1-12:00:00", "gpu", "weavers"]
    assert "export MASTER_PORT=4321\n" in script
    (command,) = srun_commands(script)
    assert command[2:4] == ["heddle", "train"]
    assert command[command.index("--name") + 1] == "my run"
    assert "--set=cluster.nodes=4" in command
    assert "if [ -e 'runs/my run/job.toml' ]; then" in script
    assert "if [ ! -e 'runs/my run/checkpoints/step-00000006' ]; then" in script
    subprocess.run(["bash", "-n", "-c", script], check=True)


def test_what_was_not_asked_for_is_not_in_the_script(printed):
    asked = settings(printed("--slurm"))
    assert not {"time", "partition", "account"} & asked.keys()
    assert asked.keys() >= {"signal", "requeue", "open-mode"}
    cpus = ("--set", 'cluster.device={name="cpu core", memory_gib=1.0}')
    assert "gpus-per-node" not in settings(printed("--slurm", *cpus))


def test_a_torchrun_command_for_every_node(printed):
    assert printed("--torchrun", "--set", "plan.data=4").startswith(
        "torchrun --master-addr 127.0.0.1 --master-port 29500 --nproc-per-node 4 -m heddle "
    )  # and not --standalone, which runs what anybody in the network sends
    lines = printed("--torchrun", "--set", "plan.data=32", "--port", "4321").splitlines()
    assert lines[0].startswith("# ")
    assert [shlex.split(line)[:6] for line in lines[1:]] == [
        ["torchrun", "--nnodes", "4", "--node-rank", str(node), "--master-addr"] for node in range(4)
    ]
    assert all("--master-port 4321 --nproc-per-node 8 -m heddle train" in line for line in lines[1:])


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ["needs one of --slurm, --torchrun, --mpi", "launcher reads", "heddle launch --slurm"]),
        (("--slurm", "--torchrun"), ["needs one of", "launcher reads", "heddle launch --slurm"]),
        (("--torchrun", "--image", "x"), ["--image does not go with --torchrun", "goes with --slurm", "Leave it out"]),
        (("--kubernetes",), ["Kubernetes needs --image", "A pod runs in a container", "Dockerfile"]),
        (
            ("--slurm", "--set", "plan.pipeline=3", "--set", "plan.data=4"),
            ["12 processes do not fill whole nodes of 8", "split groups", "is 8 and 16, or another multiple"],
        ),
        (
            ("--slurm", "--set", "plan.data=64"),
            ["needs 8 nodes of 8 devices, but the cluster has 4", "1 × 1 × 64 = 64", "nodes = 8"],
        ),
    ],
)
def test_what_cannot_be_started_is_told(printed, arguments, parts):
    said = printed(*arguments, code=2).splitlines()
    assert len(said) == len(parts)
    for line, part in zip(said, parts, strict=True):
        assert part in line


@pytest.mark.parametrize(
    "name", ["$(touch ran)", "a;touch ran", "a b#c", "`touch ran`", "%j", "'; touch ran; '", 'ä"b\\']
)
def test_a_name_is_one_word_wherever_it_stands(printed, tmp_path, name):
    script = printed("--slurm", "--name", name)
    assert re.fullmatch(r"[\w.+-]+", settings(script)["job-name"], flags=re.ASCII)
    (tmp_path / "bin").mkdir()
    commands = {"srun": 'printf "%s\\n" "$@" > told', "scontrol": "echo node1"}
    for command, text in commands.items():
        (tmp_path / "bin" / command).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "bin" / command).chmod(0o755)
    environment = ENVIRONMENT | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    environment |= {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "node1"}
    subprocess.run(["bash", "-c", script], check=True, cwd=tmp_path, env=environment, capture_output=True)
    told = (tmp_path / "told").read_text().splitlines()
    assert told[told.index("--name") + 1] == name
    assert not list(tmp_path.rglob("ran"))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--partition", "gpu\ntouch ran"), ["--partition 'gpu\\ntouch ran'", "unchanged", "gpu or gpu,long"]),
        (("--partition", "$(id)"), ["--partition '$(id)'", "unchanged", "gpu or gpu,long"]),
        (("--partition", "gpu --wrap=id"), ["--partition 'gpu --wrap=id'", "unchanged", "gpu or gpu,long"]),
        (("--account", "me;id"), ["--account 'me;id'", "unchanged", "weavers"]),
        (("--time", "soon"), ["--time 'soon'", "unchanged", "24:00:00 or 1-12:00:00"]),
        (("--name", "a\ntouch ran"), ["'a\\ntouch ran'", "in scripts", "For example 'a-touch-ran'"]),
        (("--set", 'train.name="a\\n#SBATCH --wrap=id"'), ["#SBATCH", "in scripts", "For example 'a-SBATCH"]),
        (("--mem", "500G\n#SBATCH --wrap=id"), ["--mem '500G\\n#SBATCH", "unchanged", "500G"]),
        (("--cpus", "0"), ["--cpus must be in [1, 1e9], got 0", "smallest that works is 1"]),
        (("--port", "70000"), ["--port must be in [1024, 65535], got 70000", "largest that works is 65535"]),
        (("--port", "0"), ["--port must be in [1024, 65535], got 0", "smallest that works is 1024"]),
        (("--port", "-1"), ["--port must be in [1024, 65535], got -1", "smallest that works is 1024"]),
    ],
)
def test_what_would_be_more_than_one_word_of_a_script_is_refused(printed, arguments, parts):
    for kind in ("--slurm", "--torchrun"):
        said = printed(kind, *arguments, code=2).splitlines()
        assert len(said) == len(parts)
        for line, part in zip(said, parts, strict=True):
            assert part in line


def test_printing_needs_no_torch(tmp_path):
    write_job(tmp_path / "jobs")
    script = "import sys; sys.modules['torch'] = None; from heddle.cli import main; main()"
    command = [sys.executable, "-c", script, "launch", "--slurm", "jobs/job.toml"]
    shown = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("#!/bin/bash\n")


@pytest.mark.parametrize(("arguments", "output"), SHOWN, ids=[arguments for arguments, _ in SHOWN])
def test_the_documentation_shows_the_real_output(arguments, output, tmp_path, capsys):
    write_named_blocks(DOCS, tmp_path)
    assert call(*shlex.split(arguments)) == 0
    assert capsys.readouterr().out == output


@pytest.mark.dist
def test_the_commands_of_the_documentation_run_in_order(tmp_path):
    write_named_blocks(DOCS, tmp_path)
    ran = run_commands(DOCS, tmp_path)
    assert [command.split()[1] for command in ran] == ["train", *7 * ["launch"], "train"]


PLANLESS = """
[model]
preset = "llama-3-8b"
[cluster]
preset = "dgx-h100"
nodes = 4
[train]
global_batch = 64
"""


@pytest.mark.parametrize("how", ["--slurm", "--torchrun"])
def test_a_job_without_a_plan_is_launched_under_the_best_one(tmp_path, capsys, how):
    (tmp_path / "job.toml").write_text(PLANLESS)
    assert call("launch", how, "job.toml") == 0
    said = capsys.readouterr()
    assert call("plan", "job.toml", "-o", "plan.toml") == 0
    best = load_job("plan.toml")
    assert best.plan.world == 32
    if how == "--slurm":
        assert (settings(said.out)["nodes"], settings(said.out)["ntasks-per-node"]) == ("4", "8")
    commands = [shlex.split(line) for line in said.out.splitlines() if line.startswith("torchrun")]
    commands += srun_commands(said.out)
    assert len(commands) == (1 if how == "--slurm" else 4)
    for command in commands:  # every process reads the plan that was chosen, and what is predicted of it
        changes = [word.removeprefix("--set=") for word in command if word.startswith("--set=")]
        started = load_with_changes("job.toml", changes)
        assert started.plan == best.plan
        assert replace(started.predicted, rank=None, feasible=None) == best.predicted
        assert started.predicted.rank == 1
    chosen = f"job.toml has no [plan]. Planned for cluster 'dgx-h100' (32 × {best.cluster.device.name})"
    assert chosen in said.err
    assert f"\n# {chosen}" in f"\n{said.out}"


def test_no_word_about_a_chosen_plan_leaves_its_comment(tmp_path, capsys):
    (tmp_path / "job.toml").write_text(PLANLESS + '[cluster.device]\nname = "x\\ntouch ran\\n"\n')
    assert call("launch", "--slurm", "job.toml", "--set", 'cluster.name="a\\ntouch ran"') in (0, 2)
    assert "\ntouch" not in capsys.readouterr().out
