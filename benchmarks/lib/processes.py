"""Benchmarks over several processes: starting them, and timing all arms in turn inside the same ones.

Every rank holds every arm and runs them in the same order, with a barrier before each timing, so that whatever
disturbs the machine disturbs all arms alike. A round's time is that of the slowest rank.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

os.environ["OMP_NUM_THREADS"] = "1"  # one thread per rank; before torch is imported

import torch
import torch.distributed as dist

from benchmarks.lib.rounds import alternate, speedup

TIMEOUT = timedelta(minutes=5)
TOLERANCE = 1e-4  # relative, between the losses of arms that start from the same weights
CHECKED_STEPS = 3  # the later losses also depend on the gradients, the clipping and the update


class Arm(Protocol):
    """One way to train: a step over the next global batch. The loss is None where a rank does not know it."""

    def train_step(self) -> float | None: ...


def run(world: int, work: Callable[..., Any], *arguments: Any) -> Any:
    """Let `world` processes do `work(rank, *arguments)` over gloo; gives what rank 0 returns."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        torch.multiprocessing.spawn(_enter, (world, folder, work, arguments), nprocs=world)
        return json.loads((Path(folder) / "result.json").read_text())


def _enter(rank: int, world: int, folder: str, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_SIZE=str(world))
    torch.set_num_threads(1)
    os.dup2(2, 1)  # standard output is for the JSON line, whatever peers print
    store = dist.FileStore(str(Path(folder) / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=TIMEOUT)
    result = work(rank, *arguments)
    if rank == 0:
        (Path(folder) / "result.json").write_text(json.dumps(result))
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # peers leave groups and threads behind that do not end in order


def check_losses(arms: Mapping[str, Arm]) -> float:
    """Train all arms for a few steps and see that they compute the same; gives the largest difference."""
    losses = {}
    for name, arm in arms.items():
        steps: list[list[float | None]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(steps, [arm.train_step() for _ in range(CHECKED_STEPS)])
        losses[name] = [
            statistics.fmean(value for value in values if value is not None) for values in zip(*steps, strict=True)
        ]
    first = next(iter(losses.values()))
    largest = max(abs(a - b) / a for values in losses.values() for a, b in zip(first, values, strict=True))
    assert largest < TOLERANCE, losses
    return largest


Rounds = dict[str, list[float]]  # seconds per step of every arm, one number a round


def compare(arms: Mapping[str, Arm], rounds: int, steps: int, before: int = 0) -> tuple[Rounds, Rounds]:
    """Wall seconds per step of the slowest rank, and CPU seconds per step of all ranks and their threads.

    `before` so many steps of an arm are not timed whenever its turn comes: they bring its weights back into the caches.
    """
    cpu: Rounds = {name: [] for name in arms}

    def seconds(name: str) -> float:
        for _ in range(before):
            arms[name].train_step()
        dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        for _ in range(steps):
            arms[name].train_step()
        wall = (time.perf_counter() - start) / steps
        cpu[name].append((time.process_time() - cpu_start) / steps)
        return wall

    wall = alternate({name: partial(seconds, name) for name in arms}, rounds, dist.get_rank())
    ranks: list[tuple[Rounds, Rounds]] = [({}, {})] * dist.get_world_size()
    dist.all_gather_object(ranks, (wall, cpu))
    return (
        {name: [max(values) for values in zip(*(rank[0][name] for rank in ranks), strict=True)] for name in arms},
        {name: [sum(values) for values in zip(*(rank[1][name][1:] for rank in ranks), strict=True)] for name in arms},
    )


def measure(
    arms: Mapping[str, Arm], ratios: Mapping[str, tuple[str, str]], rounds: int, steps: int, **facts: object
) -> dict[str, Any]:
    """One case of a benchmark: what it was, whether the arms agree, medians, and (ours, peer) ratios by name.

    The ratios of CPU time leave out all waiting. They are what other load on the machine hardly changes.
    """
    difference = check_losses(arms)
    wall, cpu = compare(arms, rounds, steps)
    case = {
        **facts,
        "loss_difference": float(f"{difference:.2g}"),
        "median_seconds": {name: round(statistics.median(values), 5) for name, values in wall.items()},
        **{name: round(speedup(wall, ours, peer), 3) for name, (ours, peer) in ratios.items()},
        "cpu": {name: round(speedup(cpu, ours, peer), 3) for name, (ours, peer) in ratios.items()},
    }
    if dist.get_rank() == 0:
        print(json.dumps(case), file=sys.stderr)
    return case
