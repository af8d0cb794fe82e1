"""Which of many plans is the best, exactly: each plan has a bound that it cannot beat, so few need to be replayed.

    bounds, the lowest first  ──►  replay  ──►  until the next bound is above the best that was found

What is left out cannot be better. Plans that share the degrees and the microbatch are variants of one choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from heddle.cost.work import work_of
from heddle.format import GIB
from heddle.planning.search.legal import SOME
from heddle.planning.search.objective import SearchGoal
from heddle.planning.search.pricing import SpaceCosts
from heddle.planning.search.refine import balanced, fewest_that_fit
from heddle.planning.search.space import Space
from heddle.simulating.closed_form import balancing_saves
from heddle.simulating.distinct import distinct
from heddle.simulating.simulation import Simulation, simulate_if_fits
from heddle.spec.axes import DEGREES
from heddle.spec.job import Job, PlannedJob
from heddle.spec.plan import Plan

CHOICE = (*DEGREES, "microbatch")  # what people argue about
BALANCED = 24  # plans whose layers are moved between stages: those that are hoped to be the best then
EACH = 8  # of them that may be of one choice


class ReplayedPlans:
    """The plans of a space that may fit and meet the deadline, each replayed at most once."""

    def __init__(self, job: Job, space: Space, step: SpaceCosts, goal: SearchGoal) -> None:
        self.job, self.space, self.step, self.goal = job, space, step, goal
        self.limit = goal.limit(job)
        self.rows = np.flatnonzero(step.fits & (step.at_least <= self.limit))
        self.bounds = goal.key(step.at_least, step.memory_at_least, space.devices)
        self.every = np.arange(len(space))
        self._known: dict[int, Simulation | None] = {}
        self._moved: dict[Plan, Simulation | None] = {}

    @cached_property
    def hopes(self) -> tuple[Any, ...]:
        """What each plan is estimated to take with its stages balanced."""
        seconds = np.array(self.step.seconds, dtype=float)
        cluster = self.job.cluster
        assert cluster is not None
        deep = self.rows[(self.space.columns["pipeline"][self.rows] > 1) & self.step.known[self.rows]]
        if len(deep) and "stages" not in self.goal.fixed and cluster.cores is None:
            work = work_of(self.job, cluster, self.space.take(deep).work_columns())
            seconds[deep] -= balancing_saves(work, cluster)
        return self.goal.key(seconds, self.step.memory, self.space.devices)

    def exact(self, row: int) -> Simulation | None:
        """One plan, replayed; None: it does not fit, or is too slow."""
        if row not in self._known:
            found = self._simulated(row)
            self._known[row] = found if found is not None and found.step_seconds <= self.limit else None
        return self._known[row]

    def _simulated(self, row: int) -> Simulation | None:
        if self.space.columns["recompute"][row] != SOME:
            return self._with(row, 0)
        # what fits as the bound sees it may need some more layers that recompute; many plans never fit
        ranks, count = (int(self.space.columns[name][row]) for name in ("pipeline", "recomputed"))
        all_of_them = -(-self.space.layers // ranks) - count
        more = fewest_that_fit(lambda more: self._planned(row, more), range(all_of_them), 0)
        return None if more is None else self._with(row, more)

    def _with(self, row: int, more: int) -> Simulation | None:
        return simulate_if_fits(self._planned(row, more))

    def _planned(self, row: int, more: int) -> PlannedJob:
        return self.job.with_plan(self.space.plan(row, more))

    def best(self) -> Simulation | None:
        """The best of all: none that is left out can be better."""
        found: Simulation | None = None
        for row in self._sorted(self.rows, self.bounds):
            if found is not None and self._bound(row) > self.goal.of(found):
                break
            other = self.exact(row)
            if other is not None and (found is None or self.goal.of(other) < self.goal.of(found)):
                found = other
        return found

    def finest(self) -> Simulation | None:
        """The best with layers moved between stages where that is faster; it need not come of the best without."""
        found = self.best()
        if found is None:
            return None
        found = self._better_of(found, self._balanced(found))
        for row in islice(self._varied(self._sorted(self.rows, (self._unlikely, *self.hopes))), BALANCED):
            if self.goal.of(found) <= self._hope(row):
                break
            if (even := self.exact(row)) is not None:
                found = self._better_of(found, even, self._balanced(even))
        return found

    def _varied(self, rows: list[int]) -> Iterator[int]:
        """Of each choice only the first few."""
        seen: dict[int, int] = {}
        for row in rows:
            choice = int(self.choice_ids[row])
            seen[choice] = seen.get(choice, 0) + 1
            if seen[choice] <= EACH:
                yield row

    def _better_of(self, best: Simulation, *others: Simulation | None) -> Simulation:
        return min((best, *filter(None, others)), key=self.goal.of)

    @cached_property
    def _unlikely(self) -> np.ndarray:
        """Whether a plan will hardly fit: by estimate it does not, and none of its layers can recompute more."""
        return np.asarray((self.step.memory > self.memory_limit) & (self.space.columns["recompute"] != SOME))

    def _hope(self, row: int) -> tuple[Any, ...]:
        return tuple(key[row] for key in self.hopes)

    def _balanced(self, found: Simulation) -> Simulation | None:
        """The same with layers moved between stages, where that is better."""
        if found.plan not in self._moved:
            self._moved[found.plan] = balanced(found, self.goal)
        return self._moved[found.plan]

    @cached_property
    def memory_limit(self) -> float:
        """Bytes of a device."""
        assert self.job.cluster is not None
        return self.job.cluster.device.memory_gib * GIB

    @cached_property
    def choice_ids(self) -> np.ndarray:
        """A number for each choice; where all plans share one choice, one for each plan."""
        if self.one_choice:
            return np.arange(len(self.space))
        return distinct([self.space.columns[name] for name in CHOICE])[1]

    @cached_property
    def one_choice(self) -> bool:
        """Whether all plans share one choice, because it is fixed: then each is a choice of its own."""
        columns = [self.space.columns[name] for name in CHOICE]
        return not any(np.any(column != column[0]) for column in columns if len(column))

    @classmethod
    def _sorted(cls, rows: np.ndarray, by: tuple[Any, ...]) -> list[int]:
        return list(map(int, cls._in_order(rows, by)))

    @staticmethod
    def _in_order(rows: np.ndarray, by: tuple[Any, ...]) -> np.ndarray:
        return np.asarray(rows[np.lexsort([key[rows] for key in reversed(by)])])

    def _bound(self, row: int) -> tuple[Any, ...]:
        return tuple(key[row] for key in self.bounds)
