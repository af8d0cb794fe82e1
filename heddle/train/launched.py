"""Whether another launcher started this process, and as which of how many. No torch here: it is asked before."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Which process of how many this is, by what a launcher says in the environment."""

    rank: int
    world: int


def launched_place() -> Place | None:
    """This process's place where torchrun, Slurm or another launcher that sets the usual variables started it."""
    found = os.environ
    if "RANK" in found and "WORLD_SIZE" in found:
        return Place(int(found["RANK"]), int(found["WORLD_SIZE"]))
    # Only srun speaks of a step: SLURM_NTASKS is also there in a batch script, where one process runs. A step of one
    # task is a shell or a whole machine, and starts its own processes.
    if "SLURM_PROCID" in found and int(found.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
        found["RANK"], found["WORLD_SIZE"] = found["SLURM_PROCID"], found["SLURM_STEP_NUM_TASKS"]
        found.setdefault("LOCAL_RANK", found.get("SLURM_LOCALID", "0"))
        return launched_place()
    return None


def local_place() -> tuple[int, int]:
    """Which process of its node this is, and of how many there; 0 where no launcher says how many."""
    local = int(os.environ.get("LOCAL_RANK", 0))
    stated = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    count = stated.partition("(")[0].partition(",")[0]  # Slurm writes 8(x4) for eight on each of four nodes
    return local, int(count) if count.isdecimal() else 0
