"""A schedule on devices that share cores: who works beside fewer others works faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heddle.schedule import Action, Schedule, producer
from heddle.simulating.replay import kind_costs
from heddle.trace.trace import COMPUTE, Span, Trace


def replay_shared(
    schedule: Schedule,
    forward: Sequence[float],
    backward: Sequence[float],
    rate: Callable[[int], float],
    weight: Sequence[float] | None = None,
) -> Trace:
    """Put a schedule on a clock on which every stage advances at rate(stages at work): processor sharing.

    A schedule that does not verify would never end; `build` makes none.
    """
    costs = kind_costs(forward, backward, weight, schedule.chunks)
    ends: set[Action] = set()
    trace = Trace(schedule.pipeline)
    places = [0] * schedule.pipeline
    left: dict[int, float] = {}  # seconds of work of the active ranks
    began: dict[int, float] = {}
    now = 0.0
    while True:
        for rank, order in enumerate(schedule.ranks):
            if rank in left or places[rank] == len(order):
                continue
            needed = producer(schedule, action := order[places[rank]])
            if needed is None or needed in ends:
                left[rank], began[rank] = costs[action.kind][action.chunk], now
        if not left:
            return trace
        speed = rate(len(left))
        soonest = min(left.values())
        now += soonest / speed
        for rank in [rank for rank, rest in left.items() if rest <= soonest * (1 + 1e-12)]:
            del left[rank]
            action = schedule.ranks[rank][places[rank]]
            ends.add(action)
            places[rank] += 1
            name = action.kind.value
            trace.spans.append(Span(rank, COMPUTE, name, began[rank], now, 0, action.chunk, action.microbatch))
        left = {rank: rest - soonest for rank, rest in left.items()}
