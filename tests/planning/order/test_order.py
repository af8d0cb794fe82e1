"""The searched order: legal, within its limits, never worse than a named one, close to what none can beat."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.planning.order.search import search_order
from heddle.planning.order.stages import Stages
from heddle.schedule import RULES, ChunkPlacement, build, verify

costs = st.floats(0.5, 3.0)


@st.composite
def cases(draw):
    pipeline, virtual = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2]))
    placement = ChunkPlacement.V if virtual == 2 else ChunkPlacement.LOOP
    chunks, microbatches = pipeline * virtual, draw(st.integers(1, 8))
    lists = [draw(st.lists(costs, min_size=chunks, max_size=chunks)) for _ in range(3)]
    limits = draw(st.one_of(st.just(()), st.integers(virtual + 1, 12).map(lambda most: (float(most),) * pipeline)))
    return Stages(pipeline, microbatches, *lists, draw(st.floats(0, 0.5)), limits=limits, placement=placement)  # type: ignore[call-arg]


@given(cases())
@settings(deadline=None, max_examples=40)
def test_an_order_is_legal_within_limits_and_no_worse_than_a_named_one(stages):
    found = search_order(stages, seconds=0.05)
    verify(found.schedule)
    assert stages.fits(found.schedule)
    assert found.seconds == pytest.approx(stages.time(found.schedule))
    assert found.seconds >= found.bound * (1 - 1e-9)
    for rule in RULES.values():
        legal = rule.placement is stages.placement and rule.least_virtual <= stages.virtual
        legal = legal and stages.virtual <= (rule.most_virtual or stages.virtual)
        if legal and stages.microbatches >= rule.least_microbatches(stages.pipeline):
            named = build(rule.name, stages.pipeline, stages.microbatches, stages.virtual)
            if stages.fits(named):
                assert found.seconds <= stages.time(named) * (1 + 1e-9)


@pytest.mark.parametrize(("pipeline", "microbatches"), [(8, 24), (16, 48)])
def test_with_enough_memory_it_is_close_to_the_bound(pipeline, microbatches):
    """Halves as long as a forward, messages a tenth of it: within 2 % of what no order beats."""
    ones = [1.0] * pipeline
    stages = Stages(pipeline, microbatches, ones, ones, ones, 0.1, limits=[3.0 * pipeline] * pipeline)
    found = search_order(stages, seconds=0.5)
    assert found.gap < 0.02, (found.begins_with, found.seconds, found.bound)


def test_a_slow_stage_and_a_limit_of_each_rank():
    stages = Stages(4, 12, [1, 1, 2, 1], [1, 1, 2, 1], [1, 1, 2, 1], 0.2, limits=(6, 6, 4, 6))
    found = search_order(stages, seconds=0.5)
    assert stages.peak(found.schedule.ranks[2]) <= 4
    assert found.gap < 0.05


def test_what_cannot_be_ordered():
    with pytest.raises(HeddleError, match="3 chunks cannot be divided"):
        Stages(2, 4, [1.0] * 3, [1.0] * 3, [1.0] * 3)
    with pytest.raises(HeddleError, match="differ in length"):
        Stages(2, 4, [1.0] * 2, [1.0] * 3, [1.0] * 2)
    with pytest.raises(HeddleError, match=r"Rank 1 may hold 0.5, but one microbatch needs 1"):
        Stages(2, 4, [1.0] * 2, [1.0] * 2, [1.0] * 2, limits=(1.0, 0.5))
