"""What is asked of a launcher beside the job, and how a job fits on nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from heddle.errors import HeddleError, listing
from heddle.spec.axes import WRITTEN
from heddle.spec.job import Job, PlannedJob
from heddle.spec.ranks import world_in_words

# What each option may be, as those say who read it, and an example.
ASKED = {
    "time": (r"[0-9]+(:[0-9]+){0,2}|[0-9]+-[0-9]+(:[0-9]+){0,2}|UNLIMITED|INFINITE", "24:00:00 or 1-12:00:00"),
    "partition": (r"[A-Za-z0-9_.+-]+(,[A-Za-z0-9_.+-]+)*", "gpu or gpu,long"),
    "account": (r"[A-Za-z0-9_.+@-]+", "weavers"),
    "mem": (r"[0-9]+[KMGT]?", "500G"),
    "image": (r"[A-Za-z0-9][A-Za-z0-9_.:/@#+-]*", "registry/heddle:1.0"),
    "volume": (r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", "weavers-data"),
    "rdma": (r"[A-Za-z0-9][A-Za-z0-9_./-]*=[0-9]+", "rdma/ib=8 or vpc.amazonaws.com/efa=32"),
    "accelerator": (r"[A-Za-z0-9-]+", "H100 or A100-80GB"),
}
CPUS_PER_GPU = 8  # what feeds a GPU: its host's thread, those of the data, of a checkpoint and of NCCL
UNNAMED = re.compile(r"[^A-Za-z0-9_.+-]")  # what a job's name, and the file of its output, is better without


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
    image: str | None = None
    volume: str | None = None
    rdma: str | None = None
    accelerator: str | None = None

    def check(self, readers: dict[str, str]) -> None:
        """Refuse what a script's reader, or a shell, would not take for one word: the rest would mean something else.

        `readers` names who reads each option.
        """
        for option, (pattern, example) in ASKED.items():
            value = getattr(self, option)
            if value is not None and not re.fullmatch(pattern, value):
                raise HeddleError(
                    f"--{option} {value!r} is not valid for {readers.get(option, 'Slurm')}.",
                    "It is written into the script unchanged.",
                    f"Write it like {example}.",
                )


def has_gpus(job: Job) -> bool:
    """Whether the job's cluster is one of GPUs."""
    return job.cluster is not None and "cpu" not in job.cluster.device.name.lower()


def shape_of(job: PlannedJob) -> tuple[int, int]:
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
