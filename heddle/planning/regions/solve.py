"""The search: trivial and banded layouts to begin with, exchanges of devices and of groups, every layout if few."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from heddle.planning.regions.bounds import lower_bound, pipeline_bound
from heddle.planning.regions.cost import Layout, costs_of, laid_out
from heddle.planning.regions.exact import TooManyError, best_of_all
from heddle.planning.regions.problem import Ints, Problem
from heddle.planning.regions.starts import groupings, pipelines_inside, stages_inside, starts
from heddle.planning.regions.swaps import Position

_SAME = 1e-9  # relative: costs that differ by less differ by rounding
_EVEN = 1e-2  # what the two stages' own loads count beside the cost: it leads across plateaus
_LOOKED_AT = 6  # exchanges whose matchings are made, of those that promise most
_DRAWN = 150  # starts beside the regular ones
_FIRST = 6  # starts that are improved before any is improved again
_PATIENCE = 20  # exchanges without a better layout, after which a walk ends
_IDLE_WALKS = 150  # walks without a better layout, after which the search ends


@dataclass(frozen=True)
class Found:
    """The best layout, and what is known of it."""

    layout: Layout
    bound: float  # seconds; no layout costs less
    optimal: bool
    pipelines_inside: float  # seconds of the trivial layouts: each pipeline within a group, as far as that goes,
    stages_inside: float  # and each stage
    seconds: float  # of CPU, for the search


def solve(problem: Problem, time_limit: float = 3.0, seed: int = 0) -> Found:
    """The cheapest layout that the time allows to find; the best of all where layouts are few."""
    began = time.process_time()
    trivial = costs_of(problem, np.stack([pipelines_inside(problem), stages_inside(problem)]))
    bound = lower_bound(problem)
    search = _Search(problem, bound, began + time_limit, np.random.default_rng(seed))
    optimal = search.proven
    if not optimal:
        search.improve(_FIRST)
        try:
            better = best_of_all(problem, search.cost * (1 - _SAME), pipeline_bound(problem))
            if better is not None:
                search.offer(better, float(costs_of(problem, better[None])[0]))
            optimal = True
        except TooManyError:
            search.improve()
            optimal = search.proven
    layout = laid_out(problem, search.best)
    bound = layout.cost if optimal else min(bound, layout.cost)
    taken = time.process_time() - began
    return Found(layout, bound, optimal, float(trivial[0]), float(trivial[1]), taken)


class _Search:
    def __init__(self, problem: Problem, bound: float, deadline: float, draws: np.random.Generator) -> None:
        self.problem, self.bound, self.deadline, self.draws = problem, bound, deadline, draws
        self.groupings = groupings(problem)
        self.best, self.cost = pipelines_inside(problem), np.inf
        self.starts = iter(self._ranked_starts())

    @property
    def proven(self) -> bool:
        return self.cost <= self.bound * (1 + _SAME)

    @property
    def done(self) -> bool:
        return self.proven or time.process_time() > self.deadline

    def offer(self, layout: Ints, cost: float) -> bool:
        """Keep a layout if it is better than the best."""
        if cost >= self.cost * (1 - _SAME):
            return False
        self.best, self.cost = layout.copy(), cost
        return True

    def _ranked_starts(self) -> list[Ints]:
        """Layouts to begin with, the cheapest first; those that only exchange twins are one."""
        half = (time.process_time() + self.deadline) / 2
        costs: list[float] = []
        kept: list[Ints] = []
        for some in _batches(_distinct(self.problem, starts(self.problem, self.draws, _DRAWN)), 16):
            costs += costs_of(self.problem, np.stack(some)).tolist()
            kept += some
            if time.process_time() > half:
                break
        order = np.argsort(costs, kind="stable")
        self.offer(kept[order[0]], costs[order[0]])
        return [kept[index] for index in order]

    def improve(self, walks: int | None = None) -> None:
        """Walk from the starts, then from the best layout with groups exchanged."""
        idle = 0
        while not self.done and idle < _IDLE_WALKS and walks != 0:
            start = next(self.starts, None) if walks is not None or idle % 2 else None
            idle = 0 if self._walk(self._kicked() if start is None else start) else idle + 1
            walks = None if walks is None else walks - 1

    def _walk(self, start: Ints) -> bool:
        """Always take the best exchange that does not undo a recent one, better or not (tabu search, Glover 1989)."""
        problem, draws = self.problem, self.draws
        here = Position(problem, start)
        won = self.offer(here.members, here.cost)
        lowest, waited, step = here.cost, 0, 0
        until = np.zeros((problem.devices, problem.stages), dtype=np.int64)  # no return of a device to a stage before
        while waited < _PATIENCE and not self.done:
            step += 1
            some, costs, even = here.bounds()
            barred = until[np.ix_(some, here.stage_of[some])] > step
            costs = np.where(barred & barred.T & (costs >= lowest * (1 - _SAME)), np.inf, costs)
            score = np.where(np.tri(len(some), dtype=bool), np.inf, costs + _EVEN * even)  # each two once
            few = np.argsort(score, axis=None)[:_LOOKED_AT]
            few = few[np.isfinite(score.flat[few])]
            if not len(few):
                break
            xs, ys = np.unravel_index(few, costs.shape)
            exact = here.exact(some[xs], some[ys]) + _EVEN * even[xs, ys]
            x, y = int(some[xs[exact.argmin()]]), int(some[ys[exact.argmin()]])
            tenure = step + draws.integers(4, 8 + problem.devices // 4, size=2)
            until[x, here.stage_of[x]], until[y, here.stage_of[y]] = tenure
            here.exchange(x, y)
            until = until[:, here.order]
            waited += 1
            if here.cost < lowest * (1 - _SAME):
                lowest, waited = here.cost, 0
                won = self.offer(here.members, here.cost) or won
        return won

    def _kicked(self) -> Ints:
        """The best layout with a few pieces of groups exchanged between stages."""
        layout = self.best.copy()
        if self.problem.stages == 1:
            return layout
        for _ in range(int(self.draws.integers(1, 4))):
            groups = self.groupings[self.draws.integers(len(self.groupings))]
            group_of = np.empty(self.problem.devices, dtype=np.int64)
            for number, group in enumerate(groups):
                group_of[group] = number
            a, b = self.draws.choice(self.problem.stages, size=2, replace=False)
            x, y = self.draws.integers(self.problem.replicas, size=2)
            mine = np.nonzero(group_of[layout[a]] == group_of[layout[a, x]])[0]
            other = np.nonzero(group_of[layout[b]] == group_of[layout[b, y]])[0]
            count = min(len(mine), len(other))
            if self.draws.random() < 0.3:
                count = int(self.draws.integers(1, count + 1))
            layout[a, mine[:count]], layout[b, other[:count]] = layout[b, other[:count]], layout[a, mine[:count]]
        return layout


def _distinct(problem: Problem, layouts: Iterator[Ints]) -> Iterator[Ints]:
    """Each layout once, whatever the order of its stages and whichever twin is where."""
    seen = set()
    for layout in layouts:
        key = tuple(sorted(map(tuple, np.sort(problem.twins[layout], axis=1).tolist())))
        if key not in seen:
            seen.add(key)
            yield layout


def _batches(layouts: Iterator[Ints], size: int) -> Iterator[list[Ints]]:
    batch: list[Ints] = []
    for layout in layouts:
        batch.append(layout)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
