"""Strategies chosen once more by what was measured: same split, same budget, and a reason for each change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.planning.layer_memory.adapt import OFF, FirstSteps, adapted, budget_of
from heddle.planning.layer_memory.solve import best_strategies
from heddle.simulating.simulation import Simulation, simulate
from heddle.spec import Job, Plan
from heddle.spec.layer_memory import LayerMemory
from heddle.spec.plan import Predicted
from tests.planning.layer_memory.test_promise import MODEL, job

PLAN = Plan(pipeline=2, microbatch=2, adapt=True)


def planned(folder, share: float, plan: Plan = PLAN) -> Simulation:
    """The best strategies for a part of what everything takes."""
    free = simulate(job(plan, 1.0, folder)).worst
    found = best_strategies(job(plan, share * free / GIB, folder))
    assert found is not None
    return found


def measured(predicted: Simulation, longer: float = 1.0, fuller: float = 1.0, **tiers: float) -> FirstSteps:
    held = tuple(fuller * float(breakdown.total - breakdown.slack) for breakdown in predicted.memory)
    return FirstSteps(longer * predicted.step_seconds, held, tiers)


@pytest.mark.parametrize("off", [1.0, 1 + 0.9 * OFF, 1 - 0.9 * OFF])
def test_what_was_predicted_well_stays(tmp_path, off):
    lean = planned(tmp_path, 0.7)
    roomy = simulate(replace(lean.job, cluster=job(PLAN, 1.0, tmp_path).cluster))  # whatever it holds, it fits
    found = adapted(roomy, measured(roomy, off, off))
    assert found.plan == lean.plan
    assert "less than 10% off" in found.words


def test_who_holds_more_than_predicted_is_brought_back_into_its_budget(tmp_path):
    lean = planned(tmp_path, 0.7)
    found = adapted(lean, measured(lean, fuller=1.2))
    again = simulate(replace(lean.job, plan=found.plan))
    assert 1.2 * again.worst <= lean.limit < 1.2 * lean.worst
    assert found.predicted.worst_stage_gib == pytest.approx(1.2 * again.worst / GIB)
    split = [replace(plan, recompute="none", layers=(), offload=()) for plan in (lean.plan, found.plan)]
    assert split[0] == split[1]
    assert "(before: " in found.words


def test_who_holds_less_than_predicted_gets_faster(tmp_path):
    lean = planned(tmp_path, 0.5)
    found = adapted(lean, measured(lean, fuller=0.8))
    again = simulate(replace(lean.job, plan=found.plan))
    assert again.step_seconds < lean.step_seconds
    spare = 0.2 * min(float(breakdown.total) for breakdown in lean.memory)
    assert again.worst <= lean.limit + spare  # of what was to spare, and not a byte more


def test_a_slow_disk_is_used_less_and_a_slow_core_repeats_less(tmp_path):
    def layers(plan: Plan, what) -> int:
        return sum(bool(what(plan.memory_of(layer))) for layer in range(MODEL.layers))

    lean = planned(tmp_path, 0.6)
    device = replace(lean.cluster.device, disk_gbs=0.1)
    longer = simulate(replace(lean.job, cluster=replace(lean.cluster, device=device))).step_seconds / lean.step_seconds
    assert longer > 1 + OFF
    found = adapted(lean, measured(lean, longer, disk=0.1))
    assert found.predicted.step_seconds < longer * lean.step_seconds
    slow_disk = found.plan
    slow_core = adapted(lean, measured(lean, 20.0, disk=2.0)).plan
    plans = slow_core, lean.plan, slow_disk
    offloads = [layers(plan, lambda memory: memory.offload) for plan in plans]
    repeats = [layers(plan, lambda memory: memory.recompute != "none") for plan in plans]
    assert offloads[0] >= offloads[1] > offloads[2]
    assert repeats[0] <= repeats[1] < repeats[2]


def test_the_budget_is_that_of_the_plan_and_never_more_than_there_is(tmp_path):
    lean = planned(tmp_path, 0.7)
    for gib, limit in ((0.01, 0.01 * GIB), (9.0, lean.limit)):
        stated = replace(lean, job=replace(lean.job, predicted=Predicted(step_seconds=1.0, budget_gib=gib)))
        assert budget_of(stated) == pytest.approx(limit)
    assert lean.predicted.budget_gib == pytest.approx(lean.limit / GIB)


def test_where_nothing_fits_by_what_was_measured_it_says_so(tmp_path):
    lean = planned(tmp_path, 0.7)
    found = adapted(lean, measured(lean, fuller=50.0))
    assert found.plan == lean.plan
    assert "None are within" in found.words


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"update": "ouroboros", "pipeline": 2}, "update"), ({"local_steps": 2, "data": 2}, "local_steps")],
)
def test_what_cannot_adapt_is_refused(tmp_path, changes, named):
    with pytest.raises(HeddleError, match=f"adapt = true cannot be combined with {named}"):
        Job(**{**vars(job(Plan(), 1.0, tmp_path)), "plan": Plan(adapt=True, **changes)})


def test_every_layer_that_changes_is_named(tmp_path):
    kept = job(PLAN.with_memory([LayerMemory("full", 0, ())] * MODEL.layers), 1.0, tmp_path)
    predicted = simulate(kept)
    found = adapted(predicted, measured(predicted, 2.0))
    assert not found.plan.layers
    assert "Layers 0–5: keep everything (before: recompute in full)" in found.words
