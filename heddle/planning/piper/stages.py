"""All stages that Piper may choose from: a pair of up-sets, one inside the other, is the stage between them.

Sums over a stage are differences of sums over up-sets, and the bytes that cross its borders are a matrix product, so
nothing is added up stage by stage. How long a stage takes depends on its tensor degree t, its data degree d and the
microbatches y that it holds in flight:

    d · time = K(t, y) + crossing / bandwidth + (d-1) · 4 · parameters / (microbatches · bandwidth)

where K is the knapsack's answer. K is kept for every y as a lower bound that is replaced by the exact value when asked.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from heddle.graph.dag import Dag, Floats, Ints
from heddle.graph.deadline import check
from heddle.graph.ideals import Bools, Ideals
from heddle.planning.piper.knapsack import exact, swaps
from heddle.planning.piper.workload import LayerOptions, Workload

BLOCK = 4_000_000  # pairs looked at together


@dataclass(frozen=True, eq=False)
class Pairs:
    """Stages as pairs of up-sets, ordered by the outer one, so by its size."""

    inner: Ints
    outer: Ints

    def __len__(self) -> int:
        return len(self.inner)


def all_pairs(ideals: Ideals, deadline: float = np.inf) -> Pairs:
    """Every pair of ideals of which one holds the other."""
    inside, outside = ideals.members.astype(np.float32), (~ideals.members).astype(np.float32)
    found = []
    rows = max(1, BLOCK // len(ideals))
    for start in range(1, len(ideals), rows):
        check(deadline)
        outer, inner = np.nonzero(outside[start : start + rows] @ inside[: start + rows].T == 0)
        outer += start
        found.append((inner[inner < outer], outer[inner < outer]))
    inner, outer = (np.concatenate(column) for column in zip(*found, strict=True))
    return Pairs(inner, outer)


def crossing(graph: Dag, ideals: Ideals, pairs: Pairs, receive: Floats, send: Floats) -> Floats:
    """Bytes over the borders of every stage, by (D' = later stages, D = D' and the stage), both up-sets.

    An edge into the stage has its tail outside D, an edge out of it has its head in D'. So the bytes are those into D,
    plus those into D' on the sender's side, minus what jumps over the stage, from outside D into D'.
    """
    inside = ideals.dense
    if not len(graph.tails):
        return np.zeros(len(pairs))
    enters = inside[:, graph.heads] * (1 - inside[:, graph.tails])
    into, out = enters @ receive, enters @ send
    # Summed over the edges of each tail: a table of nodes by nodes would be larger than the graph.
    by_tail = np.argsort(graph.tails, kind="stable")
    tails, first = np.unique(graph.tails[by_tail], return_index=True)
    reach = np.add.reduceat(inside[:, graph.heads[by_tail]] * (receive + send)[by_tail], first, axis=1)
    outside = 1 - inside[:, tails]
    if len(ideals) ** 2 <= BLOCK:  # then all pairs at once are a plain product
        return np.asarray(into[pairs.outer] + out[pairs.inner] - (reach @ outside.T)[pairs.inner, pairs.outer])
    jumps = np.empty(len(pairs))
    rows = max(1, BLOCK // len(tails))
    for start in range(0, len(pairs), rows):
        part = slice(start, start + rows)
        jumps[part] = np.einsum("pn,pn->p", reach[pairs.inner[part]], outside[pairs.outer[part]])
    return np.asarray(into[pairs.outer] + out[pairs.inner] - jumps)


@dataclass(frozen=True, eq=False)
class Kinds:
    """Stages whose layers and borders cost the same at every degree are of one kind, and priced once."""

    of: Ints  # of each pair
    pairs: Pairs  # one of each kind

    def __len__(self) -> int:
        return len(self.pairs)

    def reduce(self, function: np.ufunc, values: Ints) -> Ints:
        """The smallest or largest value among the stages of each kind."""
        if len(self) == len(self.of):
            return values
        order = np.argsort(self.of, kind="stable")
        return np.asarray(function.reduceat(values[order], np.searchsorted(self.of[order], np.arange(len(self)))))

    def spread(self, kind: Ints) -> tuple[Ints, Ints]:
        """From choices of kinds, ascending, to those of stages: the stage of each, and the place of the kind's."""
        if len(self) == len(self.of):
            return kind, np.arange(len(kind))
        start = np.searchsorted(kind, np.arange(len(self) + 1))
        count = np.diff(start)[self.of]
        pair = np.repeat(np.arange(len(self.of)), count)
        return pair, np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count) + start[self.of][pair]


def find_kinds(workload: Workload, ideals: Ideals, pairs: Pairs) -> Kinds:
    """Sort stages by what they hold: so many layers of each class, so many edges of each class over their borders."""
    graph = workload.graph
    columns = [c for o in workload.degrees for c in (o.seconds, o.parameters, o.stashed, o.fixed, o.peaks)]
    special = [o.tie.layers for o in workload.degrees if o.tie is not None]  # each in a class of its own
    alone = np.isin(np.arange(graph.nodes), special) * np.arange(1, graph.nodes + 1)
    layers = _classes([c for c in (*columns, alone, workload.core) if c is not None])
    none = Kinds(np.arange(len(pairs)), pairs)
    if layers.max() + 1 == graph.nodes:
        return none
    edges = _classes([c for o in workload.degrees for c in (o.receive, o.send)])
    # A sum of random numbers knows a multiset; floats add whole numbers of this size exactly.
    marks = np.random.default_rng(0).integers(0, 2**40, (3, graph.nodes + len(edges))).astype(np.float64)
    held = ideals.total(marks[0][layers])
    borders = crossing(graph, ideals, pairs, marks[1][edges], marks[2][edges])
    known = held[pairs.outer] - held[pairs.inner] + 1j * borders
    _, first, of = np.unique(known, return_index=True, return_inverse=True)
    return Kinds(of, Pairs(pairs.inner[first], pairs.outer[first])) if 2 * len(first) < len(pairs) else none


def _classes(columns: list[np.ndarray]) -> Ints:
    """Equal rows have equal numbers."""
    rows = np.column_stack(columns)
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    return np.asarray(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1), dtype=np.int64)


class DegreeTable:
    """Times and memory of all stages at one tensor degree, for one or several data degrees."""

    def __init__(
        self,
        ideals: Ideals,
        pairs: Pairs,
        workload: Workload,
        options: LayerOptions,
        data: list[int],
        deadline: float = np.inf,
    ) -> None:
        self.options, self.tensor, self.data, self.deadline = options, options.tensor, data, deadline
        self.ideals, self.pairs = ideals, pairs
        scale = 4 / (workload.microbatches * workload.bandwidth)  # PipeDream's all-reduce, a byte and microbatch
        shared = (options.parameters == options.parameters[:, :1]) | ~np.isfinite(options.seconds)
        self.seconds, self.stashed, self.fixed = options.seconds, options.stashed, options.fixed
        parameters = options.parameters[:, 0]
        if not shared.all():  # then which option is fastest depends on the data degree: there is one table for each
            self.seconds = options.seconds + (data[0] - 1) * scale * options.parameters
            parameters = np.zeros(len(parameters))
        runs = options.available
        quick = np.where(runs > 0, np.where(np.isfinite(self.seconds), self.seconds, np.inf).min(axis=1), 0.0)
        sums = ideals.total(np.stack([quick, parameters * scale, 1 - runs], axis=1))
        sums = sums[pairs.outer] - sums[pairs.inner]
        possible = sums[:, 2] < 0.5
        self.fast = np.where(possible, sums[:, 0], np.inf)
        self.sync = sums[:, 1]
        self.crossing = crossing(workload.graph, ideals, pairs, options.receive, options.send)
        self.crossing = self.crossing / workload.bandwidth + options.start
        self.peaks = np.zeros(len(pairs)) if options.peaks is None else self._largest(options.peaks)
        if options.tie is not None:
            both = self._holds(options.tie.layers[0]) & self._holds(options.tie.layers[1])
            self.crossing -= both * options.tie.seconds
            self.peaks -= both * options.tie.bytes
        self.limits = workload.memory - self.peaks
        self._memory_table(-(-min(workload.devices, workload.microbatches) // data[0]), possible)

    def only(self, data: int, allowed: Bools) -> DegreeTable:
        """The same times for one data degree, and for some of the stages; what is learnt of them is shared."""
        fewer = copy.copy(self)
        fewer.data, fewer.fast = [data], np.where(allowed, self.fast, np.inf)
        return fewer

    def _holds(self, layer: int) -> Bools:
        members = self.ideals.members[:, layer]
        return members[self.pairs.outer] & ~members[self.pairs.inner]

    def _largest(self, values: Floats) -> Floats:
        """Of every stage the largest value of its layers."""
        found = np.zeros(len(self.pairs))
        for value in np.unique(values):
            count = self.ideals.total(np.asarray(values == value, dtype=np.float64))
            found[count[self.pairs.outer] > count[self.pairs.inner]] = value  # ascending: the last one stays
        return found

    def _memory_table(self, most: int, possible: np.ndarray) -> None:
        """For every y: does the fastest choice fit, does the smallest; between the two, the knapsack's lower bound."""
        flights = np.arange(1, most + 1)
        finite = np.where(np.isfinite(self.seconds), self.seconds, np.inf)
        stashed, fixed = (np.where(np.isfinite(finite), column, np.inf) for column in (self.stashed, self.fixed))
        quickest = finite == finite.min(axis=1, keepdims=True)
        needs: Floats = np.asarray(stashed[:, :, None] * flights + fixed[:, :, None])  # (layers, options, y)
        smallest = needs.min(axis=1)
        tied = np.where(quickest[:, :, None], needs, np.inf).min(axis=1)
        self.quick_needs = np.where(np.isfinite(tied), tied, 0.0)
        limits = self.limits * (1 + 1e-12)
        self.easy = self._fitting(self.quick_needs, limits) * possible  # largest y whose fastest choice fits
        self.most = self._fitting(np.where(np.isfinite(smallest), smallest, 0.0), limits) * possible
        self.start = np.concatenate([[0], np.cumsum(self.most - self.easy)])
        self.bounds = np.empty(self.start[-1])
        if not len(self.bounds):
            return
        # Layers that are alike are counted, not listed.
        classes = _classes([self.seconds, self.stashed, self.fixed])
        count = self.ideals.total((classes[:, None] == np.arange(classes.max() + 1)).astype(np.float64))
        one = np.unique(classes, return_index=True)[1]
        offered = swaps(self.seconds[one], np.moveaxis(needs[one, :, : self.most.max()], 2, 0))
        quick_total = self.ideals.total(self.quick_needs)
        stages = np.repeat(np.arange(len(self.pairs)), self.most - self.easy)
        flight = np.arange(len(stages)) - self.start[stages] + self.easy[stages]  # y - 1
        for part in np.array_split(np.arange(len(stages)), -(-len(stages) * len(one) // BLOCK)):
            check(self.deadline)
            stage, y = stages[part], flight[part]
            inner, outer = self.pairs.inner[stage], self.pairs.outer[stage]
            need = quick_total[outer, y] - quick_total[inner, y] - limits[stage]
            lost = offered.bound(y, count[outer] - count[inner], need)
            self.bounds[part] = self.fast[stage] + lost
        self._rising()

    def _fitting(self, needs: Floats, limits: Floats) -> Ints:
        """For every stage the number of y that fit; needs (layers, y) grow with y."""
        total = self.ideals.total(needs)
        inner, outer = self.pairs.inner, self.pairs.outer
        low, high = np.zeros(len(inner), dtype=np.int64), np.full(len(inner), needs.shape[1])
        while (low < high).any():  # bisection in all stages at once
            middle = (low + high) // 2
            at = np.minimum(middle, needs.shape[1] - 1)
            fits = (low < high) & (total[outer, at] - total[inner, at] <= limits)
            low, high = np.where(fits, middle + 1, low), np.where(fits | (low >= high), high, middle)
        return low

    def _rising(self) -> None:
        """More in flight never makes a stage faster: bounds may be raised to their predecessors'."""
        for step in range(1, int((self.most - self.easy).max(initial=0))):
            at = self.start[:-1][self.most - self.easy > step] + step
            self.bounds[at] = np.maximum(self.bounds[at], self.bounds[at - 1])

    def in_flight(self, stages: Ints, budget: Floats) -> Ints:
        """The largest y with K ≤ budget, for each stage asked for; 0 where there is none."""
        low, high = self.start[stages], self.start[stages + 1]
        end = high
        while True:  # bisection in all stages at once
            unsure = low < high
            if not unsure.any():
                break
            middle = (low + high) // 2
            passes = unsure & (self.bounds[np.minimum(middle, len(self.bounds) - 1)] <= budget)
            low = np.where(passes, middle + 1, low)
            high = np.where(unsure & ~passes, middle, high)
        found = self.easy[stages] + low - self.start[stages]
        assert (low <= end).all()
        return np.where(budget >= self.fast[stages], found, 0)

    def lower(self, stage: int, y: int) -> float:
        """K as far as it is known."""
        if y <= self.easy[stage]:
            return float(self.fast[stage])
        return float(self.bounds[self.start[stage] + y - 1 - self.easy[stage]]) if y <= self.most[stage] else np.inf

    def choose(self, stage: int, layers: list[int], y: int) -> tuple[float, list[int]]:
        """K exactly, and the option of each layer of a stage of this kind; remembers the value."""
        found = exact(self.seconds[layers], (self.stashed * y + self.fixed)[layers], float(self.limits[stage]))
        if found is None:  # fitted by rounding only
            found = np.inf, [0] * len(layers)
        if y > self.easy[stage]:
            first, last = self.start[stage], self.start[stage + 1]
            at = first + y - 1 - self.easy[stage]
            self.bounds[at:last] = np.maximum(self.bounds[at:last], found[0])
        return found
