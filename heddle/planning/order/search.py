"""The best order found for given stages: named orders and greedy ones, the best of them improved move by move."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from heddle.errors import HeddleError
from heddle.planning.order.greedy import Habit, greedy
from heddle.planning.order.stages import Stages
from heddle.schedule import RULES, Action, Schedule, ScheduleError, build, producer, verify

HABITS = [Habit(patience, first, spare) for patience in (0.0, 0.5, 1.0) for first in (False, True) for spare in (0, 1)]


@dataclass(frozen=True)
class FoundOrder:
    """An order of work, what it takes, and what none takes less than."""

    schedule: Schedule
    seconds: float
    bound: float
    begins_with: str  # the order that it was improved from

    @property
    def gap(self) -> float:
        """How far it may be from the best, as a share of it."""
        return self.seconds / self.bound - 1


def search_order(stages: Stages, seconds: float = 10.0, seed: int = 0) -> FoundOrder:
    """The best order found within so many seconds; the same for the same seed unless time runs out.

    It is never slower than a named schedule that the same ranks can hold.
    """
    until = time.monotonic() + seconds
    best = min(
        ((stages.time(order), place, name, order) for place, (name, order) in enumerate(_starts(stages))), default=None
    )
    if best is None:
        raise HeddleError(
            f"No order of {stages.microbatches} microbatches over {stages.pipeline} ranks fits these limits.",
            "Each rank must hold what its neighbors wait for.",
            "Allow the ranks more memory.",
        )
    taken, _, name, order = best
    bound = stages.bound()
    order, taken = _improved(stages, order, taken, bound, until, random.Random(seed))
    verify(order)
    return FoundOrder(order, taken, bound, name)


def _starts(stages: Stages) -> Iterator[tuple[str, Schedule]]:
    """Orders to begin with: those that have a name and fit, and greedy ones."""
    for rule in RULES.values():
        most = rule.most_virtual or stages.virtual
        if rule.placement is not stages.placement or not rule.least_virtual <= stages.virtual <= most:
            continue
        if stages.microbatches >= rule.least_microbatches(stages.pipeline):
            named = build(rule.name, stages.pipeline, stages.microbatches, stages.virtual)
            if stages.fits(named):
                yield rule.name, stages.schedule(named.ranks)
    for habit in HABITS:
        order = greedy(stages, habit)
        if order is not None and stages.fits(order):
            yield "greedy", order


def _improved(
    stages: Stages, order: Schedule, taken: float, bound: float, until: float, draw: random.Random
) -> tuple[Schedule, float]:
    """Move one action of one rank at a time, and keep what is no slower: hill climbing over plateaus."""
    actions = sum(map(len, order.ranks))
    for _ in range(max(200, 200_000 // actions)):
        if taken <= bound * (1 + 1e-9) or time.monotonic() > until:
            break
        rank = draw.randrange(stages.pipeline)
        own = list(order.ranks[rank])
        place, shift = draw.randrange(len(own)), draw.choice((-3, -2, -1, 1, 2, 3))
        own.insert(max(0, place + shift), own.pop(place))
        ranks = [*order.ranks[:rank], tuple(own), *order.ranks[rank + 1 :]]
        other = stages.schedule(ranks)
        if not _in_order(other, own) or not stages.fits(other):
            continue
        try:
            seconds = stages.time(other)
        except ScheduleError:  # it would never end
            continue
        if seconds <= taken:
            order, taken = other, seconds
    return order, taken


def _in_order(schedule: Schedule, own: list[Action]) -> bool:
    """Whether each action of a rank comes after those of the same rank that it needs."""
    seen: set[tuple[str, int, int]] = set()
    homes = {action.chunk for action in own}
    for action in own:
        kind, chunk, microbatch = action
        source = producer(schedule, action)
        if kind.after is not None and (kind.after, chunk, microbatch) not in seen:
            return False
        if source is not None and source.chunk in homes and source not in seen:
            return False
        seen.add(action)
    return True
