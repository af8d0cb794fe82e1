"""Predicted beside measured: profile this machine, predict plans on 1, 2, 4 and 8 processes, and train them.

For every number of processes, passes of the profile and steps of all plans take turns in the same processes, so that a
machine that is faster at one minute than at the next is so for both. `error` is the mean of |predicted / measured - 1|
in per cent, where measured is the median over steps; `spread` is the slowest step over
the fastest). Memory is what the fullest rank grew by (its resident set) in processes of its own, beside what the
fullest stage is predicted to hold.

    python -m benchmarks.accuracy.prediction [--rounds 7 --hidden 384 --layers 4 --sequence 256 --processes 1 2 4 8]
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from benchmarks.lib import processes  # noqa: F401  (one thread per rank, before torch is imported)
from benchmarks.lib.gpt import Setting
from heddle.cost.measured.from_timings import Timings, typical
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.runtime.launch import run_processes
from heddle.simulating.simulation import simulate
from heddle.spec import Cluster, ModelSpec, Plan
from heddle.training.profile.profile import described as as_cluster
from heddle.training.profile.profile import measure_once
from heddle.training.step.trainer import Trainer

# by number of processes: microbatches of a replica, and the plan
CASES: dict[int, list[tuple[int, dict[str, Any]]]] = {
    1: [
        (1, {"microbatch": 4}),
        (4, {"microbatch": 1}),
        (2, {"microbatch": 2, "recompute": "full"}),
        (2, {"microbatch": 2, "recompute": "selective"}),
    ],
    2: [
        (2, {"data": 2, "microbatch": 2}),
        (2, {"data": 2, "microbatch": 2, "zero": 1}),
        (2, {"data": 2, "microbatch": 2, "zero": 3}),
        (2, {"tensor": 2, "microbatch": 2}),
        (2, {"tensor": 2, "microbatch": 2, "sequence": True}),
        (8, {"pipeline": 2, "microbatch": 1}),
        (8, {"pipeline": 2, "microbatch": 1, "virtual": 2, "schedule": "interleaved"}),
    ],
    4: [
        (2, {"data": 4, "microbatch": 2}),
        (2, {"tensor": 2, "data": 2, "microbatch": 2}),
        (8, {"pipeline": 4, "microbatch": 1}),
        (4, {"pipeline": 2, "data": 2, "microbatch": 1, "zero": 1}),
        (4, {"tensor": 2, "pipeline": 2, "microbatch": 1}),
    ],
    8: [
        (1, {"data": 8, "microbatch": 2}),
        (2, {"tensor": 2, "data": 4, "microbatch": 1}),
        (4, {"tensor": 2, "pipeline": 2, "data": 2, "microbatch": 1, "zero": 1}),
        (8, {"pipeline": 4, "data": 2, "microbatch": 1}),
        (8, {"tensor": 2, "pipeline": 4, "microbatch": 1}),
    ],
}


def settings(world: int, model: ModelSpec) -> list[Setting]:
    return [Setting(model, Plan(**fields), microbatches) for microbatches, fields in CASES[world]]


def resident() -> int:
    """The largest resident set of this process so far, bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def forget_peak() -> int:
    """Make the peak start from here; gives what is resident now."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def rounds_of(mesh: Mesh, every: list[Setting], rounds: int, quick: bool) -> tuple[Timings, list[list[float]]]:
    """One rank's part of the timings: what a profile finds, and the seconds of each step of each plan."""
    trainers = [
        Trainer(setting.job, setting.tokens, build_mesh(setting.plan, mesh.rank, mesh.world.size)) for setting in every
    ]
    seconds: list[list[float]] = [[] for _ in trainers]
    passes = []
    for number in range(rounds + 1):
        passes.append(measure_once(mesh, quick))
        for trainer, taken in zip(trainers, seconds, strict=True):
            if mesh.world.size > 1:
                dist.barrier(group=mesh.world.group)
            began = time.perf_counter()
            trainer.train_step()
            if number:  # the first is for warming up
                taken.append(time.perf_counter() - began)
    ranks: list[Any] = [seconds]
    if mesh.world.size > 1:
        ranks = [None] * mesh.world.size
        dist.all_gather_object(ranks, seconds)
    slowest = [[max(step) for step in zip(*plan, strict=True)] for plan in zip(*ranks, strict=True)]
    return typical(passes[1:]), slowest


def memory_of(mesh: Mesh, setting: Setting) -> int:
    """One rank's part: bytes that the fullest rank grew by."""
    base = forget_peak()
    trainer = Trainer(setting.job, setting.tokens, build_mesh(setting.plan, mesh.rank, mesh.world.size))
    for _ in range(2):
        trainer.train_step()
    ranks: list[Any] = [resident() - base]
    if mesh.world.size > 1:
        ranks = [None] * mesh.world.size
        dist.all_gather_object(ranks, resident() - base)
    return max(ranks)


def described(plan: Plan) -> str:
    changed = {name: getattr(plan, name) for name in plan.__dataclass_fields__ if name != "stages"}
    usual = Plan()
    words = [f"{name} {value}" for name, value in changed.items() if value != getattr(usual, name)]
    return ", ".join(words) or "one device"


def case(setting: Setting, cluster: Cluster, seconds: list[float], held: int) -> dict[str, Any]:
    prediction = simulate(replace(setting.job, cluster=cluster))
    measured = statistics.median(seconds)
    predicted = prediction.step_seconds
    return {
        "processes": setting.plan.world,
        "plan": described(setting.plan),
        "microbatches": setting.microbatches,
        "predicted_s": round(predicted, 4),
        "measured_s": round(measured, 4),
        "error_pct": round(100 * (predicted / measured - 1), 1),
        "spread": round(max(seconds) / min(seconds), 2),
        "breakdown": {name: round(float(value), 4) for name, value in prediction.breakdown._asdict().items()},
        "predicted_mib": round(max(float(breakdown.total) for breakdown in prediction.memory) / 2**20, 1),
        "measured_mib": round(held / 2**20, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"rounds": 7, "hidden": 384, "layers": 4, "sequence": 256, "vocab": 1024}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--processes", type=int, nargs="+", default=list(CASES))
    parser.add_argument("--no-memory", action="store_true", help="time alone; memory takes processes of its own")
    parser.add_argument("--quick", action="store_true", help="a profile that tells nothing, for tests")
    options = parser.parse_args()
    heads = max(1, options.hidden // 64)
    shape = {name: getattr(options, name) for name in ("hidden", "layers", "sequence", "vocab")}
    model = ModelSpec(heads=heads, **shape)
    cases = []
    for world in options.processes:
        every = settings(world, model)
        plan = Plan(tensor=min(2, world), data=max(1, world // 2))  # the profile's own: groups of two, and all
        found, seconds = run_processes(plan, rounds_of, every, options.rounds, options.quick)
        cluster = as_cluster(world, found)
        for setting, taken in zip(every, seconds, strict=True):
            # a process of its own for each, or what one leaves behind is held against the next
            held = 0 if options.no_memory else run_processes(setting.plan, memory_of, setting)
            cases.append(case(setting, cluster, taken, held))
            print(json.dumps(cases[-1]), file=sys.stderr)
    errors = [abs(entry["error_pct"]) for entry in cases]
    facts = {
        "error": round(statistics.fmean(errors), 1),
        "worst": max(errors),
        **shape,
    }
    print(json.dumps({"benchmark": "prediction", "peer": "the training that it predicts", **facts, "cases": cases}))


if __name__ == "__main__":
    main()
