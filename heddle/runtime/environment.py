"""Whether another launcher started this process, and as which of how many. No torch here: it is asked before."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from heddle.errors import HeddleError

# What mpirun of Open MPI, of MVAPICH, of MPICH and Intel MPI, and Cray's PMI tell processes: rank, world, and the rank
# and number of processes on the node.
MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
)


@dataclass(frozen=True)
class LaunchedRank:
    """Which process of how many this is, by what a launcher says in the environment."""

    rank: int
    world: int


def launched_place() -> LaunchedRank | None:
    """This process's place where torchrun, Slurm or another launcher that sets the usual variables started it."""
    found = os.environ
    if "RANK" in found or "WORLD_SIZE" in found:
        return _place()
    # Only srun speaks of a step: SLURM_NTASKS is also there in a batch script, where one process runs. A step of one
    # task is a shell or a whole machine, and starts its own processes.
    if "SLURM_PROCID" in found and number("SLURM_STEP_NUM_TASKS", 1, default=1) > 1:
        number("SLURM_PROCID"), number("SLURM_LOCALID", default=0)
        found["RANK"], found["WORLD_SIZE"] = found["SLURM_PROCID"], found["SLURM_STEP_NUM_TASKS"]
        found.setdefault("LOCAL_RANK", found.get("SLURM_LOCALID", "0"))
        return _place()
    told = [each for each in MPI if each[0] in found and each[1] in found]
    if not told:
        return None
    rank, world, local, _ = next((each for each in told if each[2] in found), told[0])
    if number(world, 1) == 1:
        return None
    number(rank), number(local, default=0)
    found["RANK"], found["WORLD_SIZE"] = found[rank], found[world]
    found.setdefault("LOCAL_RANK", found.get(local, "0"))
    return _place()


def _place() -> LaunchedRank:
    for name, other in (("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")):
        if name not in os.environ:
            raise HeddleError(
                f"{other} is set, but {name} is not.",
                "A launcher sets both, so that each process knows its rank and how many there are.",
                f"Set {name} too; or unset {other}, and `heddle train` starts its own processes.",
            )
    rank, world = number("RANK"), number("WORLD_SIZE", 1)
    if rank >= world:
        raise HeddleError(
            f"RANK={rank} is not below WORLD_SIZE={world}.",
            "Ranks count from 0.",
            f"Number the processes from 0 to {world - 1}, or start {rank + 1} of them.",
        )
    number("LOCAL_RANK", default=0)
    return LaunchedRank(rank, world)


def number(name: str, lowest: int = 0, highest: int | None = None, default: int | None = None) -> int:
    """A whole number that a launcher has put into the environment."""
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    if text is not None and re.fullmatch("[0-9]{1,9}", text) and lowest <= int(text) <= (highest or int(text)):
        return int(text)
    limits = f"from {lowest}" + (f" to {highest}" if highest is not None else "")
    raise HeddleError(
        f"{name} is not set." if text is None else f"{name}={text!r} must be a whole number {limits}.",
        "Launchers number and place their processes by such variables.",
        f"Set {name} as torchrun or Slurm would, or unset it if you are not using a launcher.",
    )


def local_place() -> tuple[int, int]:
    """Which process of its node this is, and of how many there; 0 where no launcher says how many."""
    local = number("LOCAL_RANK", default=0)
    if "LOCAL_WORLD_SIZE" in os.environ:
        return local, number("LOCAL_WORLD_SIZE", 1)
    for *_, size in MPI:
        if size in os.environ:
            return local, number(size, 1)
    stated = os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    count = stated.partition("(")[0].partition(",")[0]  # Slurm writes 8(x4) for eight on each of four nodes
    return local, int(count) if count.isdecimal() else 0
