"""Explanations: every number in them is that of a plan that can be simulated, and every reason is true."""

import re
from dataclasses import replace

import numpy as np
import pytest

import heddle
from heddle.cost.breakdown import STEP, Breakdown
from heddle.format import signed_seconds
from heddle.planning.search.describe import beyond_the_split, in_words
from heddle.planning.search.explain import explain
from heddle.planning.search.legal import RECOMPUTE
from heddle.planning.search.objective import MARGIN
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.shorthand import cluster_from_table, model_from_table
from tests.planning.search.test_optimum import random_job


@pytest.fixture(scope="module")
def reasons():
    """Half of GPT-3: all of it has the same neighbors, for the same reasons, and takes three times as long."""
    cluster = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 32})
    model = model_from_table({"preset": "gpt3-175b", "layers": 48})
    job = Job(model=model, data=Data(text="x"), cluster=cluster, train=Train(global_batch=768, precision="bf16"))
    return explain(heddle.plan(job))


def neighbor(reasons, change):
    return next(each for each in reasons.neighbors if change in each.change.split(", "))


def test_every_degree_is_doubled_and_halved_and_every_word_tried(reasons):
    best = reasons.search.best.plan
    changes = [change for each in reasons.neighbors for change in each.change.split(", ")]
    for name in ("tensor", "pipeline", "data", "virtual"):
        value = getattr(best, name)
        assert {f"{name} = {2 * value}", f"{name} = {value // 2}"} <= set(changes)
    assert {"recompute = full", "recompute = selective", "zero = 0", "sequence = false"} <= set(changes)
    assert any(change.startswith("schedule = ") for change in changes)
    assert len(set(changes)) == len(changes)


def test_no_alternative_is_told_twice(reasons):
    plans = [each.simulation.plan for each in reasons.neighbors if each.simulation is not None]
    assert len(set(plans)) == len(plans)


def test_a_neighbor_has_the_choices_it_is_named_after_and_is_priced_exactly(reasons):
    best = reasons.search.best
    for each in reasons.neighbors:
        if each.simulation is None:
            assert each.why
            continue
        for change in each.change.split(", "):
            name, value = change.split(" = ")
            assert str(getattr(each.simulation.plan, name)).lower() == value
        again = heddle.simulate(replace(best.job, plan=each.simulation.plan))
        assert again.fits
        assert again.step_seconds == each.simulation.step_seconds
        share = again.step_seconds / best.step_seconds - 1
        assert share > -MARGIN or "not searched unless asked for: --schedule all" in each.why


def test_a_neighbor_is_about_what_a_search_with_that_choice_finds(reasons):
    search = reasons.search
    for change, fixed in (("microbatch = 3", {"microbatch": 3}), ("zero = 0", {"zero": 0}), ("data = 8", {"data": 8})):
        found = heddle.plan(replace(search.job, plan=None), fixed=fixed, by_layer=False)
        assert neighbor(reasons, change).simulation.step_seconds == pytest.approx(found.fastest.step_seconds, rel=0.025)


@pytest.fixture(scope="module")
def by_layer():
    """70B on two nodes, whose layers choose for themselves."""
    cluster = cluster_from_table({"preset": "dgx-h100", "nodes": 2})
    model = model_from_table({"preset": "llama-2-70b"})
    job = Job(model=model, data=Data(text="x"), cluster=cluster, train=Train(global_batch=1024, precision="bf16"))
    return explain(heddle.plan(job))


def split_of(plan):
    split = plan.tensor, plan.sequence, plan.pipeline, plan.virtual, plan.data, plan.microbatch
    return *split, plan.schedule, bool(plan.layers)


def test_a_split_whose_layers_choose_is_told_once_and_as_the_table_has_it(by_layer):
    told = [each.simulation for each in by_layer.neighbors if each.simulation is not None]
    splits = [split_of(each.plan) for each in told]
    assert len(set(splits)) == len(splits)
    table = {split_of(each.plan): each.step_seconds for each in by_layer.search.plans}
    assert len(table.keys() & splits) >= 3
    for each, split in zip(told, splits, strict=True):
        assert each.step_seconds == table.get(split, each.step_seconds)
    fastest = by_layer.search.fastest.step_seconds
    assert all(each.step_seconds >= fastest for each in told)


def test_layers_choose_under_other_schedules_too(by_layer):
    other = next(each for each in by_layer.neighbors if each.change.startswith("schedule = "))
    assert other.simulation is not None
    assert other.simulation.plan.layers


def test_a_choice_of_which_nothing_fits_says_the_least_that_it_needs(by_layer):
    """No number but that of the leanest plan: what else could be tried needs more."""
    found = by_layer.search
    told = [each for each in by_layer.neighbors if each.why.startswith("does not fit")]
    assert told
    for each in told:
        name, value = each.change.removesuffix(" in all layers").split(" = ")
        has = RECOMPUTE.index(value) if name == "recompute" else int(value)
        rows = found.space.columns[name] == has
        least = re.search(r"at least ([\d.]+) GiB of 79.6", each.why)
        assert each.simulation is None
        assert found.candidates.among(rows).best() is None
        bound = found.step.memory_at_least[rows].min() / 2**30
        if least is None:  # as far as the bound can tell, something might
            assert bound <= 79.6
        else:
            assert name == "zero" or float(least[1]) == pytest.approx(bound, abs=0.05)


def test_it_ends_in_three_sentences(reasons):
    first, second, third = reasons.in_short
    assert f"{reasons.search.best.breakdown.compute / reasons.search.best.step_seconds:.0%} is compute" in first
    assert reasons.neighbors[0].change in second
    assert reasons.helps[0][0] in third


def test_what_gains_nothing_is_not_said_to_help():
    cluster = cluster_from_table({"preset": "dgx-h100", "nodes": 1})
    model = model_from_table({"preset": "gpt2"})
    job = Job(model=model, data=Data(text="x"), cluster=cluster, train=Train(global_batch=512, precision="bf16"))
    told = explain(heddle.plan(job))
    assert not told.helps
    assert "the largest loss is less than 1%" in told.in_short[0]
    assert told.in_short[2].endswith("would gain nothing.")


@pytest.mark.parametrize("seed", [5003, 5016, 5027])
def test_a_level_of_zero_is_told_as_a_search_for_it_finds_it(seed):
    """With a pipeline, levels 2 and 3 are searched where they are asked for: as a neighbor they are asked for."""
    job = random_job(np.random.default_rng(seed))
    told = explain(heddle.plan(job, by_layer=False)).neighbors
    levels = [each for each in told if each.change.startswith("zero = ") and each.simulation is not None]
    assert levels
    for each in levels:
        level = re.match(r"zero = (\d)", each.change)[1]  # others, as of zero_within, may lead to the same plan
        found = heddle.plan(job, by_layer=False, fixed={"zero": int(level)})
        assert each.simulation.step_seconds == pytest.approx(found.fastest.step_seconds, rel=0.025)


def test_tensor_parallelism_across_nodes_is_named_as_such(reasons):
    best, wide = reasons.search.best, neighbor(reasons, "tensor = 16")
    assert "leaves the node" in wide.why
    each = re.search(r"\+([\d.]+) (ms|s) of tensor-parallel communication", wide.why)
    more = wide.simulation.breakdown.tensor - best.breakdown.tensor  # per step, as everything is
    assert float(each[1]) * {"ms": 1e-3, "s": 1}[each[2]] == pytest.approx(more, rel=0.025)
    assert not any("a microbatch" in each.why or "per microbatch" in each.why for each in reasons.neighbors)


def test_what_would_help_is_ranked_and_true(reasons):
    gains = [gain for _, gain in reasons.helps]
    assert gains == sorted(gains, reverse=True)
    assert all(gain > 0.995 for gain in gains)
    roomy, search = dict(reasons.helps)["twice the memory (160 GiB)"], reasons.search
    larger = replace(search.cluster, device=replace(search.cluster.device, memory_gib=160.0))
    again = heddle.plan(replace(search.job, cluster=larger))
    assert roomy == pytest.approx(search.best.step_seconds / again.best.step_seconds, rel=0.03)


def test_the_three_takeaways_of_the_paper(reasons):
    first, second, third = reasons.takeaways
    assert "tensor 8 stays inside a node of 8" in first
    assert "16 replicas" in second
    assert f"a bubble of {reasons.search.best.bubble:.1%}" in third


def test_the_plan_is_told_in_words_and_numbers(reasons):
    best = reasons.search.best
    assert reasons.plan[0] == in_words(best.plan)
    assert f"{best.step_seconds:.4g} s" in reasons.plan[1]
    assert f"of {best.limit / 2**30:.4g} GiB" in reasons.plan[3]


def test_every_item_of_a_breakdown_has_a_word():
    assert tuple(STEP) == Breakdown._fields


def test_one_device_has_no_neighbors_to_speak_of():
    cluster = cluster_from_table({"preset": "dgx-a100-80gb", "devices": 1})
    model = ModelSpec(layers=3, hidden=512, heads=3 * 4, head_size=64, vocab=1000, sequence=256)
    job = Job(model=model, data=Data(text="x"), cluster=cluster, train=Train(global_batch=5, precision="bf16"))
    reasons = explain(heddle.plan(job))
    assert neighbor(reasons, "tensor = 2").why == "no legal plan on 1 devices has it"
    assert not reasons.takeaways
    assert reasons.to_json()["neighbors"]


def test_seconds_and_plans_in_words():
    assert [signed_seconds(value) for value in (1.5, -0.0123, 2e-5)] == ["+1.5 s", "-12.3 ms", "+20 µs"]
    plan = Plan(pipeline=2, virtual=2, schedule="interleaved", recompute=("full", "none", "none", "none"))
    assert in_words(plan) == (
        "tensor 1 × pipeline 2 × data 1, interleaved with 2 chunks per rank, microbatch 1, "
        "recompute none in 3 layers and full in 1 layer"
    )


def test_headlines_name_what_leaves_the_device_and_what_comes_late():
    plan = Plan(data=2, zero=1, offload=("optimizer:host",), microbatch=4)
    assert "offload optimizer:host" in in_words(plan)
    late = Plan(pipeline=2, update="ouroboros", microbatch=4)
    assert in_words(late).endswith("late updates (ouroboros)")
    apart = Plan(data=2, local_steps=10, compress_gradients="int8", microbatch=4)
    assert in_words(apart).endswith("replicas meet every 10 steps, gradients in int8")
    assert beyond_the_split(Plan()) == []


def test_long_samples_that_no_devices_share_are_explained():
    cluster = cluster_from_table({"preset": "dgx-h100"})
    model = ModelSpec(layers=4, hidden=512, heads=4, vocab=1000, sequence=16_384)
    job = Job(model=model, data=Data(text="x"), cluster=cluster, train=Train(global_batch=64, precision="bf16"))
    found = heddle.plan(job)
    assert found.best.plan.context == 1
    assert explain(found).neighbors
