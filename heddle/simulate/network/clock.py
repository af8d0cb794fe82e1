"""A schedule on a clock, message by message, over links that differ.

A link carries one message at a time each way. A message arrives its delay after the last of it was sent, and delays
nobody but its receiver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from heddle.schedule import Schedule
from heddle.schedule.actions import Kind
from heddle.schedule.messages import outgoing, producer
from heddle.simulate.replay import kind_costs
from heddle.trace.trace import COMPUTE, Span

Hops = Mapping[tuple[int, int], tuple[float, float]]  # by sender and receiver: seconds of delay, and of sending


class Sent(NamedTuple):
    """A message: by whom to whom, when it was ready, when the link took it, let go of it, and it had come."""

    source: int
    target: int
    ready: float
    start: float
    end: float
    arrived: float


class Clocked(NamedTuple):
    """When everything happened; `ends`: when each rank was done."""

    actions: list[Span]
    messages: list[Sent]
    ends: list[float]


def end_times(schedule: Schedule, forward: Sequence[float], backward: Sequence[float], hops: Hops) -> list[float]:
    """When each rank is done; the arguments are those of `clocked`."""
    return clocked(schedule, forward, backward, hops).ends


def clocked(
    schedule: Schedule,
    forward: Sequence[float],
    backward: Sequence[float],
    hops: Hops,
    weight: Sequence[float] | None = None,
    draw: bool = False,
) -> Clocked:
    """Run the schedule: an action starts when its rank is free and its message has come.

    Args:
        schedule: the order of work of each rank.
        forward: seconds of one microbatch through each chunk.
        backward: the same for the way back.
        hops: of each sender and receiver, seconds of delay and seconds that a message occupies the link.
        weight: seconds of `backward` that make weight gradients, where it is taken in two.
        draw: whether to keep every action and message; else only the ends.
    """
    costs = kind_costs(list(forward), list(backward), None if weight is None else list(weight), schedule.chunks)
    names = {kind: kind.value for kind in Kind}
    found = Clocked([], [], [0.0] * schedule.pipeline)
    arrived: dict[object, float] = {}
    free = dict.fromkeys(hops, 0.0)
    clocks, at = found.ends, [0] * schedule.pipeline
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(schedule.ranks):
            while at[rank] < len(order):
                action = order[at[rank]]
                maker = producer(schedule, action)
                if maker is not None and maker not in arrived:
                    break
                start = max(clocks[rank], arrived[maker]) if maker is not None else clocks[rank]
                end = start + costs[action.kind][action.chunk]
                clocks[rank] = arrived[action] = end
                if draw:
                    span = Span(rank, COMPUTE, names[action.kind], start, end, 0, action.chunk, action.microbatch)
                    found.actions.append(span)
                message = outgoing(schedule, action)
                if message is not None:
                    way = message.source, message.destination
                    delay, occupied = hops[way]
                    taken = max(end, free[way])
                    free[way] = taken + occupied
                    arrived[action] = taken + occupied + delay
                    if draw:
                        found.messages.append(Sent(*way, end, taken, taken + occupied, arrived[action]))
                at[rank] += 1
                moved = True
    assert all(place == len(order) for place, order in zip(at, schedule.ranks, strict=True)), "a deadlock"
    return found
