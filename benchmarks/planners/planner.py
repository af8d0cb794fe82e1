"""Was the choice right? Every plan that the planner calls feasible is trained, and its first choice timed among them.

The machine is profiled with two processes at work. For each job all feasible plans for two processes take a few steps
in the same two processes, one plan after the other; the ten fastest and the first choice then take turns for several
rounds, so that whatever disturbs the machine disturbs all alike. `ratio` is the best plan's median step over the first
choice's: 1 says that nothing else was faster. The A/A arm is the first choice, built a second time.

    python -m benchmarks.planners.planner [--rounds 5 --jobs gpt llama deep wide]
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
from dataclasses import replace
from typing import Any

import torch.distributed as dist

import heddle
from benchmarks.lib import processes
from benchmarks.lib.gpt import Heddle, Setting
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.planning.search.describe import in_words
from heddle.spec import Cluster, ModelSpec, Plan
from heddle.training.profile.profile import profile

LLAMA = {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "bias": "none", "tied": False}
JOBS: dict[str, tuple[ModelSpec, int]] = {
    "gpt": (ModelSpec(layers=4, hidden=256, heads=4, vocab=1024, sequence=128), 8),
    "llama": (ModelSpec(layers=4, hidden=256, heads=4, kv_heads=2, ffn=512, vocab=512, sequence=128, **LLAMA), 8),  # type: ignore[arg-type]
    "deep": (ModelSpec(layers=8, hidden=128, heads=2, vocab=256, sequence=128), 8),
    "wide": (ModelSpec(layers=2, hidden=512, heads=8, vocab=8192, sequence=64), 8),
}
FINALISTS = 10


def setting(model: ModelSpec, batch: int, plan: Plan) -> Setting:
    return Setting(model, plan, plan.microbatches(batch))


def work(rank: int, name: str, plans: list[Plan], rounds: int) -> dict[str, Any]:
    model, batch = JOBS[name]
    world = dist.get_world_size()

    meshes: dict[tuple[int, ...], Mesh] = {}  # few: every process group has threads of its own

    def arm(plan: Plan) -> Heddle:
        degrees = plan.tensor, plan.pipeline, plan.data
        if degrees not in meshes:
            meshes[degrees] = build_mesh(plan, rank, world)
        return Heddle(setting(model, batch, plan), rank, world, meshes[degrees])

    def alone(plan: Plan) -> float:
        """Seconds of a step, with no other plan in memory."""
        seconds = processes.compare({"plan": arm(plan)}, 1, 2)[0]["plan"][0]
        gc.collect()  # trainers and their hooks know each other
        return seconds

    once = [alone(plan) for plan in plans]
    fastest = sorted(range(len(plans)), key=once.__getitem__)[:FINALISTS]
    arms = {str(index): arm(plans[index]) for index in dict.fromkeys([0, *fastest])} | {"choice again": arm(plans[0])}
    wall, _ = processes.compare(arms, rounds, 2, before=1)
    medians = {key: statistics.median(values) for key, values in wall.items()}
    best = min((key for key in medians if key != "choice again"), key=medians.__getitem__)
    case = {
        "job": name,
        "plans": len(plans),
        "choice": in_words(plans[0]),
        "choice_s": round(medians["0"], 4),
        "best": in_words(plans[int(best)]),
        "best_s": round(medians[best], 4),
        "slowest_s": round(max(once), 4),
        "ratio": round(medians[best] / medians["0"], 3),
        "a_a": round(medians["choice again"] / medians["0"], 3),
    }
    if rank == 0:
        print(json.dumps(case), file=sys.stderr)
    return case


def candidates(name: str, cluster: Cluster) -> list[Plan]:
    """The planner's first choice, then every other feasible plan, recomputing in all layers alike."""
    model, batch = JOBS[name]
    job = replace(setting(model, batch, Plan()).job, cluster=cluster, plan=None)
    job = replace(job, train=replace(job.train, global_batch=batch))
    found = heddle.plan(job)
    every = [found.space.plan(index) for index in range(len(found.space)) if found.step.fits[index]]
    first = found.best.plan
    return [first, *(plan for plan in every if plan.resolved(model) != first and isinstance(plan.recompute, str))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--quick", action="store_true", help="a quick profile and few plans, for tests")
    options = parser.parse_args()
    cluster = profile(2, options.quick)
    cases = []
    for name in options.jobs:
        plans = candidates(name, cluster)[: 6 if options.quick else None]
        cases.append(processes.run(2, work, name, plans, options.rounds))
    worst = min(case["ratio"] for case in cases)
    print(json.dumps({"benchmark": "planner", "peer": "every other feasible plan", "worst": worst, "cases": cases}))


if __name__ == "__main__":
    main()
