"""Which of many plans is the best, exactly: each plan has a bound that it cannot beat, so few need to be replayed.

    bounds, the lowest first  ──►  replay  ──►  until the next bound is above the best that was found

What is left out cannot be better. Plans that share the degrees and the microbatch are variants of one choice. Choices
are ranked one after the other, so that a longer list begins like a shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from heddle.cost.work import work_of
from heddle.planning.layer_memory.families import BY_LAYER, Families
from heddle.planning.search.legal import SOME
from heddle.planning.search.objective import SearchGoal
from heddle.planning.search.ranking import parts, ranked
from heddle.planning.search.refine import balanced, fewest_that_fit
from heddle.planning.search.space import Space
from heddle.schedule.registry import BY_DEFAULT, NAMES
from heddle.simulating.closed_form import StepCosts, balancing_saves
from heddle.simulating.distinct import by_group, distinct
from heddle.simulating.simulation import Simulation, simulate_if_fits
from heddle.spec.axes import DEGREES
from heddle.spec.job import Job, PlannedJob
from heddle.spec.plan import Plan

CHOICE = (*DEGREES, "microbatch")  # what people argue about
VARIANT = ("expert_tensor", "context_exchange", "sequence", "virtual", "zero", "zero_within", "recompute")
BALANCED = 24  # plans whose layers are moved between stages: those that are hoped to be the best then
EACH = 8  # of them that may be of one choice
LOOKS = 3  # plans of a choice that are replayed at most to find some that fit: the most hopeful
FEW = 500  # plans of which the finest is found in a moment, too
CHOICES = 4  # that are looked at where about the best plan is enough
TRIES = 2  # of them that are balanced
LEAD = 0.01  # of what is hoped for: no plan turns out to be better by more, as a rule
BLOCK = 10  # places of the ranking that are in order for certain
AHEAD = 4  # plans whose layers choose for themselves that are solved before a place is taken; then one for each place
NEAR = 0.08  # of a step: a plan that takes no more than it was hoped to take and that is as good as its choice gets


@dataclass(frozen=True)
class Choice:
    """One row of a table: a plan, and how many others differ from it only in these fields."""

    best: Simulation
    variants: int
    fields: tuple[str, ...]


class SplitLook(NamedTuple):
    """A choice to look at, with what is hoped for."""

    key: tuple[Any, ...]
    choice: int
    own: bool  # with strategies for each layer


class Candidates:
    """The plans of a space that may fit and meet the deadline, each replayed at most once."""

    def __init__(
        self, job: Job, space: Space, step: StepCosts, goal: SearchGoal, by_layer: bool | None = False
    ) -> None:
        self.by_layer = by_layer  # whether layers may choose for themselves; None: where that may pay
        self.job, self.space, self.step, self.goal = job, space, step, goal
        self.limit = goal.limit(job)
        self.rows = np.flatnonzero(step.fits & (step.at_least <= self.limit))
        self.bounds = goal.key(step.at_least, step.memory_at_least, space.devices)
        self.every = np.arange(len(space))
        self._known: dict[int, Simulation | None] = {}
        self._moved: dict[Plan, Simulation | None] = {}
        self._chosen: dict[tuple[int, bool], Simulation | None] = {}  # the best plan of a choice, by `SplitLook.own`

    @cached_property
    def hopes(self) -> tuple[Any, ...]:
        """What each plan is estimated to take with its stages balanced."""
        seconds = np.array(self.step.seconds, dtype=float)
        cluster = self.job.cluster
        assert cluster is not None
        deep = self.rows[self.space.columns["pipeline"][self.rows] > 1]
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
        return len(self.every) + len(tight), len(self.rows) - wrong + int(self.families.can_fit(tight).sum())

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
        keys = np.array(self.hopes[0][self.rows], dtype=float)
        places = {int(row): place for place, row in enumerate(self.rows)}
        for row, exact in self._known.items():
            if row in places:
                keys[places[row]] = np.inf if exact is None else self.goal.of(exact)[0]
        own = [self.families.price(each) for each in self.families.known if self._is_tight(each.row)]
        return np.array([*keys, *own])

    def _is_tight(self, row: int) -> bool:
        return bool(self.step.memory[row] > self.memory_limit)

    def choices(self, top: int) -> list[Choice]:
        """The best choices, ranked; each with the variant that is preferred."""
        return [self._folded(found) for found in islice(self._ranking(), top)]

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
    def families(self) -> Families:
        """Splits for layers that choose for themselves."""
        rows = self.every[:0] if self.by_layer is False else self.every
        return Families(self.job, self.space, self.step, self.goal, rows)

    @cached_property
    def fastest(self) -> Simulation | None:
        """The best of all by the objective alone, whatever machinery it needs; None: nothing fits."""
        return min(filter(None, (self.plain, self.own)), key=self.goal.of, default=None)

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

    @cached_property
    def memory_limit(self) -> float:
        """Bytes of a device."""
        from heddle.format import GIB

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

    @classmethod
    def _sorted(cls, rows: np.ndarray, by: tuple[Any, ...]) -> list[int]:
        return list(map(int, cls._in_order(rows, by)))

    @staticmethod
    def _in_order(rows: np.ndarray, by: tuple[Any, ...]) -> np.ndarray:
        return np.asarray(rows[np.lexsort([key[rows] for key in reversed(by)])])

    def _bound(self, row: int) -> tuple[Any, ...]:
        return tuple(key[row] for key in self.bounds)
