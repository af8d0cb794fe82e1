"""A plan with an order of its own is never slower than the best with a name, and fits."""

from __future__ import annotations

import pytest

from heddle.planning.request import PlanRequest
from heddle.planning.search.ordered import ordered_plans, stages_of, with_searched_order
from heddle.planning.search.search import search
from heddle.simulating.simulation import simulate
from heddle.spec import Data, Job, ModelSpec, Train
from heddle.spec.shorthand import cluster_from_table

MODEL = ModelSpec(layers=8, hidden=512, heads=8, vocab=8192, sequence=256)


def job() -> Job:
    cluster = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 1})
    return Job(model=MODEL, cluster=cluster, data=Data(text="-"), train=Train(global_batch=8))


def test_the_searched_order_is_faster_and_fits():
    found = search(
        job(), PlanRequest(fixed={"pipeline": 4, "tensor": 1, "data": 2, "microbatch": 1, "schedule": "searched"})
    )
    best = ordered_plans(found.plans, seconds=2.0)
    assert best
    assert best[0].step_seconds < found.best.step_seconds
    assert best[0].fits
    again = simulate(best[0].job)
    assert again.step_seconds == pytest.approx(best[0].step_seconds)
    assert stages_of(best[0]).bound() <= best[0].step_seconds


def test_orders_keep_to_the_memory_there_is():
    found = search(
        job(), PlanRequest(fixed={"pipeline": 4, "tensor": 1, "data": 2, "microbatch": 1, "schedule": "zb-h1"})
    ).best
    tight = search(
        job(),
        PlanRequest(
            fixed={"pipeline": 4, "tensor": 1, "data": 2, "microbatch": 1, "schedule": "zb-h1", "recompute": "none"},
            memory_gib=found.worst / 2**30 * 1.02,
        ),
    ).best
    other = with_searched_order(tight, 1.0)
    assert other is not None
    assert other.fits
    assert other.step_seconds <= tight.step_seconds * (1 + 1e-9)
