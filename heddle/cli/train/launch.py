"""`heddle launch`: the script or the commands that start a job on a cluster. Prints them; starts nothing."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.ranged import COUNT, ranged

if TYPE_CHECKING:
    from heddle.spec.job import Job

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


def launch(
    job: Annotated[Path, typer.Argument(help="The job file.", metavar="JOB.toml")],
    slurm: Annotated[bool, typer.Option("--slurm", help="A script for Slurm's sbatch.")] = False,
    torchrun: Annotated[bool, typer.Option("--torchrun", help="A torchrun command for each node.")] = False,
    time: Annotated[
        str | None, typer.Option(help="Slurm: the time limit, such as 1-12:00:00.", metavar="LIMIT")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Slurm: the partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Slurm: the account.")] = None,
    cpus: Annotated[
        int | None, ranged(within=COUNT, help="Slurm: CPUs per process. Default: 8 with GPUs, 1 without.")
    ] = None,
    mem: Annotated[str | None, typer.Option(help="Slurm: memory per node, such as 500G. Default: all of it.")] = None,
    port: Annotated[
        int | None, ranged(within="[1024, 65535]", help="Port on the first node where processes meet.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run folder, instead of the job's.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key: --set train.steps=50", metavar="TABLE.KEY=VALUE"),
    ] = None,
) -> None:
    """Print what starts a job on a cluster: a script for sbatch, or torchrun commands."""
    from heddle.cli.common import load_with_changes
    from heddle.errors import HeddleError

    if slurm == torchrun:
        raise HeddleError(
            "`heddle launch` needs either --slurm or --torchrun.",
            "It prints what the cluster's own launcher reads.",
            f"For example: heddle launch --slurm {job} | sbatch",
        )
    loaded: Job = load_with_changes(job, changes or [], name)
    asked = {"time": time, "partition": partition, "account": account}
    check(loaded.train.name, asked | {"mem": mem})
    nodes, tasks = shape(loaded)
    options = [*(["--name", name] if name else []), *(f"--set={change}" for change in changes or [])]
    train = ["train", str(job), *options]
    if torchrun:
        typer.echo("\n".join(torchrun_lines(nodes, tasks, train, port)))
        return
    typer.echo(slurm_script(loaded, nodes, tasks, train, asked, port, cpus, mem))


def check(name: str, asked: dict[str, str | None]) -> None:
    """Refuse what Slurm or a shell would not take for one word; they would take the rest of it for something else."""
    from heddle.errors import HeddleError

    if any(not character.isprintable() for character in name):
        raise HeddleError(
            f"The name of the run, {name!r}, has characters that cannot be printed.",
            "The name is written into a script.",
            f"Choose another one with --name, such as {WORD.sub('-', name).strip('-') or 'run'}.",
        )
    for option, value in asked.items():
        pattern, example = ASKED[option]
        if value is not None and not re.fullmatch(pattern, value):
            raise HeddleError(
                f"--{option} {value!r} is not valid for Slurm.",
                "It is written into the script unchanged.",
                f"Write it like {example}.",
            )


def shape(job: Job) -> tuple[int, int]:
    """Nodes, and processes on each: a process per device. A job without a cluster runs on one machine."""
    from heddle.errors import HeddleError, listing
    from heddle.spec.plan import WRITTEN
    from heddle.spec.ranks import world_in_words

    plan, cluster = job.planned.plan, job.cluster
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


def torchrun_lines(nodes: int, tasks: int, train: list[str], port: int | None) -> list[str]:
    """A command per node; on more than one the user says where the first is."""
    command = f"--nproc-per-node {tasks} -m heddle {shlex.join(train)}"
    if nodes == 1:  # not --standalone: that unpickles what anybody in the network puts into its store
        return [f"torchrun --master-addr 127.0.0.1 --master-port {port or 29500} {command}"]
    meet = f'--master-addr "$MASTER_ADDR" --master-port {port or 29500}'
    return [
        "# Run one line on each node, with MASTER_ADDR set to the address of the first node.",
        *(f"torchrun --nnodes {nodes} --node-rank {node} {meet} {command}" for node in range(nodes)),
    ]


def slurm_script(
    job: Job,
    nodes: int,
    tasks: int,
    train: list[str],
    asked: dict[str, str | None],
    port: int | None,
    cpus: int | None = None,
    memory: str | None = None,
) -> str:
    """A batch script that saves before its time is up, goes back into the queue, and then goes on."""
    gpus = job.cluster is not None and "cpu" not in job.cluster.device.name.lower()
    whole = job.cluster is not None and tasks == job.cluster.devices
    network = NETWORK if gpus else ""
    settings = {
        "job-name": WORD.sub("-", job.train.name),
        **{key: value for key, value in asked.items() if value is not None},
        "nodes": nodes,
        "ntasks-per-node": tasks,
        "cpus-per-task": cpus or (CPUS_PER_GPU if gpus else 1),
        **({"gpus-per-node": tasks} if gpus else {}),
        # who takes every device of a node takes its memory, too
        **({"mem": memory or 0} if memory or whole else {}),
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
{chr(10).join(head)}
# Two minutes before the time limit every process gets SIGTERM, finishes its step and writes a checkpoint.

set -euo pipefail

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT={port or "$((20000 + SLURM_JOB_ID % 10000))"}
export OMP_NUM_THREADS=${{SLURM_CPUS_PER_TASK:-1}}
export SRUN_CPUS_PER_TASK=${{SLURM_CPUS_PER_TASK:-1}}  # srun does not inherit it from sbatch
{network}
resume=
if [ -e {run} ]; then
    resume=--resume  # requeued, or submitted again
fi
srun --kill-on-bad-exit=1 heddle {shlex.join(train)} $resume

if [ ! -e {last} ]; then
    scontrol requeue "$SLURM_JOB_ID"  # stopped before the last step
fi"""
