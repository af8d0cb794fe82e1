"""Predictions for pipelines that do not drain: their period, the weights they keep, and when a planner offers them."""

from __future__ import annotations

import dataclasses

import pytest

from heddle.errors import HeddleError
from heddle.planning.request import PlanRequest
from heddle.planning.search.late import late_in_words, late_plans
from heddle.planning.search.search import search
from heddle.schedule.late import UPDATES, LateSchedule
from heddle.simulating import late as room
from heddle.simulating.late import enough_steps, steady_seconds, weight_versions
from heddle.simulating.replay import step_time
from heddle.simulating.simulation import simulate
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.shorthand import cluster_from_table

MODEL = ModelSpec(layers=24, hidden=1024, heads=16, vocab=50304, sequence=1024, tied=False)


def job(plan: Plan | None, batch: int = 8) -> Job:
    cluster = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 1})
    return Job(model=MODEL, data=Data(text="-"), train=Train(global_batch=batch), cluster=cluster, plan=plan)


@pytest.mark.parametrize("pipeline", [2, 4, 8])
def test_the_period_is_the_work_of_a_step(pipeline):
    """Without latency nobody waits: PipeDream at any number of microbatches, 2BW from as many as stages on."""
    for name, microbatches in (("pipedream", 1), ("pipedream", 4), ("2bw", pipeline), ("2bw", 3 * pipeline)):
        late = LateSchedule(UPDATES[name], pipeline, microbatches)
        period = steady_seconds(late, lambda schedule: step_time(schedule, 1.0, 2.0))
        assert period == pytest.approx(3 * microbatches)


@pytest.mark.parametrize("name", list(UPDATES))
def test_an_order_too_long_to_simulate_is_refused_with_the_longest_that_is_not(name, monkeypatch):
    monkeypatch.setattr(room, "MOST", 4_000)
    with pytest.raises(HeddleError, match=r"takes [0-9,]+ actions") as caught:
        enough_steps(LateSchedule(UPDATES[name], 1000, 3))
    works = int(caught.value.hint.removeprefix("Use pipeline = ").removesuffix("."))
    order = LateSchedule(UPDATES[name], works, 3).unrolled(2 * enough_steps(LateSchedule(UPDATES[name], works, 3)))
    assert sum(map(len, order.ranks)) <= 4_000
    with pytest.raises(HeddleError):
        enough_steps(LateSchedule(UPDATES[name], works + 1, 3))
    with pytest.raises(HeddleError, match="fewer microbatches"):
        enough_steps(LateSchedule(UPDATES[name], 2, 10_000))


def test_versions_are_those_that_steps_under_way_have_met():
    assert [weight_versions(LateSchedule(UPDATES["pipedream"], 4, 2), k) for k in range(4)] == [4, 3, 2, 0]
    assert [weight_versions(LateSchedule(UPDATES["2bw"], 3, 4), k) for k in range(3)] == [2, 2, 2]
    assert [weight_versions(LateSchedule(UPDATES["features-replay"], 3, 4), k) for k in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("name", UPDATES)
def test_a_step_is_shorter_where_nobody_waits_and_old_weights_are_counted(name):
    plan = Plan(pipeline=4)
    flushed = simulate(job(plan))
    late = simulate(job(dataclasses.replace(plan, update=name)))
    if name in ("pipedream", "2bw"):
        assert late.bubble < flushed.bubble / 2  # what is left: stages are not equal
        assert late.step_seconds < flushed.step_seconds
    copies = 0 if name == "features-replay" else 1
    assert late.memory[0].weights > flushed.memory[0].weights * (1 + copies) * (0.5 if name == "ouroboros" else 0.99)
    if name == "features-replay":  # stages but the last repeat their forward: a third of a step's compute at most
        assert 1.2 < late.breakdown.compute / flushed.breakdown.compute < 4 / 3
    else:
        assert late.breakdown.compute == pytest.approx(flushed.breakdown.compute)
    assert late.trace.spans


def test_a_planner_offers_late_updates_only_where_they_gain():
    found = search(job(None, 4), PlanRequest(fixed={"pipeline": 4, "data": 2, "schedule": "1f1b"}))
    late = late_plans(found.plans)
    assert late
    assert all(each.fits for each in late)
    assert late[0].step_seconds < found.best.step_seconds
    assert "The loss may differ" in late_in_words(late[0], found.best)
    with pytest.raises(HeddleError, match=r"does not search plan.update = '2bw'"):
        search(job(None), PlanRequest(fixed={"update": "2bw"}))
