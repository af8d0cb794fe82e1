"""All that is said of a search is said of the same plans: held against searches that have the stated choice fixed."""

import re
from dataclasses import replace

import numpy as np
import pytest

import heddle
from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.planning.layer_memory.explain import layers_in_words
from heddle.planning.search.describe import headline, in_words
from heddle.planning.search.explain import explain
from heddle.planning.search.objective import MARGIN
from heddle.planning.search.ranking import ties_in_words
from heddle.simulating.simulation import simulate
from heddle.spec import ModelSpec, Plan
from heddle.spec.layer_memory import LayerRun
from tests.planning.search.test_optimum import random_job
from tests.planning.search.test_search import job_of

CLOSE = 1.03  # times what a search for the choice alone finds, which looks at more
SMALL = ModelSpec(layers=8, hidden=4096, heads=32, vocab=32_000, sequence=2048)


@pytest.fixture(scope="module")
def tight():
    """A job of which no plan with one setting for all layers fits."""
    job = job_of(SMALL, 4, 32)
    need = heddle.plan(job, objective="smallest", by_layer=False).best.worst / GIB
    found = heddle.plan(job, memory_gib=0.7 * need)
    assert found.best.plan.layers
    return found


def again(found, **wanted):
    """The same search with something fixed."""
    memory = found.cluster.device.memory_gib
    return heddle.plan(replace(found.job, plan=None, predicted=None), memory_gib=memory, **wanted)


def fixed_by(change):
    name, value = change.split(" = ")
    value = value.removesuffix(" in all layers")
    return {name: value == "true" if name == "sequence" else value if name == "recompute" else int(value)}


def check(found):
    """Every statement about one search."""
    best = found.best
    assert found.feasible >= len(found.plans)
    assert found.considered >= found.feasible
    ranks = [found.rank(each.plan) for each in found.plans]
    assert ranks[0] == 1
    assert all(rank >= place for place, rank in enumerate(ranks, 1))
    for each in (*found.plans, found.fastest):
        told = simulate(replace(found.job, plan=each.plan))
        assert told.fits
        assert told.step_seconds == each.step_seconds
        assert each.step_seconds >= found.fastest.step_seconds
        assert any(p.step_seconds <= each.step_seconds and p.memory_gib * GIB <= each.worst for p in found.front)
    for point in found.front:
        told = simulate(replace(found.job, plan=point.plan))
        assert told.fits
        assert (told.step_seconds, told.worst / GIB) == (point.step_seconds, point.memory_gib)
    assert found.front[0].step_seconds == found.fastest.step_seconds
    reasons = explain(found)
    for each in reasons.neighbors:
        for change in each.change.split(", "):
            if "schedule" in change or "virtual" in change:
                continue
            try:
                other = again(found, fixed=fixed_by(change))
            except HeddleError:
                assert each.simulation is None, change
                continue
            assert each.simulation is not None, change
            assert other.fastest.step_seconds <= each.simulation.step_seconds <= CLOSE * other.fastest.step_seconds
            assert found.fastest.step_seconds <= other.fastest.step_seconds * (1 + MARGIN), change
    nearest = [each.simulation.step_seconds for each in reasons.neighbors if each.simulation is not None]
    nearest += [each.step_seconds for each in found.plans[1:]]
    if nearest:
        share = f"({min(nearest) / best.step_seconds - 1:+.1%} per step)"
        assert any(share in line for line in reasons.in_short)


@pytest.mark.parametrize("seed", [7, 12, 21, 30])
def test_every_statement_agrees_with_searches_that_fix_the_stated_choice(seed):
    check(heddle.plan(random_job(np.random.default_rng(seed))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 80))
def test_the_same_on_many_more_jobs(seed):
    try:
        found = heddle.plan(random_job(np.random.default_rng(seed)))
    except HeddleError:
        return
    check(found)


def test_what_only_fits_layer_by_layer_is_explained_ranked_and_counted(tight):
    check(tight)
    assert tight.feasible > 0


def test_the_smallest_plan_is_the_least_memory_that_any_search_can_keep():
    job = job_of(SMALL, 4, 32)
    found = heddle.plan(job, objective="smallest")
    least = found.best.worst / GIB
    assert found.front[-1].memory_gib == pytest.approx(least)
    assert heddle.plan(job, memory_gib=1.001 * least).best.worst <= 1.001 * least * GIB
    assert found.best.worst < heddle.plan(job, objective="smallest", by_layer=False).best.worst
    with pytest.raises(HeddleError, match="none fits"):
        heddle.plan(job, memory_gib=0.98 * least)


def test_the_fewest_devices_are_found_where_only_layers_on_their_own_fit(tight):
    two = again(tight, devices=2)
    days = 1.01 * two.best.days(1e9)
    found = again(tight, objective="fewest", days=days, tokens=1e9)
    assert found.best.plan.world <= 2
    assert found.best.days(1e9) <= days
    for fewer in range(1, found.best.plan.world):
        try:
            assert again(tight, devices=fewer).fastest.days(1e9) > days
        except HeddleError:
            continue
    loose = again(tight, objective="fewest", days=100 * days, tokens=1e9).best
    assert loose.step_seconds <= again(tight, devices=loose.plan.world).best.step_seconds * 1.01


def test_the_cheapest_plans_are_those_of_searches_for_each_number_of_devices(tight):
    found = again(tight, objective="cheapest")
    cost = {each.plan.world: each.step_seconds * each.plan.world for each in reversed(found.plans)}
    for devices in range(1, 5):
        try:
            other = again(tight, devices=devices).fastest
        except HeddleError:
            continue
        if devices in cost:
            assert cost[devices] <= CLOSE * other.step_seconds * devices
        assert found.fastest.step_seconds * found.fastest.plan.world <= CLOSE * other.step_seconds * devices


def test_one_replica_shares_nothing_whatever_the_level_of_zero():
    """Memory and time of a plan with one replica do not depend on zero."""
    job = job_of(SMALL, 4, 32)
    held = {
        zero: simulate(replace(job, plan=Plan(tensor=2, pipeline=2, zero=zero, microbatch=2))).worst
        for zero in range(4)
    }
    assert len(set(held.values())) == 1
    levels = [heddle.plan(job, fixed={"zero": zero, "data": 1}).best for zero in (0, 3)]
    assert levels[0].step_seconds == levels[1].step_seconds
    assert levels[0].worst == levels[1].worst


def test_a_budget_beyond_the_device_is_refused():
    with pytest.raises(HeddleError, match=r"--memory-gib 159\.2 is more than a device has") as told:
        heddle.plan(job_of(SMALL, 4, 32), memory_gib=159.2)
    assert "Use at most 80" in told.value.hint


def test_a_plan_by_layer_is_told_in_full():
    own = (LayerRun(layers="0-3", zero=3, offload=("optimizer:host",)), LayerRun(layers="7", recompute="full", zero=3))
    plan = Plan(data=4, zero=1, microbatch=2, stages=(8,), layers=own)
    assert in_words(plan) == (
        "tensor 1 × pipeline 1 × data 4, microbatch 2, by layer (layers 0–3: ZeRO-3, optimizer to host; "
        "layers 4–6: ZeRO-1; layer 7: recompute in full, ZeRO-3; embedding and output: ZeRO-1)"
    )
    every = Plan(data=4, zero=2, microbatch=2, stages=(8,), layers=(LayerRun(layers="0-7", zero=3),))
    assert "all layers: ZeRO-3; embedding and output: ZeRO-2" in in_words(every)
    assert headline(Plan(data=4, zero=2, microbatch=2)) == (
        "tensor 1 × pipeline 1 × data 4, zero 2, microbatch 2, recompute none"
    )
    assert layers_in_words(range(0, 40, 2)) == "20 of layers 0–38"


def test_what_makes_the_second_plan_less_simple_is_said(tight):
    simple = simulate(replace(tight.job, plan=tight.best.plan))
    words = ties_in_words([simple, simple], simple, tight.goal)
    assert re.search("needs the least machinery comes first", words)
