"""What each choice comes to: the best of its plans, with one setting for all layers or where layers choose themselves.

Choices are looked at in the order of what is hoped for. An estimate is a few per cent off, so of each choice only the
most hopeful plans are replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from heddle.planning.layer_memory.families import Families
from heddle.planning.search.objective import SearchGoal
from heddle.planning.search.pricing import SpaceCosts
from heddle.planning.search.replayed import ReplayedPlans
from heddle.planning.search.space import Space
from heddle.simulating.distinct import by_group
from heddle.simulating.simulation import Simulation
from heddle.spec.job import Job

LOOKS = 3  # plans of a choice that are replayed at most to find some that fit: the most hopeful
TRIES = 2  # of them that are balanced
NEAR = 0.08  # of a step: a plan that takes no more than it was hoped to take and that is as good as its choice gets


class SplitLook(NamedTuple):
    """A choice to look at, with what is hoped for."""

    key: tuple[Any, ...]
    choice: int
    own: bool  # with strategies for each layer


class PlansOfChoices(ReplayedPlans):
    """The same plans, choice by choice."""

    def __init__(
        self, job: Job, space: Space, step: SpaceCosts, goal: SearchGoal, by_layer: bool | None = False
    ) -> None:
        super().__init__(job, space, step, goal)
        self.by_layer = by_layer  # whether layers may choose for themselves; None: where that may pay
        self._chosen: dict[tuple[int, bool], Simulation | None] = {}  # the best plan of a choice, by `SplitLook.own`

    @cached_property
    def families(self) -> Families:
        """Splits for layers that choose for themselves."""
        rows = self.every[:0] if self.by_layer is False else self.every
        return Families(self.job, self.space, self.step, self.goal, rows)

    def _looks(self) -> Iterator[SplitLook]:
        """What to look at, in the order of what is hoped for; families are estimated as they come up."""
        order = [SplitLook(self._hope(int(rows[0])), choice, False) for choice, rows in self._rows_of.items()]
        order += [SplitLook(each.likely, self._family(each.row), True) for each in self.families.known]
        heapify(order)
        seen = set[tuple[int, bool]]()
        while True:
            while (bound := self.families.next_bound) is not None and (not order or bound < order[0].key):
                for each in self.families.estimate_more():
                    heappush(order, SplitLook(each.likely, self._family(each.row), True))
            if not order:
                return
            look = heappop(order)
            if look[1:] not in seen:
                seen.add(look[1:])
                yield look

    @cached_property
    def _rows_of(self) -> dict[int, np.ndarray]:
        """The plans of each choice, the most hopeful first."""
        return self._by_choice(self._in_order(self.rows, (self._unlikely, *self.hopes)))

    @cached_property
    def _families_of(self) -> dict[int, np.ndarray]:
        """The families of each choice."""
        return {-1: self.families.rows} if self.one_choice else self._by_choice(self.families.rows)

    def _by_choice(self, rows: np.ndarray) -> dict[int, np.ndarray]:
        return {choice: rows[own] for choice, own in enumerate(by_group(self.choice_ids[rows])) if len(own)}

    def _family(self, row: int) -> int:
        return -1 if self.one_choice else int(self.choice_ids[row])

    def _best_of(self, look: SplitLook) -> Simulation | None:
        """The best of a choice's plans: with one setting for all layers, or where these choose for themselves."""
        if look[1:] not in self._chosen:
            find = self._best_family if look.own else self._best_row
            self._chosen[look[1:]] = find(look.choice)
        return self._chosen[look[1:]]

    def _best_row(self, choice: int) -> Simulation | None:
        """Of the most hopeful that fits, and of the next where the first disappoints."""
        best: Simulation | None = None
        tried = 0
        for row in self._rows_of[choice][:LOOKS].tolist():
            hoped = self._hope(row)
            if tried == TRIES or (best is not None and self.goal.of(best)[0] * (1 - NEAR) <= hoped[0]):
                break
            if (even := self.exact(row)) is not None:
                best = self._better_of(best or even, even, self._balanced(even))
                tried += 1
        return best

    def _best_family(self, choice: int) -> Simulation | None:
        # a choice is as good as the better of both kinds of plans
        alike = self._best_of(SplitLook((), choice, False)) if choice in self._rows_of else None
        return self.families.best_of(self._families_of[choice].tolist(), alike)
