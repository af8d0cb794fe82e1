"""Which experts tokens went to: compared token by token, whoever held them, and near ties told from faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from heddle.spec import Data, Job, Plan, Train
from heddle.training.prove.compare import Comparison, GradientDifference, likely_cause
from heddle.training.prove.prove import observe_serial
from heddle.training.prove.routes import LayerRoutes, RouteComparison, compare_routes
from heddle.training.prove.shrink import shrink
from tests.helpers.small_models import experts


def routes(chosen, margins=None, tokens=None) -> LayerRoutes:
    chosen = np.array(chosen)
    count = len(chosen)
    tokens = np.arange(count) if tokens is None else np.array(tokens)
    return LayerRoutes(tokens, chosen, np.full(count, 0.5) if margins is None else np.array(margins))


SERIAL = {3: routes([[0, 1], [0, 2], [1, 2]], [0.3, 1e-7, 0.2])}


def test_tokens_are_told_apart_by_their_numbers():
    """Each rank has some of them, in another order, and some are held twice."""
    parallel = {3: routes([[1, 2], [0, 1], [0, 2], [0, 2]], tokens=[2, 0, 1, 1])}
    found = compare_routes(parallel, SERIAL)
    assert found == RouteComparison(choices=3, smallest=1e-7, flips=(), uneven=1.0)
    assert "the same experts" in found.words


def test_a_token_that_went_elsewhere_is_reported_with_its_margin():
    found = compare_routes({3: routes([[0, 1], [1, 2], [1, 2]])}, SERIAL)
    assert found.flips == (1e-7,)
    assert "other experts for 1" in found.words
    assert compare_routes({}, {}) is None


@pytest.mark.parametrize(("margin", "near"), [(1e-7, True), (0.2, False)])
def test_only_a_margin_above_rounding_is_a_fault(margin, near):
    wrong = {"layers.0.mlp.experts.up": GradientDifference(0.5, 1.0, 0.5)}
    found = RouteComparison(3, margin, (margin,), 1.0)
    comparison = Comparison([0.1], 0.1, wrong, rounding=1e-6, routes=found)
    assert comparison.near_tie == near
    cause = likely_cause(comparison, Plan(data=2, expert=2), experts())
    assert ("as probable but for rounding" in cause) == near
    assert not replace(comparison, routes=None).near_tie


def test_one_device_shows_where_its_tokens_went():
    model = experts(layers=3, dense_layers="1")
    train = Train(steps=1, global_batch=4)
    job = Job(model=model, data=Data(text="-"), train=train)
    whole, parts = observe_serial(job).routes, observe_serial(job, microbatch=1).routes
    assert set(whole) == {0, 2}
    assert all(np.array_equal(np.sort(each.tokens), np.arange(4 * model.sequence)) for each in parts.values())
    found = compare_routes(parts, whole)
    assert found.choices == 2 * 4 * model.sequence
    assert not found.flips
    assert found.uneven > 1.2  # routing is uneven here, as it is in earnest


@pytest.mark.parametrize(
    ("plan", "small"),
    [
        (Plan(data=64, expert=8), (4, 2)),
        (Plan(data=64, expert=64), (2, 2)),
        (Plan(data=32, context=4, expert=16), (4, 8)),
        (Plan(data=8, expert=4), (8, 4)),
    ],
)
def test_a_shrunken_plan_still_shares_experts(plan, small):
    """And some ranks still hold the same ones, if they did."""
    model = experts(experts=64, sequence=64)
    job = Job(model=model, data=Data(text="-"), train=Train(global_batch=64), plan=plan)
    shrunk = shrink(job).job
    assert (shrunk.plan.data, shrunk.plan.expert) == small
    assert (shrunk.plan.expert_replicas > 1) == (plan.expert_replicas > 1)
    assert all(shape.experts % shrunk.plan.expert == 0 for shape in shrunk.model.shapes)
    shrunk.plan.check(shrunk.model, shrunk.train.global_batch, shrunk.sequence)
