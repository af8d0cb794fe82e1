"""Strategies of layers under a budget: as good as trying everything, and never more than the budget."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from heddle.format import GIB
from heddle.planning.layer_memory.solve import best_strategies
from heddle.planning.request import PlanRequest
from heddle.planning.search.search import search
from heddle.simulating.simulation import Simulation, simulate, simulate_if_fits
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.layer_memory import LayerMemory
from heddle.spec.shorthand import cluster_from_table, model_from_table

MODEL = ModelSpec(layers=4, hidden=2048, heads=16, vocab=32_000, sequence=2048)
CLUSTER = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 1})
SOME = [
    LayerMemory("none", 0, ()),
    LayerMemory("selective", 0, ()),
    LayerMemory("full", 0, ()),
    LayerMemory("none", 0, ("activations:host",)),
    LayerMemory("full", 0, ("optimizer:host",)),
]


def job(plan: Plan, gib: float, model: ModelSpec = MODEL, batch: int = 16) -> Job:
    cluster = replace(CLUSTER, device=replace(CLUSTER.device, memory_gib=gib))
    train = Train(global_batch=batch, precision="bf16")
    return Job(model=model, data=Data(text="-"), train=train, cluster=cluster, plan=plan)


def exhaustive(a_job: Job, strategies: list[LayerMemory]) -> Simulation | None:
    """Every strategy of every layer, simulated."""
    plan = a_job.planned.plan
    best = None
    for layers in product(strategies, repeat=a_job.model.layers):
        found = simulate_if_fits(replace(a_job, plan=plan.with_memory(layers)))
        if found is not None and (best is None or found.step_seconds < best.step_seconds):
            best = found
    return best


PLANS = [Plan(microbatch=2), Plan(pipeline=2, microbatch=2), Plan(pipeline=4, microbatch=1), Plan(pipeline=2, tensor=2)]


@pytest.mark.parametrize("plan", PLANS, ids=["one", "pipeline2", "pipeline4", "tensor2"])
def test_no_choice_of_strategies_is_better(plan):
    """Between what the leanest needs and what everything needs, at five budgets."""
    chance = random.Random(plan.pipeline)
    some = chance.sample(SOME[1:], 2) + SOME[:1]
    free = simulate(job(plan, 1000.0)).worst / GIB
    every = [simulate(job(plan.with_memory([one] * 4), 1000.0)).worst / GIB for one in some]
    for share in (0.15, 0.35, 0.5, 0.7, 0.9):
        gib = min(every) + share * (free - min(every))
        found, best = best_strategies(job(plan, gib), some), exhaustive(job(plan, gib), some)
        assert best is not None
        assert found is not None
        assert found.fits
        assert found.worst <= gib * GIB
        assert found.step_seconds == pytest.approx(best.step_seconds, rel=0.01)


def test_stages_differ_because_they_hold_more_microbatches():
    """The first stage of 1F1B holds as many as there are stages, the last one a single one."""
    model = replace(MODEL, layers=16)
    plan = Plan(pipeline=4, microbatch=2)
    free, lean = (simulate(job(replace(plan, recompute=word), 1000.0, model)).worst / GIB for word in ("none", "full"))
    found = best_strategies(job(plan, (free + lean) / 2, model), SOME[:3])
    assert found is not None
    plain = [sum(found.plan.memory_of(layer) == SOME[0] for layer in range(4 * s, 4 * s + 4)) for s in range(4)]
    assert plain[0] < plain[-1] == 4
    assert plain == sorted(plain)


def test_memory_that_is_no_object_is_used():
    found = best_strategies(job(Plan(microbatch=2), 1000.0))
    assert found is not None
    assert found.plan.layers == ()
    assert found.plan.recompute == "none"


def test_nothing_fits_where_nothing_can():
    assert best_strategies(job(Plan(microbatch=2), 0.5)) is None


def test_a_budget_is_a_promise_and_layers_keep_it_faster():
    """GPT-3 with 18 GiB a device: what every layer chooses for itself beats one word for all.

    By less where two devices share their way to the host, as those of a DGX A100 do.
    """
    cluster = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 64})
    alone = replace(cluster, device=replace(cluster.device, host_sharing=1))
    gpt3 = Job(
        model=model_from_table({"preset": "gpt3-175b"}),
        data=Data(text="-"),
        train=Train(global_batch=512, precision="bf16"),
        cluster=cluster,
    )
    fixed = {"tensor": 8, "pipeline": 16, "virtual": 6, "microbatch": 2, "sequence": True}
    plain, shared, own = (
        search(a_job, PlanRequest(memory_gib=18.0, fixed=fixed, by_layer=by_layer, top=1)).best
        for a_job, by_layer in ((gpt3, False), (gpt3, True), (replace(gpt3, cluster=alone), True))
    )
    assert own.worst <= 18 * GIB
    assert own.step_seconds < 0.97 * plain.step_seconds
    assert own.step_seconds < shared.step_seconds < plain.step_seconds
    assert own.plan.layers
    assert simulate(own.job).step_seconds == own.step_seconds


def test_what_fits_no_other_way_fits():
    """GPT-3 on 64 A100 with 40 GiB each: no plan fits that treats all layers alike."""
    gpt3 = Job(
        model=model_from_table({"preset": "gpt3-175b"}),
        data=Data(text="-"),
        train=Train(global_batch=256, precision="bf16"),
        cluster=cluster_from_table({"preset": "dgx-a100-40gb", "nodes": 8}),
    )
    found = search(gpt3, PlanRequest(by_layer=True, fixed={"tensor": 8, "pipeline": 8, "microbatch": 1}, top=1))
    assert found.best.fits
    assert any("optimizer:host" in found.best.plan.memory_of(layer).offload for layer in range(gpt3.model.layers))
    assert found.to_json()["plans"][0]["plan"]["layers"]
