"""A schedule on a clock, message by message, over links that differ.

A link carries one message at a time each way. A message arrives its delay after the last of it was sent, and delays
nobody but its receiver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from heddle.schedule import Action, Schedule
from heddle.schedule.actions import Kind
from heddle.schedule.messages import outgoing, producer
from heddle.simulating.replay import kind_costs
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


class NetworkTimes(NamedTuple):
    """When everything happened; `ends`: when each rank was done."""

    actions: list[Span]
    messages: list[Sent]
    ends: list[float]


class Step(NamedTuple):
    """An action with what it needs: places in the list of all actions, and its message's sender and receiver."""

    action: Action
    number: int
    maker: int  # the action whose message it waits for; -1: none
    way: tuple[int, int] | None  # of the message that it sends


Orders = list[list[Step]]  # of each rank


def orders_of(schedule: Schedule) -> Orders:
    """What each rank does, in its order, with what that waits for and sends: the same for all prices."""
    numbers = {action: number for number, action in enumerate(a for order in schedule.ranks for a in order)}

    def step(action: Action) -> Step:
        maker, message = producer(schedule, action), outgoing(schedule, action)
        way = None if message is None else (message.source, message.destination)
        return Step(action, numbers[action], -1 if maker is None else numbers[maker], way)

    return [[step(action) for action in order] for order in schedule.ranks]


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
    orders: Orders | None = None,
    starts: Sequence[float] = (),
) -> NetworkTimes:
    """Run the schedule: an action starts when its rank is free and its message has come.

    Args:
        schedule: the order of work of each rank.
        forward: seconds of one microbatch through each chunk.
        backward: the same for the way back.
        hops: of each sender and receiver, seconds of delay and seconds that a message occupies the link.
        weight: seconds of `backward` that make weight gradients, where it is taken in two.
        draw: whether to keep every action and message; else only the ends.
        orders: `orders_of(schedule)`, where that is known.
        starts: when each rank begins, and says which messages it expects; if left out, all at 0, and are long expected.
    """
    costs = kind_costs(list(forward), list(backward), None if weight is None else list(weight), schedule.chunks)
    names = {kind: kind.value for kind in Kind}
    found = NetworkTimes([], [], list(starts) or [0.0] * schedule.pipeline)
    orders = orders or orders_of(schedule)
    arrived: list[float | None] = [None] * sum(map(len, orders))
    free = {(a, b): starts[b] + hops.get((b, a), (0.0, 0.0))[0] if starts else 0.0 for a, b in hops}
    clocks, at = found.ends, [0] * schedule.pipeline
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            clock = clocks[rank]
            for action, number, maker, way in islice(order, at[rank], None):
                start = clock
                if maker >= 0:
                    came = arrived[maker]
                    if came is None:
                        break
                    start = max(clock, came)
                kind, chunk, microbatch = action
                clock = arrived[number] = start + costs[kind][chunk]
                if draw:
                    found.actions.append(Span(rank, COMPUTE, names[kind], start, clock, 0, chunk, microbatch))
                if way is not None:
                    delay, occupied = hops[way]
                    taken = max(clock, free[way])
                    free[way] = taken + occupied
                    arrived[number] = taken + occupied + delay
                    if draw:
                        found.messages.append(Sent(*way, clock, taken, taken + occupied, taken + occupied + delay))
                at[rank] += 1
                moved = True
            clocks[rank] = clock
    assert all(place == len(order) for place, order in zip(at, schedule.ranks, strict=True)), "a deadlock"
    return found
