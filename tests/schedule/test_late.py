"""Orders of work without a flush: no deadlock, the utilization that papers claim, weights that are never too new."""

import dataclasses

import pytest

from heddle.errors import HeddleError
from heddle.schedule import Kind, build, verify
from heddle.schedule.late import UPDATES, LateSchedule, Update, update_rule
from heddle.simulating.replay import step_time
from heddle.spec import ModelSpec, Plan

SIZES = [(2, 1), (2, 4), (3, 2), (5, 1), (5, 8), (8, 3)]


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize(("pipeline", "microbatches"), SIZES)
def test_many_steps_are_a_schedule(name, pipeline, microbatches):
    late = LateSchedule(UPDATES[name], pipeline, microbatches)
    schedule = late.unrolled(7)
    verified = verify(schedule)
    assert verified.actions == 2 * 7 * microbatches * late.chunks
    assert sum(verified.peak_stash) <= sum(lead + 1 for lead in late.leads) + 1


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize(("pipeline", "microbatches"), SIZES)
def test_no_forward_needs_an_update_that_has_not_come(name, pipeline, microbatches):
    """And every step's gradients are applied once in each chunk, in their order."""
    late = LateSchedule(UPDATES[name], pipeline, microbatches)
    steps = 9
    for rank in range(pipeline):
        order = [each for number in range(steps) for each in late.step(rank, number)]
        order += late.drain(rank, steps)
        applied = dict.fromkeys(late.chunks_of(rank), 0)
        back = dict.fromkeys(late.chunks_of(rank), 0)
        for each in order:
            if isinstance(each, Update):
                for chunk in each.chunks:
                    behind = late.delays[chunk] if len(each.chunks) > 1 else 0
                    if each.step - behind >= 0:
                        assert each.step - behind == applied[chunk]
                        applied[chunk] += 1
                        assert back[chunk] == applied[chunk] * microbatches
            elif each.kind is Kind.FORWARD:
                assert applied[each.chunk] >= each.microbatch // microbatches - late.delays[each.chunk]
            else:
                back[each.chunk] += 1
        assert set(applied.values()) == {steps}


def utilization(late: LateSchedule, latency: float) -> float:
    """Of a steady state, where a forward takes 1 and a backward 2."""
    once, twice = (step_time(late.unrolled(steps), 1.0, 2.0, latency) for steps in (30, 60))
    work = 3 * late.microbatches * late.chunks / late.pipeline
    return 30 * work / (twice - once)


def test_utilization_is_that_of_the_event_simulation():
    """Five stages, without latency and with one of a forward's length per hop."""
    one_f_one_b = dataclasses.replace(UPDATES["2bw"], lead=lambda k, chunks, count: min(chunks - 1 - k, count))
    for rule, microbatches in ((UPDATES["pipedream"], 1), (one_f_one_b, 5), (one_f_one_b, 20)):
        late = LateSchedule(rule, 5, microbatches)
        assert [utilization(late, latency) for latency in (0.0, 1.0)] == pytest.approx((1.0, 0.65), abs=0.005)
    for microbatches, expected in ((5, (0.56, 0.37)), (20, (0.83, 0.55))):  # with a flush
        flushed = [3 * microbatches / step_time(build("1f1b", 5, microbatches), 1.0, 2.0, each) for each in (0.0, 1.0)]
        assert flushed == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize("latency", [0.0, 0.3, 1.0])
def test_2bw_does_not_wait_for_messages(latency):
    """It has twice 1F1B's microbatches in flight; the delay allows for it where a step has as many."""
    assert utilization(LateSchedule(UPDATES["2bw"], 5, 20), latency) == pytest.approx(1.0, abs=0.005)


def test_ouroboros_has_one_module_more_than_devices():
    late = LateSchedule(UPDATES["ouroboros"], 2, 1)
    assert late.chunks_of(0) == (0, 2)
    assert late.delays == (2, 1, 0)
    # three modules on two devices: the one that has two is always at work, the other half of the time
    assert utilization(late, 0.0) == pytest.approx(0.75)


def test_what_cannot_be_is_refused():
    wrong = {
        "Unknown update method 'ourobouros'": lambda: update_rule("ourobouros"),
        "needs a pipeline": lambda: Plan(update="2bw"),
        "cannot be combined with virtual = 2": lambda: Plan(
            update="2bw", pipeline=2, virtual=2, schedule="interleaved"
        ),
        "'ouroboros' cannot be combined with virtual = 2": lambda: Plan(update="ouroboros", pipeline=2, virtual=2),
        "3 layers cannot fill pipeline \\+ 1 = 4 chunks.*\n.*\n.*pipeline = 2, or": lambda: Plan(
            update="ouroboros", pipeline=3
        ).check(ModelSpec(layers=3, hidden=16, heads=2, vocab=64, sequence=8), 4, 8),
        "It needs pipeline \\+ 1 = 3 entries": lambda: Plan(update="ouroboros", pipeline=2, stages=(2, 2)).check(
            ModelSpec(layers=4, hidden=16, heads=2, vocab=64, sequence=8), 4, 8
        ),
        "cannot be combined with schedule = 'gpipe'": lambda: Plan(update="pipedream", pipeline=2, schedule="gpipe"),
        "cannot be combined with zero = 3": lambda: Plan(update="pipedream", pipeline=2, data=2, zero=3),
        "with a tied output layer": lambda: Plan(update="2bw", pipeline=2).check(
            ModelSpec(layers=2, hidden=16, heads=2, vocab=64, sequence=8, tied=True), 4, 8
        ),
    }
    for words, attempt in wrong.items():
        with pytest.raises(HeddleError, match=words):
            attempt()
