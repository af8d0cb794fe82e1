"""The replay against closed forms, and against times worked out by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.schedule import NAMES, RULES, Action, Kind, Schedule, ScheduleError, build, rule_of
from heddle.schedule.actions import WHOLE
from heddle.schedule.rules.one_f_one_b import alternate
from heddle.simulating.replay import clocked, replay, step_time
from tests.helpers.clock import growth

costs = st.integers(1, 9)


@given(st.sampled_from(["gpipe", "1f1b"]), st.integers(1, 9), st.integers(1, 20), costs, costs)
def test_bubble_is_p_minus_1_over_m(name, pipeline, microbatches, forward, backward):
    trace = replay(build(name, pipeline, microbatches), forward, backward)
    assert trace.bubble == (pipeline - 1) / microbatches  # PTD-P §2.2.1, exactly: the costs are whole numbers
    assert trace.duration == (microbatches + pipeline - 1) * (forward + backward)


@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 4), costs, costs)
def test_interleaved_bubble_is_v_times_smaller(pipeline, rounds, virtual, forward, backward):
    microbatches = rounds * pipeline
    trace = replay(build("interleaved", pipeline, microbatches, virtual), forward, backward)
    assert trace.bubble == (pipeline - 1) / (virtual * microbatches)  # PTD-P §2.2.2


@given(st.sampled_from(NAMES), st.integers(1, 9), st.integers(1, 30), st.integers(1, 4), costs, costs)
def test_the_formula_holds_for_every_number_of_microbatches(name, pipeline, microbatches, virtual, fwd, bwd):
    rule = rule_of(name)
    virtual = max(rule.least_virtual, min(virtual, rule.most_virtual or virtual))
    microbatches = max(microbatches, rule.least_microbatches(pipeline))
    bwd = 2 * fwd if rule.splits else bwd  # whose formulas are of halves as long as a forward
    trace = replay(build(name, pipeline, microbatches, virtual), fwd, bwd)
    assert trace.bubble == pytest.approx(rule.bubble(pipeline, microbatches, virtual), rel=1e-12)


@given(st.integers(1, 6), st.integers(1, 12), st.integers(1, 3), st.data())
def test_step_time_is_the_duration_of_the_replay(pipeline, microbatches, virtual, data):
    chunks = pipeline * virtual
    each = st.lists(costs, min_size=chunks, max_size=chunks)
    forward, backward = data.draw(each), data.draw(each)
    transfer = data.draw(st.lists(costs, min_size=chunks - 1, max_size=chunks - 1))
    schedule = build("interleaved", pipeline, microbatches, virtual)
    trace = replay(schedule, forward, backward, transfer)
    assert step_time(schedule, forward, backward, transfer) == trace.duration
    for rank, order in enumerate(schedule.ranks):
        spans = [span for span in trace.spans if span.rank == rank]
        assert [(span.name, span.chunk, span.microbatch) for span in spans] == list(order)
        assert all(a.end <= b.start for a, b in pairwise(spans))


def test_by_hand_with_unequal_chunks_and_messages():
    # Two ranks, two microbatches. Forward 1 and 3, backward 2 and 4, a message takes 10.
    trace = replay(build("gpipe", 2, 2), forward=[1, 3], backward=[2, 4], transfer=10)
    times = [(span.rank, span.name[0], span.microbatch, span.start, span.end) for span in trace.spans]
    assert times == [
        (0, "f", 0, 0, 1),
        (0, "f", 1, 1, 2),
        (0, "b", 0, 31, 33),
        (0, "b", 1, 35, 37),
        (1, "f", 0, 11, 14),
        (1, "f", 1, 14, 17),
        (1, "b", 0, 17, 21),
        (1, "b", 1, 21, 25),
    ]


def test_each_pair_of_chunks_has_its_own_transfer():
    # One microbatch down and up three ranks; every action takes 1.
    trace = replay(build("1f1b", 3, 1), forward=1, backward=1, transfer=[10, 100])
    starts = {(span.name, span.rank): span.start for span in trace.spans}
    assert [starts["forward", rank] for rank in (0, 1, 2)] == [0, 11, 112]
    assert [starts["backward", rank] for rank in (2, 1, 0)] == [113, 214, 225]


def test_chunks_of_one_rank_exchange_no_messages():
    assert step_time(build("interleaved", 1, 4, 2), forward=1, backward=2, transfer=100) == 4 * 2 * 3


def test_the_longer_warmup_of_interleaved_hides_messages():
    schedule = build("interleaved", 8, 32, 2)
    shorter = tuple(
        alternate(
            [action for action in order if action.kind is Kind.FORWARD],
            [action for action in order if action.kind is Kind.BACKWARD],
            warmup=8 + (8 - rank - 1),
        )
        for rank, order in enumerate(schedule.ranks)
    )
    short = Schedule("short", 8, 2, 32, shorter)
    assert step_time(short) == step_time(schedule) == 213
    assert (step_time(schedule, 1, 2, 0.5), step_time(short, 1, 2, 0.5)) == (228, 276)


def test_a_deadlock_is_explained():
    first = (Action(Kind.FORWARD, 0, 0), Action(Kind.BACKWARD, 0, 0))
    second = (Action(Kind.BACKWARD, 1, 0), Action(Kind.FORWARD, 1, 0))
    late = (Action(Kind.FORWARD, 0, 0), Action(Kind.BACKWARD, 0, 0), *(Action(k, 0, 1) for k in WHOLE))
    early = (*(Action(k, 1, 1) for k in WHOLE), *(Action(k, 1, 0) for k in WHOLE))
    with pytest.raises(ScheduleError, match=r"rank 0 .* waits for the gradient of microbatch 0"):
        replay(Schedule("mine", 2, 1, 2, (late, early)))
    assert replay(Schedule("mine", 2, 1, 1, (first, second))).ranks == 2  # order within a rank is verify's business


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"forward": [1.0, 2.0, 3.0]}, "3 forward costs.*\n.*needs 2, one for each chunk"),
        ({"transfer": [1.0, 2.0]}, "2 transfer costs.*\n.*pair of neighboring chunks"),
        ({"backward": -1.0}, "Backward costs must be 0 or more, got -1.0"),
        ({"backward": [1.0, float("nan")]}, "Backward costs must be"),
    ],
)
def test_costs_that_do_not_fit(arguments, message):
    with pytest.raises(HeddleError, match=message):
        replay(build("1f1b", 2, 4), **arguments)


def test_a_schedule_is_replayed_in_the_time_of_its_length():
    small, large = build("1f1b", 16, 128), build("1f1b", 64, 512)
    assert step_time(large) == (512 + 63) * 3
    assert growth(lambda: step_time(small), lambda: step_time(large)) < 40  # it has 16 times as many actions


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-v"])
def test_bubbles_without_spans_are_those_of_the_trace(name):
    schedule = build(name, 4, 12, RULES[name].usual_virtual)
    trace, run = replay(schedule, 1.0, 2.0), clocked(schedule, 1.0, 2.0)
    steady = trace.period * (1 + trace.bubble) / trace.duration - 1
    assert run.bubbles() == pytest.approx((trace.bubble, steady), rel=1e-12, abs=1e-12)
    assert run.trace([0, 3]).spans == [span for span in trace.spans if span.rank in (0, 3)]
