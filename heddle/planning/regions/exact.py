"""Every layout, where there are few enough: devices that no other can tell apart count as one kind.

A stage is then how many devices it has of each kind. Of these there are often so few that they can be written down,
with what each costs and what each two take between them; a layout chooses some that use up all devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from heddle.planning.regions.matching import bottlenecks
from heddle.planning.regions.path import EXACT, shortest_lengths
from heddle.planning.regions.problem import Floats, Ints, Problem

_STAGES = 3_000  # kinds of stages that are written down
_STEPS = 60_000  # of the enumeration, about a second; any twelve devices take a third of it
_BATCH = 4_096


class TooManyError(Exception):
    """There are more layouts than can be looked at."""


def best_of_all(problem: Problem, below: float, pipeline_bound: float) -> Ints | None:
    """The cheapest layout of those that cost less than `below`; None if none does. Raises TooManyError.

    A stage is left out if its exchange of gradients and the least that any pipeline takes reach `below` together.
    """
    kinds = _kinds(problem)
    if problem.stages > EXACT:
        raise TooManyError
    table = _Stages.of(problem, kinds, below - pipeline_bound)
    best: tuple[int, ...] | None = None
    batch: list[tuple[int, ...]] = []
    for layout in _layouts(table, np.array([len(kind) for kind in kinds]), problem.stages):
        batch.append(layout)
        if len(batch) == _BATCH:
            best, below = _cheapest(table, batch, best, below)
            batch.clear()
    best, below = _cheapest(table, batch, best, below)
    return None if best is None else _devices(kinds, table.counts[list(best)])


def _kinds(problem: Problem) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for device, twin in enumerate(problem.twins.tolist()):
        found.setdefault(twin, []).append(device)
    return list(found.values())


@dataclass(frozen=True, eq=False)
class _Stages:
    """All stages that a layout may have."""

    counts: Ints  # (stages, kinds), in descending order
    loads: Floats  # (stages,)
    members: Ints  # (stages, replicas): the kind of each device
    hop: Floats  # (kinds, kinds), between two devices
    between: Floats  # (stages, stages), filled as asked for

    @classmethod
    def of(cls, problem: Problem, kinds: list[list[int]], most: float) -> _Stages:
        first = [kind[0] for kind in kinds]
        other = [kind[-1] for kind in kinds]  # of a kind with one device the same, whose diagonal nobody reads
        exchange, hop = (matrix[np.ix_(first, first)].copy() for matrix in (problem.exchange, problem.hop))
        exchange[np.diag_indices(len(kinds))] = problem.exchange[first, other]
        hop[np.diag_indices(len(kinds))] = problem.hop[first, other]
        sizes = [len(kind) for kind in kinds]
        counts = np.array(list(_counts(sizes, problem.replicas))).reshape(-1, len(kinds))
        loads = counts @ exchange - np.diagonal(exchange)
        loads = np.where(counts > 0, loads, -np.inf).max(axis=1)
        counts, loads = counts[loads < most], loads[loads < most]
        members = np.repeat(np.tile(np.arange(len(kinds)), len(counts)), counts.ravel()).reshape(-1, problem.replicas)
        return cls(counts, loads, members, hop, np.full((len(counts), len(counts)), np.nan))

    def hops(self, left: Ints, right: Ints) -> Floats:
        missing = np.isnan(self.between[left, right])
        if missing.any():
            pairs = np.unique(np.stack((left[missing], right[missing])), axis=1)
            self.between[pairs[0], pairs[1]] = bottlenecks(self.hop, self.members[pairs[0]], self.members[pairs[1]])
        found: Floats = self.between[left, right]
        return found


def _counts(sizes: list[int], room: int) -> Iterator[tuple[int, ...]]:
    """All ways to take `room` devices out of these kinds, in descending order."""
    found = 0
    stack: list[tuple[tuple[int, ...], int]] = [((), room)]
    rest = [sum(sizes[kind:]) for kind in range(len(sizes) + 1)]
    while stack:
        taken, left = stack.pop()
        kind = len(taken)
        if kind == len(sizes):
            found += 1
            if found > _STAGES:
                raise TooManyError
            yield taken
            continue
        least = max(0, left - rest[kind + 1])
        stack += [((*taken, count), left - count) for count in range(least, min(sizes[kind], left) + 1)]


def _layouts(table: _Stages, sizes: Ints, stages: int) -> Iterator[tuple[int, ...]]:
    """Every choice of stages that uses up all devices, once: stages in the table's order, the largest first.

    As that order is descending, the next stage has a device of the first kind that is left: no later one could.
    """
    leading = (table.counts > 0).argmax(axis=1)
    by_kind = [np.nonzero(leading == kind)[0] for kind in range(len(sizes))]
    steps = 0
    stack: list[tuple[tuple[int, ...], Ints]] = [((), sizes)]
    while stack:
        chosen, left = stack.pop()
        steps += 1
        if steps > _STEPS:
            raise TooManyError
        if len(chosen) == stages:
            yield chosen
            continue
        options = by_kind[int((left > 0).argmax())]
        options = options[options >= (chosen[-1] if chosen else 0)]
        options = options[(table.counts[options] <= left).all(axis=1)]
        if len(chosen) == stages - 1:  # the last one is what is left
            options = options[(table.counts[options] == left).all(axis=1)]
        stack += [((*chosen, int(option)), left - table.counts[option]) for option in options]


def _cheapest(
    table: _Stages, batch: list[tuple[int, ...]], best: tuple[int, ...] | None, below: float
) -> tuple[tuple[int, ...] | None, float]:
    """The cheapest of a batch, if it costs less than what there is."""
    if not batch:
        return best, below
    layouts = np.array(batch)
    stages = layouts.shape[1]
    a, b = np.triu_indices(stages, 1)
    hops = np.zeros((len(layouts), stages, stages))
    hops[:, a, b] = hops[:, b, a] = table.hops(layouts[:, a].ravel(), layouts[:, b].ravel()).reshape(len(layouts), -1)
    costs = table.loads[layouts].max(axis=1) + 2 * shortest_lengths(hops)
    index = int(costs.argmin())
    return (batch[index], float(costs[index])) if costs[index] < below else (best, below)


def _devices(kinds: list[list[int]], counts: Ints) -> Ints:
    """The layout itself: devices dealt to the stages."""
    left = [list(kind) for kind in kinds]
    return np.array([[left[kind].pop() for kind, count in enumerate(row) for _ in range(count)] for row in counts])
