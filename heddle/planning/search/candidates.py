"""The plans of a search: the best of them, how many fit, and the choices ranked.

Choices are ranked one after the other, so that a longer list begins like a shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import islice
from typing import Any

import numpy as np

from heddle.planning.layer_memory.families import BY_LAYER
from heddle.planning.search.choices import PlansOfChoices
from heddle.planning.search.objective import MARGIN
from heddle.planning.search.pricing import with_seconds
from heddle.planning.search.ranking import parts, ranked
from heddle.planning.search.replayed import CHOICE
from heddle.schedule.registry import BY_DEFAULT, NAMES
from heddle.simulating.simulation import Simulation
from heddle.spec.plan import Plan

VARIANT = ("expert_tensor", "context_exchange", "sequence", "virtual", "zero", "zero_within", "recompute")
FEW = 500  # plans of which the finest is found in a moment, too
CHOICES = 4  # that are looked at where about the best plan is enough
LEAD = 0.01  # of what is hoped for: no plan turns out to be better by more, as a rule
BLOCK = 10  # places of the ranking that are in order for certain
AHEAD = 4  # plans whose layers choose for themselves that are solved before a place is taken; then one for each place


@dataclass(frozen=True)
class Choice:
    """One row of a table: a plan, and how many others differ from it only in these fields."""

    best: Simulation
    variants: int
    fields: tuple[str, ...]


class Candidates(PlansOfChoices):
    """The plans of a space that may fit and meet the deadline."""

    @cached_property
    def plain(self) -> Simulation | None:
        """The best of all whose layers are treated alike."""
        return self.finest()

    @cached_property
    def own(self) -> Simulation | None:
        """The best of all whose layers choose for themselves, where it is better than that.

        The usual schedules first: what is found with others beside them is never slower than without.
        """
        usual = np.isin(self.space.columns["schedule"], [NAMES.index(name) for name in BY_DEFAULT])
        if usual[self.families.rows].all():
            return self.families.best(self.plain)
        first = self.families.among(np.flatnonzero(usual)).best(self.plain)
        return self.families.best(first or self.plain) or first

    @cached_property
    def fastest(self) -> Simulation | None:
        """The best of all by the objective alone, whatever machinery it needs; None: nothing fits."""
        return min(filter(None, (self.plain, self.own)), key=self.goal.of, default=None)

    def hopeful(self) -> Simulation | None:
        """A plan that is about as good as the best, in a moment: the best of the most hopeful choices."""
        if len(self.rows) + len(self.families.rows) <= FEW:
            return self.fastest
        best: Simulation | None = None
        for place, look in enumerate(self._looks()):
            if best is not None and (place >= CHOICES or self.goal.of(best) <= look.key):
                return best
            if (other := self._best_of(look)) is not None:
                best = self._better_of(best or other, other)
        return best or self.fastest

    def beating(self, given: Simulation) -> Simulation | None:
        """The best of all where it beats a plan that is known, whose price rules most of them out."""
        plain = self.finest()
        found = given if plain is None else self._better_of(given, plain)
        found = self.families.best(found) or found
        return None if found is given else found

    def among(self, wanted: np.ndarray, name: str = "", alike: bool = False) -> Candidates:
        """Some of the plans, as if the search had been for these; what was replayed stays known.

        Args:
            wanted: whether, for each plan of the space.
            name: of the field by which they were chosen; one that layers choose for themselves holds for all of them.
            alike: whether all layers shall do the same.
        """
        by_layer = False if alike or name in BY_LAYER else self.by_layer
        some = Candidates(self.job, self.space, self.step, self.goal, by_layer)
        some.rows, some.every = self.rows[wanted[self.rows]], self.every[wanted[self.every]]
        some._known, some._moved = self._known, self._moved
        some.hopes, some.choice_ids, some.one_choice = self.hopes, self.choice_ids, self.one_choice
        if by_layer is not False:
            some.families = self.families.among(some.every)
        some._chosen = self._chosen if name in CHOICE else {}  # they have all plans of a choice, or none
        return some

    @property
    def fits_at_all(self) -> bool:
        """Whether any of them does."""
        likely = self._sorted(self.rows, (self.step.memory_at_least,))
        return any(self.exact(row) is not None for row in likely) or self.families.least_memory <= self.memory_limit

    @property
    def least_memory(self) -> float:
        """Bytes per device that no plan needs less than."""
        alike = self.step.memory_at_least[self.every]
        return min(float(np.min(alike, initial=np.inf)), self.families.least_memory)

    @property
    def counted(self) -> tuple[int, int]:
        """How many plans there are, and how many fit, as far as is known: one for each split whose layers choose for
        themselves, where one setting for all of them is not enough.
        """
        tight = self.families.rows[self.step.memory[self.families.rows] > self.memory_limit]
        wrong = int(np.isinf(self._standing[: len(self.rows)]).sum())
        legal = len(self.every) + self.space.left_out + len(tight)
        return legal, len(self.rows) - wrong + int(self.families.can_fit(tight).sum())

    @property
    def exactly(self) -> list[Simulation]:
        """All that were priced exactly, and fit."""
        known = (self._known, self._moved, self._chosen, self.families.found)
        return [found for some in known for found in some.values() if found is not None]

    def better_than(self, found: Simulation) -> int:
        """How many plans are better, each by what was known of it when the best was found: exactly, or by estimate."""
        return int(np.sum(self._standing < self.goal.of(found)[0] * (1 - 1e-9)))

    @cached_property
    def _standing(self) -> np.ndarray:
        """What is to be small of every plan, infinite where it turned out not to fit.

        As it is known when the best is found: what is looked at later, for a longer list or an explanation, changes
        neither a plan's place nor how many there are.
        """
        assert "fastest" in vars(self)
        keys = np.array(self.hopes[0], dtype=float)
        for row, exact in self._known_then.items():
            keys[row] = np.inf if exact is None else self.goal.of(exact)[0]
        own = [self.families.price(each) for each in self.families.known if self._is_tight(each.row)]
        return np.concatenate([keys[self.rows], own])

    @cached_property
    def _known_then(self) -> dict[int, Simulation | None]:
        return dict(self._known)

    def reaches(self, last: Simulation, complete: bool) -> bool:
        """Whether plans whose seconds are not known come after a plan for certain.

        `complete`: whether there are as many choices as were asked for; otherwise more may be among those.
        """
        beyond = (1 + MARGIN) * max(last.step_seconds, self.fastest.step_seconds if self.fastest else 0.0)
        return not self._unknown.size or (complete and beyond <= self.step.horizon)

    @cached_property
    def _unknown(self) -> np.ndarray:
        return np.flatnonzero(~self.step.known)

    @cached_property
    def whole(self) -> Candidates:
        """The same plans with all their seconds known; what was replayed stays known."""
        if not self._unknown.size:
            return self
        assert self.job.cluster is not None
        step = with_seconds(self.job, self.job.cluster, self.space, self.step, self._unknown)
        every = Candidates(self.job, self.space, step, self.goal, self.by_layer)
        every._known, every._moved, every._known_then = self._known, self._moved, self._known_then
        every.choice_ids, every.one_choice = self.choice_ids, self.one_choice
        every.families = self.families.priced(step)
        within = self.step.horizon
        certain = {look: found for look, found in self._chosen.items() if found and found.step_seconds <= within}
        every._chosen = dict(certain)
        if self.fastest is not None and self.reaches(self.fastest, complete=True):
            every.plain, every.own, every.fastest = self.plain, self.own, self.fastest
        return every

    def _is_tight(self, row: int) -> bool:
        return bool(self.step.memory[row] > self.memory_limit)

    def choices(self, top: int) -> list[Choice]:
        """The best choices, ranked; each with the variant that is preferred."""
        return [self._folded(found) for found in islice(self._ranking(), top)]

    def _ranking(self) -> Iterator[Simulation]:
        """The best plan of every choice, the best first, each as soon as no other can come before it.

        How many are asked for changes nothing. Choices are looked at in the order of what is hoped for; one is
        yielded when nothing better is hoped for.
        """
        if self.fastest is None:
            return
        done = set[int]()
        for found in self._alike_the_best(self.fastest):
            if (choice := self._choice_of(found)) not in done:
                done.add(choice)
                yield found
        rest = self._rest(done)
        count = max(1, BLOCK - len(done))
        while block := list(islice(rest, count)):
            yield from sorted(block, key=self.goal.of)
            count = BLOCK

    def _rest(self, done: set[int]) -> Iterator[Simulation]:
        """The best plan of every other choice, about the best first: estimates are a few per cent off.

        Those of layers that choose for themselves may be far too low: a few are solved for each place, and no more.
        """
        waiting: list[tuple[tuple[Any, ...], int, bool, Simulation]] = []
        solved = 0
        for look in self._looks():
            while waiting and (solved >= AHEAD or waiting[0][0] <= self.goal.less(look.key, LEAD)):
                solved = max(0, solved - 1)
                yield from self._first(waiting, done)
            if look.choice not in done and (best := self._best_of(look)) is not None:
                heappush(waiting, (self.goal.of(best), look.choice, look.own, best))
                solved += look.own
        while waiting:
            yield from self._first(waiting, done)

    @staticmethod
    def _first(waiting: list[tuple[tuple[Any, ...], int, bool, Simulation]], done: set[int]) -> Iterator[Simulation]:
        _, choice, _, best = heappop(waiting)
        if choice not in done:
            done.add(choice)
            yield best

    def _alike_the_best(self, fastest: Simulation) -> list[Simulation]:
        """All choices that no model tells from the best, each with the variant that is preferred, in that order."""
        found = list(filter(None, (self.plain, self.own)))
        if self.plain is not None and self._alike(self.plain):
            bound, devices = self.step.at_least[self.rows], self.space.devices[self.rows]
            for choice in self._grouped(self.rows[self.goal.alike(bound, devices, fastest)]):
                exact = (self.exact(row) for row in sorted(choice, key=self._preference))
                found += islice((other for other in exact if other is not None and self._alike(other)), 1)
        found += filter(None, map(self._balanced, [each for each in found if not each.plan.layers]))
        return ranked(filter(self._alike, found), self.goal)

    def _alike(self, found: Simulation) -> bool:
        assert self.fastest is not None
        same = self.goal.of(found) == self.goal.of(self.fastest)
        return same or bool(self.goal.alike(found.step_seconds, found.plan.world, self.fastest))

    def _preference(self, row: int) -> tuple[int, float]:
        """The order in which variants are preferred, as far as it is known before they are replayed."""
        held = float(self.step.memory[row])
        return len(parts(self.space.plan(row).resolved(self.job.model), held / self.memory_limit)), held

    def _choice_of(self, found: Simulation) -> int:
        row = None if self.one_choice and found.plan.by_layer else self.space.where(found.plan)
        if row is None and not self.one_choice:  # what layers do by themselves is in no column
            row = self._first_like(found.plan)
        return -1 if row is None else int(self.choice_ids[row])

    def _first_like(self, plan: Plan) -> int:
        same = np.logical_and.reduce([self.space.columns[name] == getattr(plan, name) for name in CHOICE])
        return int(np.flatnonzero(same)[0])

    def _folded(self, best: Simulation) -> Choice:
        same = self.rows[self.choice_ids[self.rows] == self._choice_of(best)]
        differing = tuple(name for name in VARIANT if len(np.unique(self.space.columns[name][same])) > 1)
        return Choice(best, max(0, len(same) - (not best.plan.layers)), differing)

    def _grouped(self, rows: np.ndarray) -> Iterator[list[int]]:
        order = rows[np.argsort(self.choice_ids[rows], kind="stable")]
        for group in np.split(order, np.flatnonzero(np.diff(self.choice_ids[order])) + 1):
            if len(group):
                yield group.tolist()
