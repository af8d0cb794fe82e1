"""Steps per second of pipelines that do not drain, against 1F1B with few microbatches, on two processes.

    python -m benchmarks.speed.late_updates [--rounds 9] [--steps 12] [--microbatches 2] [--hidden 256]

The same model, split alike: each rank has half of the layers; Ouroboros' first rank has the first quarter and the last.
The peer is Heddle's own 1F1B, which `pipeline_parallel` holds against torch and DeepSpeed. Losses differ by design: the
first step, which is never late, must agree.

Utilization is the share of the time in which ranks take microbatches forward or back or update weights; the rest is
waiting, messages and copies of old weights. It is taken apart from the rounds, for it needs more clocks. Uneven stages
bound it: `balance` is what it would be if the busiest rank never waited.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch.distributed as dist

from benchmarks.lib.processes import compare, run
from benchmarks.lib.rounds import report_cases, speedup
from heddle.parallel.mesh import build_mesh
from heddle.runtime.recorder import NoRecorder
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.trace.lanes import Lane, Phase
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.choose import make_trainer

METHODS = ("ouroboros", "pipedream", "2bw", "features-replay")


def plans(layers: int) -> dict[str, Plan]:
    """1F1B twice, for the noise, and each method."""
    flushed = Plan(pipeline=2)
    quarter, half = layers // 4, layers // 2
    late = {name: Plan(pipeline=2, update=name) for name in METHODS}
    late["ouroboros"] = replace(late["ouroboros"], stages=(quarter, half, layers - quarter - half))
    return {"1f1b": flushed, "1f1b again": flushed, **late}


class Busy(NoRecorder):
    """Adds up what is useful, while it is asked to."""

    def __init__(self) -> None:
        self.asked, self.seconds = False, 0.0

    @contextmanager
    def span(self, lane: str, name: str, *_: object, **__: object) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self.asked and (lane == Lane.COMPUTE or name == Phase.UPDATE):
            self.seconds += time.perf_counter() - start


class Arm:
    """Steps are read as a run reads them: as many later as are in flight."""

    def __init__(self, job: Job, rank: int) -> None:
        assert job.plan is not None
        mesh = build_mesh(job.plan, rank, job.plan.world)
        self.busy = Busy()
        self.trainer = make_trainer(job, synthetic_tokens(job), mesh, self.busy)
        self.handed: deque[Any] = deque()

    def train_step(self) -> float | None:
        self.handed.append(self.trainer.steps.start_step())
        loss = None
        while len(self.handed) > self.trainer.steps.in_flight:
            loss = self.handed.popleft().read().loss
        return loss

    def utilization(self, steps: int) -> dict[str, float]:
        """Of all ranks over so many steps, and what their shares of the work allow."""
        for _ in range(3):
            self.train_step()
        dist.barrier()
        self.busy.asked, start = True, time.perf_counter()
        for _ in range(steps):
            self.train_step()
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, (self.busy.seconds, time.perf_counter() - start))
        self.busy.asked, self.busy.seconds = False, 0.0
        busy, wall = zip(*ranks, strict=True)
        mean = sum(busy) / len(busy)
        return {"utilization": round(mean / max(wall), 3), "balance": round(mean / max(busy), 3)}


def work(rank: int, options: dict[str, int]) -> dict[str, Any]:
    """All arms in turn."""
    layers = options["layers"]
    model = ModelSpec(layers=layers, hidden=options["hidden"], heads=4, vocab=512, sequence=128, tied=False)
    train = Train(steps=10**6, global_batch=options["microbatches"], learning_rate=1e-4)
    arms = {
        name: Arm(Job(model=model, data=Data(text="-"), train=replace(train, steps=200), plan=plan), rank)
        for name, plan in plans(layers).items()
    }
    wall, _ = compare(arms, options["rounds"], options["steps"], before=3)
    used = {name: arms[name].utilization(2 * options["steps"]) for name in METHODS}
    for arm in arms.values():
        arm.trainer.steps.drain()
    return {"wall": wall, "used": used}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("rounds", 9), ("steps", 12), ("microbatches", 2), ("hidden", 256), ("layers", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = vars(parser.parse_args())
    found = run(2, work, options)
    wall = found["wall"]
    cases = [
        {
            "case": name,
            "ratio": round(speedup(wall, name, "1f1b"), 3),
            "noise": round(speedup(wall, "1f1b again", "1f1b"), 3),
            **found["used"][name],
        }
        for name in METHODS
    ]
    report_cases("late updates, two processes", "1F1B of Heddle", cases, **options)


if __name__ == "__main__":
    main()
