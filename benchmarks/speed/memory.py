"""Training under a budget of memory: strategies searched layer by layer against the best fixed strategy that fits.

    python -m benchmarks.speed.memory [--layouts one pipeline2] [--budgets 6] [--rounds 5]

Fixed strategies, of which the fastest that fits counts: no layer recomputes, all do, every other one, the first k for
the best k, k evenly spaced for the best k (H3T's greedy), and the best of 200 random choices. Which are best, and what
fits, is by prediction for all arms alike; seconds are measured, and so is the live-storage peak of every arm, in a step
of its own. Budgets lie between what recomputing everywhere needs and what recomputing nowhere does. The A/A arm is the
best fixed strategy once more.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from benchmarks.lib.processes import compare, run
from benchmarks.lib.rounds import report_cases, speedup
from heddle.format import GIB
from heddle.parallel.mesh import build_mesh
from heddle.planning.layer_memory.solve import best_strategies
from heddle.simulating.simulation import Simulation, simulate, simulate_if_fits
from heddle.spec import Cluster, Data, Job, ModelSpec, Plan, Train
from heddle.spec.layer_memory import LayerMemory
from heddle.training.dry_run.living import Living
from heddle.training.profile.profile import profile
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.trainer import Trainer

LAYOUTS = {"one": Plan(), "pipeline2": Plan(pipeline=2)}
RANDOM = 200
SLACK = 0.03  # what a prediction of memory may be off by
KEEP, AGAIN = LayerMemory("none", 0, ()), LayerMemory("full", 0, ())


def fixed(layers: int) -> Iterator[tuple[str, list[LayerMemory]]]:
    """Every candidate, by the name of its strategy."""
    yield "none", [KEEP] * layers
    yield "all", [AGAIN] * layers
    yield "every other", [(AGAIN, KEEP)[layer % 2] for layer in range(layers)]
    for k in range(1, layers):
        yield "first k", [AGAIN if layer < k else KEEP for layer in range(layers)]
        spaced = {round((number + 0.5) * layers / k - 0.5) for number in range(k)}
        yield "evenly spaced k", [AGAIN if layer in spaced else KEEP for layer in range(layers)]
    chance = random.Random(0)
    for _ in range(RANDOM):
        yield "random", [chance.choice((KEEP, AGAIN)) for _ in range(layers)]


def best_fixed(job: Job, plan: Plan) -> dict[str, Simulation]:
    """Of each strategy the quickest that fits, by prediction."""
    best: dict[str, Simulation] = {}
    predict = cache(lambda layers: simulate_if_fits(replace(job, plan=plan.with_memory(layers))))
    for name, layers in fixed(job.model.layers):
        found = predict(tuple(layers))
        if found is not None and (name not in best or found.step_seconds < best[name].step_seconds):
            best[name] = found
    return best


class Arm:
    """A plan at work."""

    def __init__(self, job: Job, rank: int) -> None:
        assert job.plan is not None
        self.living = Living()
        with self.living:
            mesh = build_mesh(job.plan, rank, job.plan.world)
            self.trainer = Trainer(job, synthetic_tokens(job), mesh)
            self.trainer.train_step()
            self.living.most = self.living.now
            self.trainer.train_step()
        self.peak = self.living.most

    def train_step(self) -> float | None:
        return self.trainer.train_step().loss


def budget_of(job: Job, gib: float) -> Job:
    assert job.cluster is not None
    return replace(job, cluster=replace(job.cluster, device=replace(job.cluster.device, memory_gib=gib)))


def peaks(arms: dict[str, Arm]) -> dict[str, int]:
    """The most bytes that lived on any rank."""
    import torch.distributed as dist

    every: list[dict[str, int]] = [{}] * dist.get_world_size()
    dist.all_gather_object(every, {name: arm.peak for name, arm in arms.items()})
    return {name: max(each[name] for each in every) for name in arms}


def work(rank: int, job: Job, options: dict[str, Any]) -> list[dict[str, Any]]:
    """One layout under all budgets."""
    plan = job.planned.plan
    lean, free = (simulate(replace(job, plan=replace(plan, recompute=w))).worst / GIB for w in ("full", "none"))
    cases = []
    for number in range(options["budgets"]):
        share = (number + 0.5) / options["budgets"]
        gib = lean + share * (free - lean)
        own = budget_of(job, gib)
        searched, others = best_strategies(own), best_fixed(own, plan)
        assert searched is not None
        plans: dict[str, Simulation] = {"searched": searched}
        for name, found in others.items():  # one arm for each plan, whatever its names
            if all(found.plan != other.plan for other in plans.values()):
                plans[name] = found
        arms = {name: Arm(found.job, rank) for name, found in plans.items()}
        most = peaks(arms)
        first, _ = compare(arms, 1, 1)
        peer = min((name for name in arms if name != "searched"), key=lambda name: statistics.median(first[name]))
        pair = {"searched": arms["searched"], peer: arms[peer], "again": Arm(plans[peer].job, rank)}
        rest = {name: arm for name, arm in arms.items() if name not in pair}
        wall, cpu = compare(pair | rest, options["rounds"], options["steps"])
        medians = {name: statistics.median(values) for name, values in wall.items()}
        peer = min((name for name in arms if name != "searched"), key=lambda name: medians[name])
        case = {
            "layout": options["layout"],
            "budget": round(share, 3),
            "budget_mib": round(gib * 1024, 1),
            "fixed": peer,
            "ratio": round(speedup(wall, "searched", peer), 3),
            "cpu": {"ratio": round(speedup(cpu, "searched", peer), 3)},  # without waiting: other load hardly changes it
            "predicted_ratio": round(plans[peer].step_seconds / plans["searched"].step_seconds, 3),
            "a_a": round(speedup(wall, "again", next(iter(list(pair)[1:]))), 3),
            "median_seconds": {name: round(value, 4) for name, value in medians.items()},
            "peak_mib": {name: round(value / 2**20, 1) for name, value in most.items()},
            "kept": max(most.values()) <= gib * GIB,
            "peak_error": round(
                max(abs(plans[name].worst / (1 + SLACK) / value - 1) for name, value in most.items()), 4
            ),
            "strategies": [f"{run.layers}: {run.recompute or '-'} {run.offload or ''}" for run in searched.plan.layers],
        }
        if rank == 0:
            print(case, file=sys.stderr, flush=True)
        cases.append(case)
    return cases


def machine(processes: int, quick: bool) -> Cluster:
    found = profile(processes, quick)
    return replace(found, efficiency=replace(found.efficiency, slack=SLACK))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", nargs="+", choices=list(LAYOUTS), default=list(LAYOUTS))
    defaults = {"hidden": 192, "layers": 8, "sequence": 128, "vocab": 2048, "microbatch": 2, "microbatches": 8}
    defaults |= {"budgets": 6, "rounds": 5, "steps": 1}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--quick", action="store_true", help="measure the machine in a few seconds")
    options = vars(parser.parse_args())
    model = ModelSpec(
        layers=options["layers"],
        hidden=options["hidden"],
        heads=max(1, options["hidden"] // 64),
        vocab=options["vocab"],
        sequence=options["sequence"],
        tied=False,
    )
    train = Train(global_batch=options["microbatch"] * options["microbatches"], learning_rate=1e-4, steps=200)
    cases = []
    for layout in options["layouts"]:
        plan = replace(LAYOUTS[layout], microbatch=options["microbatch"])
        cluster = machine(plan.world, options["quick"])
        job = Job(model=model, data=Data(text="-"), train=train, plan=plan, cluster=cluster)
        cases += run(plan.world, work, job, options | {"layout": layout})
    medians = {
        f"ratio_{layout}": round(statistics.median(case["ratio"] for case in cases if case["layout"] == layout), 3)
        for layout in options["layouts"]
    }
    facts = {name: options[name] for name in defaults} | medians
    facts |= {"worst": min(case["ratio"] for case in cases), "kept": all(case["kept"] for case in cases)}
    report_cases("memory", "the best fixed strategy that fits", cases, **facts)


if __name__ == "__main__":
    main()
