"""Which of many plans is the best, exactly: each plan has a bound that it cannot beat, so few need to be replayed.

    bounds, the lowest first  ──►  replay  ──►  until the next bound is above the best that was found

What is left out cannot be better. Plans that share the degrees and the microbatch are variants of one choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from heddle.plan.search.objective import SearchGoal
from heddle.plan.search.ranking import parts, ranked
from heddle.plan.search.refine import balanced, fewest_that_fit
from heddle.plan.search.space import SOME, Space
from heddle.simulate.closed_form import StepCosts
from heddle.simulate.simulation import Simulation, simulate_if_fits
from heddle.spec.job import Job, PlannedJob
from heddle.spec.plan import WRITTEN, Plan

CHOICE = (*WRITTEN, "microbatch")  # what people argue about
VARIANT = ("sequence", "virtual", "zero", "recompute")
BALANCED = 16  # plans whose layers are moved between stages: those that are estimated best
ACTIONS = 5_000  # that are replayed at most to rank exactly what comes after the best: a fraction of a second
TRIES = 2  # plans of a choice that are replayed where choices are ranked by estimates


@dataclass(frozen=True)
class Choice:
    """One row of a table: a plan, and how many others differ from it only in these fields."""

    best: Simulation
    variants: int
    fields: tuple[str, ...]


class Candidates:
    """The plans of a space that may fit and meet the deadline, each replayed at most once."""

    def __init__(self, job: Job, space: Space, step: StepCosts, wish: SearchGoal) -> None:
        self.job, self.space, self.step, self.wish = job, space, step, wish
        self.limit = wish.limit(job)
        self.rows = np.flatnonzero(step.fits & (step.at_least <= self.limit))
        self.bounds = wish.key(step.at_least, step.memory_at_least, space.devices)
        self.estimates = wish.key(step.seconds, step.memory, space.devices)
        self.replayed = 0  # actions
        self._known: dict[int, Simulation | None] = {}
        self._moved: dict[Plan, Simulation | None] = {}

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
        self.replayed += self._actions(row) if more != 0 else 0
        return None if more is None else self._with(row, more)

    def _with(self, row: int, more: int) -> Simulation | None:
        self.replayed += self._actions(row)
        return simulate_if_fits(self._planned(row, more))

    def _planned(self, row: int, more: int) -> PlannedJob:
        return self.job.with_plan(self.space.plan(row, more))

    def _actions(self, row: int) -> int:
        """Of a step of one plan; looking for layers that must recompute takes about as long as replaying them."""
        pipeline, virtual, data, size = (
            int(self.space.columns[name][row]) for name in ("pipeline", "virtual", "data", "microbatch")
        )
        return 2 * pipeline * virtual * (self.job.train.global_batch // (data * size))

    def best(self) -> Simulation | None:
        """The best of all: none that is left out can be better."""
        found: Simulation | None = None
        for row in self._sorted(self.rows, self.bounds):
            if found is not None and self._bound(row) > self.wish.of(found):
                break
            other = self.exact(row)
            if other is not None and (found is None or self.wish.of(other) < self.wish.of(found)):
                found = other
        return found

    def finest(self) -> Simulation | None:
        """The best with layers moved between stages where that is faster; it need not come of the best without."""
        found = self.best()
        if found is None:
            return None
        tried = (self.exact(row) for row in self._sorted(self.rows, self.estimates)[:BALANCED])
        even = [found, *(each for each in tried if each is not None)]
        return min([*even, *filter(None, map(self._balanced, even))], key=self.wish.of)

    def _balanced(self, found: Simulation) -> Simulation | None:
        """The same with layers moved between stages, where that is better."""
        if found.plan not in self._moved:
            self._moved[found.plan] = balanced(found, self.wish)
        return self._moved[found.plan]

    def among(self, rows: np.ndarray) -> Candidates:
        """Some of the plans, as if the search had been for these; what was replayed stays known."""
        some = Candidates(self.job, self.space, self.step, self.wish)
        some.rows, some._known, some._moved = rows, self._known, self._moved
        return some

    def choices(self, top: int) -> list[Choice]:
        """The best choices, ranked; each with the variant that is preferred."""
        first = self.best()
        if first is None:
            return []
        shown = self._variants(first, top)
        shown |= {id(self.fastest): self.fastest}
        shown |= {id(each): each for found in list(shown.values()) if (each := self._balanced(found))}
        order = ranked(shown.values(), self.wish)
        taken: dict[Any, Simulation] = {}
        for found in order:
            taken.setdefault(self._choice_of(found), found)
        return [self._folded(found) for found in list(taken.values())[:top]]

    @cached_property
    def fastest(self) -> Simulation:
        """The best of all by the objective alone, whatever machinery it needs."""
        found = self.finest()
        assert found is not None
        return found

    def _variants(self, first: Simulation, top: int) -> dict[int, Simulation]:
        """Of each choice that is as good as the best the preferred variant; of the next ones the best."""
        found = {id(first): first}
        bound, devices = self.step.at_least[self.rows], self.space.devices[self.rows]
        alike = self.rows[self.wish.alike(bound, devices, first)]
        done = set()
        for choice in self._grouped(alike):
            for row in sorted(choice, key=self._preference):
                other = self.exact(row)
                if other is not None and self.wish.alike(other.step_seconds, other.plan.world, first):
                    found[id(other)] = other
                    done.add(self.choice_ids[row])
                    break
        rest = self.rows[~np.isin(self.choice_ids[self.rows], list(done))]
        best = self._best_of_each(rest, top - len(done))
        return found | {id(each): each for each in best.values()}

    def _best_of_each(self, rows: np.ndarray, top: int) -> dict[int, Simulation]:
        """The best plans of the best choices: exactly, or, where that takes long, of those that are estimated best."""
        spent = self.replayed
        best: dict[int, Simulation] = {}
        for row in self._sorted(rows, self.bounds):
            known, bound = best.get(choice := self.choice_ids[row]), self._bound(row)
            if sum(self.wish.of(each) <= bound for each in best.values()) >= top:
                return best
            if self.replayed - spent > ACTIONS:
                break
            if known is None or bound < self.wish.of(known):
                self._keep(best, choice, self.exact(row))
        tried: dict[int, int] = {}
        for row in self._sorted(rows, self.estimates):
            estimate = tuple(key[row] for key in self.estimates)
            if sum(self.wish.of(each) <= estimate for each in best.values()) >= top:
                break
            choice = self.choice_ids[row]
            if tried.setdefault(choice, 0) < TRIES:
                tried[choice] += 1
                self._keep(best, choice, self.exact(row))
        return best

    def _keep(self, best: dict[int, Simulation], choice: int, found: Simulation | None) -> None:
        if found is not None and (choice not in best or self.wish.of(found) < self.wish.of(best[choice])):
            best[choice] = found

    def _preference(self, row: int) -> tuple[int, float]:
        """The order in which variants are preferred, as far as it is known before they are replayed."""
        held = float(self.step.memory[row])
        return len(parts(self.space.plan(row).resolved(self.job.model), held / self.memory_limit)), held

    @cached_property
    def memory_limit(self) -> float:
        """Bytes of a device."""
        from heddle.format import GIB

        assert self.job.cluster is not None
        return self.job.cluster.device.memory_gib * GIB

    @cached_property
    def choice_ids(self) -> np.ndarray:
        """A number for each choice; where all plans share one choice, one for each plan."""
        key = np.zeros(len(self.space), dtype=np.int64)
        for name in CHOICE:
            _, number = np.unique(self.space.columns[name], return_inverse=True)
            key = key * (int(number.max(initial=0)) + 1) + number
        return key if len(self.rows) and np.any(key[self.rows] != key[self.rows[0]]) else np.arange(len(key))

    def _choice_of(self, found: Simulation) -> int:
        row = self.space.where(found.plan)
        assert row is not None
        return int(self.choice_ids[row])

    def _folded(self, best: Simulation) -> Choice:
        same = self.rows[self.choice_ids[self.rows] == self._choice_of(best)]
        differing = tuple(name for name in VARIANT if len(np.unique(self.space.columns[name][same])) > 1)
        return Choice(best, len(same) - 1, differing)

    def _grouped(self, rows: np.ndarray) -> Iterator[list[int]]:
        order = rows[np.argsort(self.choice_ids[rows], kind="stable")]
        for group in np.split(order, np.flatnonzero(np.diff(self.choice_ids[order])) + 1):
            if len(group):
                yield group.tolist()

    @staticmethod
    def _sorted(rows: np.ndarray, by: tuple[Any, ...]) -> list[int]:
        return list(map(int, rows[np.lexsort([key[rows] for key in reversed(by)])]))

    def _bound(self, row: int) -> tuple[Any, ...]:
        return tuple(key[row] for key in self.bounds)
