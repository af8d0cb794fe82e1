"""Exact replay of a schedule: when every action starts and ends, given what each costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from heddle.errors import HeddleError
from heddle.schedule.actions import Kind, Schedule
from heddle.schedule.verify import verify
from heddle.trace.trace import COMPUTE, Span, Trace

Cost: TypeAlias = float | Sequence[float]

_NEVER = -1.0  # the end of an action that has not run yet; all real times are >= 0


def replay(schedule: Schedule, forward: Cost = 1.0, backward: Cost = 2.0, transfer: Cost = 0.0) -> Trace:
    """Run the schedule on a clock.

    Args:
        schedule: the order of work of each rank; one that `verify` accepts, as all that `build` makes are.
        forward: seconds of one microbatch through a chunk: one number, or one for each chunk in model order.
        backward: the same for the way back.
        transfer: seconds between the end of an action and the arrival of its message on another rank: one
            number, or one for each pair of neighbouring chunks (chunk 0 to 1 first), used in both directions.
            A message delays its receiver only: sends are asynchronous, and messages do not queue on a link.
    """
    costs = _costs(schedule, forward, backward, transfer)
    starts = _start_times(schedule, *costs)
    forwards, backwards, _ = costs
    is_forward = Kind.FORWARD  # looked up once: naming an enum member costs as much as the rest of a span
    spans: list[Span] = []
    for rank, order in enumerate(schedule.ranks):
        spans += [
            Span(rank, COMPUTE, "forward", start, start + forwards[chunk], 0, chunk, microbatch)
            if kind is is_forward
            else Span(rank, COMPUTE, "backward", start, start + backwards[chunk], 0, chunk, microbatch)
            for (kind, chunk, microbatch), start in zip(order, starts[rank], strict=True)
        ]
    return Trace(schedule.pipeline, spans)


def step_time(schedule: Schedule, forward: Cost = 1.0, backward: Cost = 2.0, transfer: Cost = 0.0) -> float:
    """Just the duration of `replay`, for searches that look at many schedules and draw none of them."""
    costs = _costs(schedule, forward, backward, transfer)
    starts = _start_times(schedule, *costs)
    # A rank's actions follow one another, so its last one ends last.
    return max(
        starts[rank][-1] + (costs[0] if order[-1].kind is Kind.FORWARD else costs[1])[order[-1].chunk]
        for rank, order in enumerate(schedule.ranks)
    )


def _start_times(
    schedule: Schedule, forward: list[float], backward: list[float], transfer: list[float]
) -> list[list[float]]:
    """An action starts when its rank is free and its input is there: that recurrence, over plain lists.

    Ranks are swept to and fro, each running until it lacks an input: to and fro because forwards depend on
    the rank before and backwards on the one after. A sweep that moves nothing has met a deadlock.
    """
    is_forward = Kind.FORWARD
    last, microbatches = schedule.chunks - 1, schedule.microbatches
    forward_end = [[_NEVER] * microbatches for _ in range(schedule.chunks)]
    backward_end = [[_NEVER] * microbatches for _ in range(schedule.chunks)]
    starts: list[list[float]] = [[] for _ in schedule.ranks]
    clocks = [0.0] * schedule.pipeline
    sweep = list(range(schedule.pipeline))
    while sweep:
        moved = False
        for rank in sweep:
            order, began, clock = schedule.ranks[rank], starts[rank], clocks[rank]
            first = len(began)
            for index in range(first, len(order)):
                kind, chunk, microbatch = order[index]
                if kind is is_forward:
                    if chunk:
                        ready = forward_end[chunk - 1][microbatch]
                        if ready < 0:
                            break
                        ready += transfer[chunk - 1]
                        if ready > clock:
                            clock = ready
                    began.append(clock)
                    clock += forward[chunk]
                    forward_end[chunk][microbatch] = clock
                else:  # that the rank's own forward came before is for verify() to check, not for the clock
                    if chunk < last:
                        ready = backward_end[chunk + 1][microbatch]
                        if ready < 0:
                            break
                        ready += transfer[chunk]
                        if ready > clock:
                            clock = ready
                    began.append(clock)
                    clock += backward[chunk]
                    backward_end[chunk][microbatch] = clock
            clocks[rank] = clock
            moved = moved or len(began) > first
        if not moved:
            verify(schedule)  # says which rank waits for what
            raise AssertionError("a replay is stuck in a schedule that verifies")
        sweep = [rank for rank in reversed(sweep) if len(starts[rank]) < len(schedule.ranks[rank])]
    return starts


def _costs(
    schedule: Schedule, forward: Cost, backward: Cost, transfer: Cost
) -> tuple[list[float], list[float], list[float]]:
    chunks = schedule.chunks
    # With one rank, neighbouring chunks hand over in memory: there is no message that could take time.
    between = transfer if schedule.pipeline > 1 else 0.0
    return (
        _per_chunk("forward", forward, chunks),
        _per_chunk("backward", backward, chunks),
        _per_chunk("transfer", between, chunks - 1),
    )


def _per_chunk(what: str, cost: Cost, count: int) -> list[float]:
    costs = [float(cost)] * count if isinstance(cost, int | float) else [float(value) for value in cost]
    if len(costs) != count:
        each = "pair of neighbouring chunks" if what == "transfer" else "chunk"
        raise HeddleError(
            f"There are {len(costs)} {what} costs.",
            f"This schedule needs {count}, one for each {each}.",
            "Give a single number if all are equal.",
        )
    if any(not value >= 0 for value in costs):
        raise HeddleError(f"A {what} cost is {min(costs)}.", "Work takes time.", "Costs are seconds, 0 or more.")
    return costs
