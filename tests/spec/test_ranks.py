"""The rule between ranks and coordinates, against the layout that Megatron-LM documents."""

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from heddle.spec.axes import AXES, WRITTEN, Coordinates
from heddle.spec.plan import Plan
from heddle.spec.ranks import (
    coordinates,
    degrees,
    groups,
    places,
    rank_of,
    ranks_per_stage,
    stage_of,
    world_in_words,
)

plans = st.builds(Plan, **{axis: st.integers(1, 5) for axis in AXES})


def test_an_axis_is_known_everywhere():
    assert sorted(AXES) == sorted(WRITTEN) == sorted(Coordinates._fields)
    assert world_in_words(Plan(tensor=2, pipeline=3, data=4)) == "tensor × pipeline × data = 2 × 3 × 4 = 24"


@given(plans)
def test_every_rank_stands_in_one_place(plan):
    assert prod(degrees(plan)) == plan.world
    assert [rank_of(plan, place) for place in places(plan)] == list(range(plan.world))
    assert [coordinates(plan, rank) for rank in range(plan.world)] == list(places(plan))
    assert sum(stage_of(plan, rank) == 0 for rank in range(plan.world)) == ranks_per_stage(plan)


@given(plans)
def test_the_groups_of_an_axis_hold_every_rank_once(plan):
    for axis in AXES:
        found = groups(plan, axis)
        assert sorted(rank for group in found for rank in group) == list(range(plan.world))
        for group in found:
            assert [getattr(coordinates(plan, rank), axis) for rank in group] == list(range(getattr(plan, axis)))


def test_the_groups_are_those_of_megatron():
    # Megatron-LM's example for 16 GPUs, tensor 2, pipeline 4 (parallel_state.initialize_model_parallel)
    plan = Plan(tensor=2, data=2, pipeline=4)
    assert groups(plan, "tensor") == [[2 * i, 2 * i + 1] for i in range(8)]
    assert groups(plan, "data") == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert groups(plan, "pipeline") == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    assert str(Coordinates(1, 0, 0, 3)) == "data 0, pipeline 3, tensor 1"


def test_an_axis_that_most_plans_do_without_is_named_where_it_is_used():
    # Megatron-LM's order, tp-cp-ep-dp-pp
    plan = Plan(tensor=2, context=2, data=2)
    assert groups(plan, "context") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups(plan, "context", "data") == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert world_in_words(plan) == "tensor × pipeline × context × data = 2 × 1 × 2 × 2 = 8"
    assert str(coordinates(plan, 3)) == "context 1, data 0, pipeline 0, tensor 1"
