r"""The exact split into contiguous parts with the smallest maximum load: dynamic programming over ideals.

    best[c][f][J] = min over ideals I ⊆ J of  max(best[c][f-1][I], load of J \ I on an accelerator)
                                         and  max(best[c-1][f][I], load of J \ I on a CPU)

Loads of all pairs of a block of ideals are one matrix product. An accelerator pays for a net that J \ I meets but
does not hold. I ⊆ J meets a net in as many groups as J does exactly if J \ I misses it. So with a column (0 or 1) for
every number of groups, "missed" is a product of two rows, and so is "held": none in I, all in J. Groups of I that J
lacks are counted with a weight that rules the pair out.

Nothing is stored for pairs. A state counts only if it can still beat the best split known, which is why a first split
along one line of operators makes the rest fast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heddle.graph.dag import Floats, Ints
from heddle.graph.deadline import OutOfTime, check
from heddle.graph.ideals import Bools, Ideals
from heddle.planning.placement.bounds import most_within
from heddle.planning.placement.operator_graph import PlacementProblem

ROWS, COLUMNS = 64, 4096
STATES = 1 << 27  # of the table: a gibibyte
FORBIDDEN = 1e15  # no load is as high; small enough to add loads to without losing them


class Loads:
    """Loads of differences of ideals, ideals being ordered by their accelerator time."""

    def __init__(self, problem: PlacementProblem, ideals: Ideals, deadline: float = np.inf) -> None:
        self.problem, self.deadline = problem, deadline
        check(deadline)
        order = np.argsort(ideals.total(problem.accelerator), kind="stable")
        self.members = ideals.members[order]
        dense = self.members.astype(np.float64)
        infinite = np.where(problem.supported, 0.0, FORBIDDEN)
        sums = dense @ np.stack([problem.accelerator, problem.cpu, problem.size, infinite], axis=1)
        self.accelerator, self.cpu, self.size, self.unsupported = sums.T
        self.empty = int(np.flatnonzero(~self.members.any(axis=1))[0])
        self.whole = int(np.flatnonzero(self.members.all(axis=1))[0])
        count = (dense @ problem.nets.T.astype(np.float64)).astype(np.int32)
        sizes = problem.nets.sum(axis=1)
        net, number = np.nonzero(np.arange(sizes.max(initial=0) + 1) <= sizes[:, None])
        check(deadline)
        meets, none, full = count[:, net] == number, count == 0, count == sizes
        self.left = np.concatenate([self.members, meets, none], axis=1)
        check(deadline)
        self.right = np.concatenate([~self.members, meets, full], axis=1)
        lacking = np.full(problem.groups, FORBIDDEN)
        self.weights = np.concatenate([lacking, -problem.cost[net], -problem.cost])
        self.open = ~(none | full) @ problem.cost  # nets that cross the border of an ideal
        self._all: Floats | None = None
        if len(self.members) ** 2 <= 1 << 22:
            everything = np.arange(len(self.members))
            blocks = range(0, len(self.members), ROWS)
            self._all = np.concatenate([self._compute(everything[row : row + ROWS], everything) for row in blocks])

    def __len__(self) -> int:
        return len(self.members)

    def on_accelerator(self, inner: Ints, outer: Ints) -> Floats:
        r"""(inner, outer): the load of an accelerator with outer \ inner; FORBIDDEN or more where that is no part."""
        return self._all[np.ix_(inner, outer)] if self._all is not None else self._compute(inner, outer)

    def _compute(self, inner: Ints, outer: Ints) -> Floats:
        check(self.deadline)
        own = self.accelerator + self.unsupported
        load = self._product(inner, outer, len(self.weights), own)
        load += self.problem.cost.sum()
        if self.size[self.whole] > self.problem.memory:
            load[self.size[outer] - self.size[inner][:, None] > self.problem.memory * (1 + 1e-9)] = np.inf
        return load

    def on_cpu(self, inner: Ints, outer: Ints) -> Floats:
        """The same for a CPU, which has memory enough and pays for no moves."""
        return self._product(inner, outer, self.problem.groups, self.cpu)

    def _product(self, inner: Ints, outer: Ints, columns: int, own: Floats) -> Floats:
        """own[outer] - own[inner] + left · diag(weights) · rightᵀ, without the columns that are 0 on one side."""
        left, right, weights = self.left[inner, :columns], self.right[outer, :columns], self.weights[:columns]
        ones = left.all(axis=0) & right.all(axis=0)
        mixed = np.flatnonzero(left.any(axis=0) & right.any(axis=0) & ~ones)
        rows, lines = np.empty((len(inner), len(mixed) + 2)), np.empty((len(outer), len(mixed) + 2))
        np.multiply(left[:, mixed], weights[mixed], out=rows[:, 2:])
        lines[:, 2:] = right[:, mixed]
        rows[:, 0], rows[:, 1] = weights[ones].sum() - own[inner], 1.0
        lines[:, 0], lines[:, 1] = 1.0, own[outer]
        return rows @ lines.T


@dataclass(frozen=True)
class PlacementSplit:
    """Parts in the order of the work: (is a CPU, groups)."""

    value: float
    parts: list[tuple[bool, list[int]]]
    finished: bool  # False: time ran out, so another split may be better


def best_split(
    problem: PlacementProblem, ideals: Ideals, below: float = np.inf, deadline: float = np.inf
) -> PlacementSplit | None:
    """The split with the smallest maximum load, if that is below the given one."""
    return _Table(problem, Loads(problem, ideals, deadline), below, deadline).solve()


class _Table:
    def __init__(self, problem: PlacementProblem, loads: Loads, below: float, deadline: float) -> None:
        self.problem, self.loads, self.below, self.deadline = problem, loads, below, deadline
        self.best: dict[tuple[int, int], Floats] = {}

    def solve(self) -> PlacementSplit | None:
        accelerators, cpus = self.problem.accelerators, self.problem.cpus
        if (accelerators + 1) * (cpus + 1) * len(self.loads) > STATES:
            raise OutOfTime  # there is no memory for it either
        for c in range(cpus + 1):
            for f in range(accelerators + 1):
                state = np.full(len(self.loads), np.inf)
                if c == f == 0:
                    state[self.loads.empty] = 0.0
                self.best[c, f] = state
                for cpu, before in ((False, (c, f - 1)), (True, (c - 1, f))):
                    if before in self.best:
                        self._step(self.best[before], state, cpu, self._hopeful(c, f))
        value = float(self.best[cpus, accelerators][self.loads.whole])
        return PlacementSplit(value, self._parts(), True) if value < self.below else None

    def _hopeful(self, c: int, f: int) -> Bools:
        """Ideals after which the devices left could do the rest, were it divisible, and better than `below`."""
        loads, problem = self.loads, self.problem
        if np.isinf(self.below):
            return np.ones(len(loads), dtype=np.bool_)
        accelerators, cpus = problem.accelerators - f, problem.cpus - c
        taken = [most_within(weights, problem.cpu, self.below) for weights in (problem.accelerator, problem.size)]
        rest = loads.accelerator[loads.whole] - loads.accelerator
        if not cpus:
            rest = rest + loads.open  # somebody has to fetch what crosses the border
        hopeful = rest < accelerators * self.below + cpus * taken[0] + 1e-9 * self.below
        room = accelerators * problem.memory * (1 + 1e-9) + cpus * taken[1]
        return np.asarray(hopeful & (loads.size[loads.whole] - loads.size <= room))

    def _step(self, before: Floats, state: Floats, cpu: bool, hopeful: Bools) -> None:
        """Add a device to every split of `before`."""
        loads = self.loads
        sources = np.flatnonzero(before < self.below)
        targets = np.flatnonzero(hopeful)
        time_of = loads.accelerator
        # An accelerator's part takes no longer than `below`; a CPU's takes even longer there than here.
        reach = self.below if not cpu else most_within(self.problem.accelerator, self.problem.cpu, self.below)
        for start in range(0, len(sources), ROWS):
            rows = sources[start : start + ROWS]
            times = time_of[targets]
            # Ideals that differ in groups without time stand at the same time, in any order: all of them count.
            low = int(np.searchsorted(times, time_of[rows[0]] * (1 - 1e-9), side="left"))
            high = int(np.searchsorted(times, (time_of[rows[-1]] + reach) * (1 + 1e-9), side="right"))
            for first in range(low, high, COLUMNS):
                check(self.deadline)
                columns = targets[first : min(first + COLUMNS, high)]
                load = loads.on_cpu(rows, columns) if cpu else loads.on_accelerator(rows, columns)
                reached = np.maximum(load, before[rows][:, None]).min(axis=0)
                state[columns] = np.minimum(state[columns], np.where(reached < self.below, reached, np.inf))

    def _parts(self) -> list[tuple[bool, list[int]]]:
        """Walk back: which part came last, again and again."""
        loads, parts = self.loads, []
        at, c, f = loads.whole, self.problem.cpus, self.problem.accelerators
        while c or f:
            value = self.best[c, f][at]
            here = np.array([at])
            for cpu, before in ((False, (c, f - 1)), (True, (c - 1, f))):
                if before not in self.best:
                    continue
                sources = np.flatnonzero(self.best[before] <= value)
                load = (loads.on_cpu if cpu else loads.on_accelerator)(sources, here)[:, 0]
                fitting = sources[load <= value + 1e-9 * abs(value)]
                if len(fitting):
                    inner = int(fitting[0])
                    parts.append((cpu, np.flatnonzero(loads.members[at] & ~loads.members[inner]).tolist()))
                    at, (c, f) = inner, before
                    break
            else:
                raise AssertionError("state has no predecessor")
        return parts[::-1]
