"""Predicted beside measured: profile this machine, predict plans on 1, 2 and 4 processes, then train them.

For every number of processes the machine is profiled, and the plans of that number are trained with Heddle's trainer,
each in processes of its own; a step's time is the median over steps. `error` is the mean of |predicted / measured - 1|
in per cent, `quiet_error` the same against the fastest step: where the two are far apart, the machine did something
else meanwhile (`spread` is the slowest step over the fastest). Memory is what the fullest rank grew by (its resident
set), beside what the fullest stage is predicted to hold.

    python benchmarks/prediction.py [--steps 7 --hidden 384 --layers 4 --sequence 256 --processes 1 2 4]
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

import processes  # noqa: F401  (one thread a rank, before torch is imported)
import torch.distributed as dist
from gpt import Setting

from heddle.parallel.mesh import Mesh, build_mesh
from heddle.simulate import simulate
from heddle.spec import Cluster, ModelSpec, Plan
from heddle.train.launch import run_processes
from heddle.train.profile import profile
from heddle.train.trainer import Trainer

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


def train(mesh: Mesh, setting: Setting, steps: int) -> dict[str, Any]:
    """One rank's part: seconds of each step, the slowest rank's; bytes that the fullest rank grew by."""
    base = forget_peak()
    trainer = Trainer(setting.job, setting.tokens, build_mesh(setting.plan, mesh.rank, mesh.world.size))
    trainer.train_step()
    seconds = []
    for _ in range(steps):
        if mesh.world.size > 1:
            dist.barrier(group=mesh.world.group)
        began = time.perf_counter()
        trainer.train_step()
        seconds.append(time.perf_counter() - began)
    ranks: list[Any] = [(seconds, resident() - base)]
    if mesh.world.size > 1:
        ranks = [None] * mesh.world.size
        dist.all_gather_object(ranks, (seconds, resident() - base))
    slowest = [max(step) for step in zip(*(rank[0] for rank in ranks), strict=True)]
    return {"seconds": slowest, "bytes": max(rank[1] for rank in ranks)}


def described(plan: Plan) -> str:
    changed = {name: getattr(plan, name) for name in plan.__dataclass_fields__ if name != "stages"}
    usual = Plan()
    words = [f"{name} {value}" for name, value in changed.items() if value != getattr(usual, name)]
    return ", ".join(words) or "one device"


def case(setting: Setting, cluster: Cluster, measured: dict[str, Any]) -> dict[str, Any]:
    prediction = simulate(replace(setting.job, cluster=cluster))
    seconds = statistics.median(measured["seconds"])
    return {
        "processes": setting.plan.world,
        "plan": described(setting.plan),
        "microbatches": setting.microbatches,
        "predicted_s": round(prediction.step_seconds, 4),
        "measured_s": round(seconds, 4),
        "error_pct": round(100 * (prediction.step_seconds / seconds - 1), 1),
        "quiet_error_pct": round(100 * (prediction.step_seconds / min(measured["seconds"]) - 1), 1),
        "spread": round(max(measured["seconds"]) / min(measured["seconds"]), 2),
        "breakdown": {name: round(float(value), 4) for name, value in prediction.breakdown._asdict().items()},
        "predicted_mib": round(max(float(bill.total) for bill in prediction.memory) / 2**20, 1),
        "measured_mib": round(measured["bytes"] / 2**20, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"steps": 7, "hidden": 384, "layers": 4, "sequence": 256, "vocab": 1024}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--processes", type=int, nargs="+", default=list(CASES))
    parser.add_argument("--quick", action="store_true", help="a profile that tells nothing, for tests")
    options = parser.parse_args()
    heads = max(1, options.hidden // 64)
    shape = {name: getattr(options, name) for name in ("hidden", "layers", "sequence", "vocab")}
    model = ModelSpec(heads=heads, **shape)
    cases = []
    for world in options.processes:
        cluster = profile(world, options.quick)
        for setting in settings(world, model):
            # a process of its own for each, or what one leaves behind is held against the next
            measured = run_processes(setting.plan, train, setting, options.steps)
            cases.append(case(setting, cluster, measured))
            print(json.dumps(cases[-1]), file=sys.stderr)
    errors = [abs(entry["error_pct"]) for entry in cases]
    quiet = statistics.fmean(abs(entry["quiet_error_pct"]) for entry in cases)
    facts = {"error": round(statistics.fmean(errors), 1), "worst": max(errors), "quiet_error": round(quiet, 1), **shape}
    print(json.dumps({"benchmark": "prediction", "peer": "the training that it predicts", **facts, "cases": cases}))


if __name__ == "__main__":
    main()
