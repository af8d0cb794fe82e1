"""What is computed once for plans that share a few fields is what each plan would have by itself."""

from dataclasses import fields, replace

import numpy as np
import pytest

from heddle.cost.model_columns import model_columns
from heddle.cost.work import Work
from heddle.schedule import NAMES
from heddle.simulating.closed_form import closed_form, recomputing_least
from heddle.simulating.distinct import by_group, distinct, once
from heddle.spec.shorthand import cluster_from_table, model_from_table

A100 = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 64})


def plans(count: int, **more) -> Work:
    draw = np.random.default_rng(5)
    tensor, pipeline = 2 ** draw.integers(0, 4, count), 2 ** draw.integers(0, 5, count)
    folded = [NAMES.index(name) for name in ("zb-v", "dualpipev")]
    schedule = np.where(pipeline > 1, draw.integers(0, len(NAMES), count), 0)
    twice = np.isin(schedule, folded) | ((schedule == NAMES.index("interleaved")) & (draw.random(count) < 0.7))
    columns = {
        "tensor": tensor,
        "pipeline": pipeline,
        "data": 2 ** draw.integers(0, 4, count),
        "virtual": np.where(twice, 2, 1),
        "microbatch": 2 ** draw.integers(0, 3, count),
        "sequence_parallel": draw.integers(0, 2, count) * (tensor > 1),
        "zero": draw.integers(0, 4, count),
        "shard_ranks": 2 ** draw.integers(1, 3, count),
        "schedule": schedule,
        "full": draw.choice([0.0, 0.25, 1.0], count),
    }
    columns["selective"] = (columns["full"] == 0) * draw.integers(0, 2, count)
    model = model_columns(model_from_table({"preset": "gpt3-175b"}))
    return Work(batch=1536, **{"precision": "bf16", **model, **columns, **more})


def test_distinct_rows_are_those_that_sorting_finds():
    draw = np.random.default_rng(0)
    columns = [draw.integers(0, most, 5000) for most in (3, 50, 7)]
    rows, which = distinct(columns)
    table = np.stack(columns)
    assert len(rows) == np.unique(table, axis=1).shape[1]
    assert np.array_equal(table[:, rows][:, which], table)
    ordered, first, place = np.unique(table, axis=1, return_index=True, return_inverse=True)
    assert np.array_equal(rows, first)
    assert np.array_equal(which, place.ravel())
    groups = by_group(which)
    assert len(groups) == ordered.shape[1]
    assert all(np.array_equal(group, np.flatnonzero(which == at)) for at, group in enumerate(groups))


@pytest.mark.parametrize("more", [{}, {"precision": "fp32"}, {"gloo": 1, "tied": 1}, {"regather": 1, "per_op": 0.0}])
def test_plans_cost_what_they_cost_if_nothing_is_shared(more):
    work = plans(3000, **more)
    apart = replace(work, batch=np.full(3000, work.batch))  # a column of its own: every plan is priced by itself
    assert once(apart, (work.tensor,), lambda some: some.tensor).which is None
    together, alone = closed_form(work, A100), closed_form(apart, A100)
    for column, other in zip(together.columns, alone.columns, strict=True):
        np.testing.assert_allclose(column, other, rtol=1e-12, atol=1e-9)
    assert np.array_equal(together.fits, alone.fits)
    for column, other in zip(recomputing_least(work, A100), recomputing_least(apart, A100), strict=True):
        assert np.array_equal(column, other)


def test_plans_in_floats_cost_the_same_and_fractions_share_nothing():
    work = plans(500)
    assert np.array_equal(closed_form(work.as_floats(), A100).seconds, closed_form(work, A100).seconds)
    assert once(work, (0.75 * work.microbatch,), lambda some: some.tensor).which is None


def test_groups_without_bound_share_prices_as_groups_of_all_replicas():
    work = plans(500)
    bounded = replace(work, shard_ranks=work.replicas)
    unbounded = replace(work, shard_ranks=np.full(500, np.inf))  # as in rows of measured runs
    assert np.array_equal(closed_form(unbounded, A100).seconds, closed_form(bounded, A100).seconds)


def test_a_column_that_no_key_knows_is_never_shared():
    plan = {"tensor", "sequence_parallel", "pipeline", "virtual", "data", "zero", "microbatch", "schedule", "full"}
    plan |= {"shard_ranks", "whole_experts", "elementwise", "selective", "per_op", "scatter", "regather"}
    plan |= {"context", "context_exchange", "context_inner", "expert"}
    work = plans(10)
    for field in fields(Work):
        if field.name not in plan | {"shapes", "shape_of", "precision"}:
            apart = replace(work, **{field.name: np.full(10, getattr(work, field.name))})
            assert once(apart, (work.tensor,), lambda some: some.tensor).which is None, field.name
