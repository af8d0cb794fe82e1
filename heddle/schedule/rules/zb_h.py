"""ZB-H1 and ZB-H2: 1F1B with its backwards in two, and weight gradients made where a rank would wait.

Qi et al. 2023, "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241 §2, Figures 2 and 3). The half of a backward that
the rank before waits for comes at once; the half that makes weight gradients comes later, and fills what was a bubble.
"""

from __future__ import annotations

from heddle.schedule.actions import Action, Kind, Schedule
from heddle.schedule.rule import Column, Rule
from heddle.schedule.rules.one_f_one_b import in_flight as in_flight_of_1f1b
from heddle.schedule.rules.one_f_one_b import one_f_one_b


def zb_h1(pipeline: int, microbatches: int, virtual: int = 1) -> Schedule:
    """The memory of 1F1B's first rank on every rank, and a third of its bubble.

    A rank starts as many forwards as in 1F1B. It puts the weights' part of as many backwards off as there are ranks
    before it: so all of them hold the same, and the last ranks have work for the end, when 1F1B's would wait.
    """
    assert virtual == 1
    if pipeline == 1:  # there is nothing to fill
        return Schedule("zb-h1", 1, 1, microbatches, one_f_one_b(1, microbatches).ranks)
    ranks = (_order(rank, microbatches, pipeline - rank - 1, rank, forward_first=True) for rank in range(pipeline))
    return Schedule("zb-h1", pipeline, 1, microbatches, tuple(ranks))


def zb_h2(pipeline: int, microbatches: int, virtual: int = 1) -> Schedule:
    """No bubble at all but that the last rank starts late, for twice the memory of 1F1B's first rank on every rank.

    A rank starts twice as many forwards, so that it has work until the first microbatch is back. And no rank waits at
    the end: where steps follow each other without a barrier, the late start is that of every step, and costs nothing.
    """
    assert virtual == 1
    if pipeline == 1:
        return Schedule("zb-h2", 1, 1, microbatches, one_f_one_b(1, microbatches).ranks)
    ranks = (
        _order(rank, microbatches, 2 * (pipeline - rank) - 1, 2 * rank, forward_first=False) for rank in range(pipeline)
    )
    return Schedule("zb-h2", pipeline, 1, microbatches, tuple(ranks))


def _order(rank: int, microbatches: int, warmup: int, lag: int, forward_first: bool) -> tuple[Action, ...]:
    """Warm-up of forwards; pairs of a forward and a backward's first half, its second half `lag` backwards later."""
    order = [Action(Kind.FORWARD, rank, i) for i in range(min(warmup, microbatches))]
    for i in range(microbatches):
        forward = [Action(Kind.FORWARD, rank, i + warmup)] * (i + warmup < microbatches)
        weights = [Action(Kind.BACKWARD_WEIGHT, rank, i - lag)] * (i >= lag)
        order += forward if forward_first else ()
        order += (Action(Kind.BACKWARD_INPUT, rank, i), *weights)
        order += () if forward_first else forward
    order += (Action(Kind.BACKWARD_WEIGHT, rank, i) for i in range(max(0, microbatches - lag), microbatches))
    return tuple(order)


def bubble_h1(pipeline: int, microbatches: int, virtual: int = 1) -> float:  # noqa: ARG001
    """(p-1)(F+I-W) over m(F+I+W) (arXiv 2401.10241 Table 2); one more forward for each microbatch that m < p lacks."""
    p, m = pipeline, microbatches
    return (p - 1 + max(0, p - m)) / (3 * m)


def bubble_h2(pipeline: int, microbatches: int, virtual: int = 1) -> float:  # noqa: ARG001
    """The late start of the last rank, (p-1)·F: between its start and its end no rank waits once m ≥ 2p-1.

    The paper's (p-1)(F+I-2W), which is nothing, is of steps that follow each other without a barrier.
    """
    p, m = pipeline, microbatches
    return (p - 1 + max(0, 2 * p - 1 - m) // 2) / (3 * m)


def _written_h1(pipeline: int, microbatches: int, virtual: int = 1) -> str:  # noqa: ARG001
    return "(p-1)/(3 m)" if microbatches >= pipeline else "(2 p-1 - m)/(3 m)"


def _written_h2(pipeline: int, microbatches: int, virtual: int = 1) -> str:  # noqa: ARG001
    return "(p-1)/(3 m)" if microbatches >= 2 * pipeline - 2 else "(p-1 + (2 p-1 - m)//2)/(3 m)"


def in_flight_h1(pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column:  # noqa: ARG001
    """What the first rank of 1F1B holds, everywhere."""
    return in_flight_of_1f1b(pipeline, microbatches, 1, 0 * rank)


def in_flight_h2(pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column:  # noqa: ARG001
    """Twice that, and one less."""
    return in_flight_of_1f1b(2 * pipeline - 1, microbatches, 1, 0 * rank)


def _started_h2(pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column:  # noqa: ARG001
    return in_flight_of_1f1b(2 * pipeline - 1, microbatches, 1, 2 * rank)


ZB_H1 = Rule(
    "zb-h1",
    zb_h1,
    bubble_h1,
    in_flight_h1,
    most_virtual=1,
    splits=True,
    written=_written_h1,
    started=in_flight_of_1f1b,
    waits_for_input=True,
)
ZB_H2 = Rule(
    "zb-h2", zb_h2, bubble_h2, in_flight_h2, most_virtual=1, splits=True, written=_written_h2, started=_started_h2
)
