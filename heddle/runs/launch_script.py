"""What starts a job on a cluster: a script for Slurm, or a torchrun command per node. Nothing is started here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heddle.errors import HeddleError, listing, nearest
from heddle.planning.best import choice_in_words, with_best_plan
from heddle.spec.axes import WRITTEN
from heddle.spec.changes import changes_of, load_with_changes
from heddle.spec.job import Job, PlannedJob
from heddle.spec.plan import Plan, rounded
from heddle.spec.ranks import world_in_words
from heddle.spec.tables import to_table

# What Slurm allows of each option, as its manual says, and an example.
ASKED = {
    "time": (r"[0-9]+(:[0-9]+){0,2}|[0-9]+-[0-9]+(:[0-9]+){0,2}|UNLIMITED|INFINITE", "24:00:00 or 1-12:00:00"),
    "partition": (r"[A-Za-z0-9_.+-]+(,[A-Za-z0-9_.+-]+)*", "gpu or gpu,long"),
    "account": (r"[A-Za-z0-9_.+@-]+", "weavers"),
    "mem": (r"[0-9]+[KMGT]?", "500G"),
}
WORD = re.compile(r"[^A-Za-z0-9_.+-]")  # what a job's name, and the file of its output, is better without


CPUS_PER_GPU = 8  # what feeds a GPU: its host's thread, those of the data, of a checkpoint and of NCCL
NETWORK = """\
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
# If NCCL picks the wrong network, name the fast one:
# export NCCL_SOCKET_IFNAME=ib0 NCCL_IB_HCA=mlx5
"""
LAUNCHERS = ("slurm", "torchrun")


@dataclass(frozen=True)
class LaunchScript:
    """The text, and which plan was chosen for a job that has none."""

    text: str
    chosen: str | None = None


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """What is asked of a launcher; `heddle.launch` describes each field."""

    changes: Sequence[str] = ()
    name: str | None = None
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    cpus: int | None = None
    mem: str | None = None
    port: int | None = None

    def check(self) -> None:
        """Refuse what Slurm or a shell would not take for one word: they would take the rest for something else."""
        for option, (pattern, example) in ASKED.items():
            value = getattr(self, option)
            if value is not None and not re.fullmatch(pattern, value):
                raise HeddleError(
                    f"--{option} {value!r} is not valid for Slurm.",
                    "It is written into the script unchanged.",
                    f"Write it like {example}.",
                )


def launch_script(path: Path, launcher: Literal["slurm", "torchrun"], request: LaunchRequest) -> LaunchScript:
    """For a job's file, with some of its keys changed."""
    if launcher not in LAUNCHERS:
        raise HeddleError(
            f"There is no launcher {launcher!r}.", "It reads what is printed.", nearest(str(launcher), LAUNCHERS)
        )
    job, name = load_with_changes(path, request.changes, request.name), request.name
    request.check()
    planned, found = with_best_plan(job)
    nodes, tasks = _shape(planned)
    given, words = list(request.changes), None
    if (
        found is not None and planned.predicted is not None
    ):  # every process must get the same plan, so it is part of the command
        usual, chosen = to_table(Plan()), to_table(found.best.plan)
        given += changes_of("plan", {key: value for key, value in chosen.items() if value != usual.get(key)})
        given += changes_of("predicted", rounded(planned.predicted))
        words = f"{path} has no [plan]. {choice_in_words(found)}"
    # nothing leaves the comment
    said = [] if words is None else ["# " + "".join(each if each.isprintable() else "?" for each in words)]
    train = ["train", str(path), *(["--name", name] if name else []), *(f"--set={change}" for change in given)]
    if launcher == "torchrun":
        return LaunchScript("\n".join([*said, *_torchrun_lines(nodes, tasks, train, request.port)]), words)
    return LaunchScript(_slurm_script(planned, (nodes, tasks), train, request, said), words)


def _shape(job: PlannedJob) -> tuple[int, int]:
    """Nodes, and processes on each: a process per device. A job without a cluster runs on one machine."""
    plan, cluster = job.plan, job.cluster
    if cluster is None or plan.world <= cluster.devices:
        return 1, plan.world
    if plan.world % cluster.devices:
        below = plan.world // cluster.devices * cluster.devices
        raise HeddleError(
            f"The plan's {plan.world} processes do not fill whole nodes of {cluster.devices} devices.",
            "Nodes with different numbers of processes would split groups of ranks that should be close.",
            f"Change the degrees so that {' × '.join(WRITTEN)} is {listing([below, below + cluster.devices])}, "
            "or another multiple.",
        )
    nodes = plan.world // cluster.devices
    if nodes > cluster.nodes:
        raise HeddleError(
            f"The plan needs {nodes} nodes of {cluster.devices} devices, but the cluster has {cluster.nodes}.",
            f"{world_in_words(plan)} processes.",
            f"Write nodes = {nodes} in [cluster] if it has them, or use a smaller plan.",
        )
    return nodes, cluster.devices


def _torchrun_lines(nodes: int, tasks: int, train: list[str], port: int | None) -> list[str]:
    """A command per node; on more than one the user says where the first is."""
    command = f"--nproc-per-node {tasks} -m heddle {shlex.join(train)}"
    if nodes == 1:  # not --standalone: that unpickles what anybody in the network puts into its store
        return [f"torchrun --master-addr 127.0.0.1 --master-port {port or 29500} {command}"]
    meet = f'--master-addr "$MASTER_ADDR" --master-port {port or 29500}'
    return [
        "# Run one line on each node, with MASTER_ADDR set to the address of the first node.",
        *(f"torchrun --nnodes {nodes} --node-rank {node} {meet} {command}" for node in range(nodes)),
    ]


def _slurm_script(
    job: Job, shape: tuple[int, int], train: list[str], request: LaunchRequest, said: Sequence[str]
) -> str:
    """A batch script that saves before its time is up, goes back into the queue, and then goes on."""
    nodes, tasks = shape
    asked = {name: getattr(request, name) for name in ("time", "partition", "account")}
    gpus = job.cluster is not None and "cpu" not in job.cluster.device.name.lower()
    whole = job.cluster is not None and tasks == job.cluster.devices
    network = NETWORK if gpus else ""
    settings = {
        "job-name": WORD.sub("-", job.train.name),
        **{key: value for key, value in asked.items() if value is not None},
        "nodes": nodes,
        "ntasks-per-node": tasks,
        "cpus-per-task": request.cpus or (CPUS_PER_GPU if gpus else 1),
        **({"gpus-per-node": tasks} if gpus else {}),
        # who takes every device of a node takes its memory, too
        **({"mem": request.mem or 0} if request.mem or whole else {}),
        "signal": "TERM@120",
        "requeue": None,
        "open-mode": "append",
        "output": "%x-%j.out",
    }
    head = [f"#SBATCH --{key}" + ("" if value is None else f"={value}") for key, value in settings.items()]
    run = shlex.quote(str(job.run_folder / "job.toml"))
    last = shlex.quote(str(job.run_folder / "checkpoints" / f"step-{job.train.steps:08}"))
    return f"""\
#!/bin/bash
{chr(10).join([*head, *said])}
# Two minutes before the time limit every process gets SIGTERM, finishes its step and writes a checkpoint.

set -euo pipefail

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT={request.port or "$((20000 + SLURM_JOB_ID % 10000))"}
export OMP_NUM_THREADS=${{SLURM_CPUS_PER_TASK:-1}}
export SRUN_CPUS_PER_TASK=${{SLURM_CPUS_PER_TASK:-1}}  # srun does not inherit it from sbatch
{network}
resume=
for attempt in $(seq 0 {job.train.restarts}); do
    if [ -e {run} ]; then
        resume=--resume  # requeued, submitted again, or started again after a rank died
    fi
    if srun --kill-on-bad-exit=1 heddle {shlex.join(train)} $resume; then
        break
    elif [ "$attempt" -eq {job.train.restarts} ]; then
        exit 1
    fi
done

if [ ! -e {last} ]; then
    scontrol requeue "$SLURM_JOB_ID"  # stopped before the last step
fi"""
