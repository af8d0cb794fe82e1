"""A broken schedule is refused with the reason; a good one is not."""

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heddle.schedule import (
    NAMES,
    Action,
    ChunkPlacement,
    Kind,
    Schedule,
    ScheduleError,
    build,
    producer,
    rule_of,
    verify,
)
from tests.helpers.clock import growth

F, B = Kind.FORWARD, Kind.BACKWARD


def with_rank(schedule: Schedule, rank: int, order) -> Schedule:
    ranks = list(schedule.ranks)
    ranks[rank] = tuple(order)
    return replace(schedule, ranks=tuple(ranks))


def runs(schedule: Schedule) -> bool:
    """Independent of verify: repeat over all ranks, doing whatever can be done, until nothing can."""
    done: set[Action] = set()
    position = [0] * schedule.pipeline
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(schedule.ranks):
            if position[rank] == len(order):
                continue
            action = order[position[rank]]
            before = {producer(schedule, action)} - {None}
            if action.kind.after is not None:
                before.add(Action(Kind(action.kind.after), action.chunk, action.microbatch))  # type: ignore[call-arg]
            if before <= done:
                done.add(action)
                position[rank] += 1
                moved = True
    return all(position[rank] == len(order) for rank, order in enumerate(schedule.ranks))


@st.composite
def schedules(draw):
    name = draw(st.sampled_from(NAMES))
    rule = rule_of(name)
    virtual = draw(st.integers(rule.least_virtual, rule.most_virtual or 3))
    pipeline = draw(st.integers(1, 5))
    least = rule.least_microbatches(pipeline)
    return build(name, pipeline, draw(st.integers(least, least + 6)), virtual)


@given(schedules(), st.data())
def test_a_dropped_action_is_missed(schedule, data):
    rank = data.draw(st.integers(0, schedule.pipeline - 1))
    order = list(schedule.ranks[rank])
    dropped = order.pop(data.draw(st.integers(0, len(order) - 1)))
    with pytest.raises(ScheduleError, match=r"is missing|precedes its"):
        verify(with_rank(schedule, rank, order))
    if schedule.pipeline > 1 and dropped.kind.gradients and schedule.placement is ChunkPlacement.LOOP:
        with pytest.raises(ScheduleError, match=f"rank {rank}: {dropped} is missing"):
            verify(with_rank(schedule, rank, order))


@given(schedules(), st.data())
def test_a_repeated_action_is_seen(schedule, data):
    rank = data.draw(st.integers(0, schedule.pipeline - 1))
    order = list(schedule.ranks[rank])
    action = data.draw(st.sampled_from(order))
    order.append(action)
    with pytest.raises(ScheduleError, match=f"{action} is there twice"):
        verify(with_rank(schedule, rank, order))


@given(schedules(), st.data())
def test_an_action_on_another_rank_is_seen(schedule, data):
    assume(schedule.pipeline > 1)
    home, away = data.draw(st.permutations(range(schedule.pipeline)))[:2]
    action = data.draw(st.sampled_from(schedule.ranks[home]))
    moved = with_rank(schedule, home, [other for other in schedule.ranks[home] if other != action])
    moved = with_rank(moved, away, [*schedule.ranks[away], action])
    with pytest.raises(ScheduleError, match=r"is missing|wrong rank|precedes its"):
        verify(moved)
    with pytest.raises(ScheduleError, match=f"rank {away}: {action} is on the wrong rank.*\n.*rank {home}"):
        verify(with_rank(schedule, away, [*schedule.ranks[away], action]))


@given(schedules(), st.data())
def test_two_swapped_actions_are_refused_exactly_when_they_break_something(schedule, data):
    rank = data.draw(st.integers(0, schedule.pipeline - 1))
    order = list(schedule.ranks[rank])
    i, j = data.draw(st.integers(0, len(order) - 1)), data.draw(st.integers(0, len(order) - 1))
    order[i], order[j] = order[j], order[i]
    swapped = with_rank(schedule, rank, order)
    if runs(swapped):
        assert verify(swapped).actions == 2 * schedule.chunks * schedule.microbatches + len(schedule.split)
    else:
        with pytest.raises(ScheduleError):
            verify(swapped)


def test_a_backward_before_its_forward():
    broken = with_rank(build("1f1b", 2, 1), 1, [Action(B, 1, 0), Action(F, 1, 0)])
    with pytest.raises(ScheduleError, match="rank 1: backward of microbatch 0 in chunk 1 precedes its forward"):
        verify(broken)


def test_one_rank_must_hand_over_in_order():
    order = [Action(F, 1, 0), Action(F, 0, 0), Action(B, 1, 0), Action(B, 0, 0)]
    with pytest.raises(ScheduleError, match=r"chunk 1 precedes its input.*\n.*forward of microbatch 0 in chunk 0"):
        verify(Schedule("mine", 1, 2, 1, (tuple(order),)))


def test_an_action_that_does_not_exist():
    with pytest.raises(ScheduleError, match="microbatch 4 in chunk 0 does not exist"):
        verify(with_rank(build("1f1b", 1, 1), 0, [Action(F, 0, 4)]))


def test_an_order_for_each_rank():
    with pytest.raises(ScheduleError, match="1 ranks"):
        verify(replace(build("1f1b", 2, 1), ranks=build("1f1b", 1, 1).ranks))


def test_a_deadlock_names_the_ranks_and_what_each_waits_for():
    # Rank 0 wants microbatch 0 back before it starts microbatch 1; rank 1 wants microbatch 1 first.
    first = (Action(F, 0, 0), Action(B, 0, 0), Action(F, 0, 1), Action(B, 0, 1))
    second = (Action(F, 1, 1), Action(B, 1, 1), Action(F, 1, 0), Action(B, 1, 0))
    with pytest.raises(ScheduleError) as caught:
        verify(Schedule("mine", 2, 1, 2, (first, second)))
    assert caught.value.what == "Schedule 'mine' deadlocks: 2 of 2 ranks wait forever."
    assert caught.value.why == (
        "rank 0 (before its action 1, backward of microbatch 0 in chunk 0) "
        "waits for the gradient of microbatch 0 from chunk 1 on rank 1; "
        "rank 1 (before its action 0, forward of microbatch 1 in chunk 1) "
        "waits for the activation of microbatch 1 from chunk 0 on rank 0."
    )


def test_a_deadlock_of_many_ranks_is_told_briefly():
    good = build("1f1b", 12, 2)
    broken = with_rank(good, 0, [Action(F, 0, 0), Action(B, 0, 0), Action(F, 0, 1), Action(B, 0, 1)])
    broken = with_rank(broken, 11, [Action(F, 11, 1), Action(F, 11, 0), Action(B, 11, 0), Action(B, 11, 1)])
    with pytest.raises(ScheduleError, match=r"12 of 12 ranks wait forever.*\n.*and 4 more ranks wait"):
        verify(broken)


def test_a_schedule_is_verified_in_the_time_of_its_length():
    small, large = build("1f1b", 16, 128), build("1f1b", 64, 512)
    assert verify(large).peak_stash == tuple(64 - rank for rank in range(64))
    assert growth(lambda: verify(small), lambda: verify(large)) < 40  # it has 16 times as many actions


def test_a_large_schedule_takes_bytes_and_not_objects_for_each_action():
    """4,000,000 actions took 35 seconds and 700 MB to verify; now each takes a few bytes."""
    schedule = build("1f1b", 100, 400)
    tracemalloc.start()
    try:
        assert verify(schedule).messages == 2 * 99 * 400
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 2 * 100 * 400
