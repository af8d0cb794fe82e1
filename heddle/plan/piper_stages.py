"""All stages that Piper may choose from: a pair of up-sets, one inside the other, is the stage between them.

Sums over a stage are differences of sums over up-sets, and the bytes that cross its borders are a matrix product, so
nothing is added up stage by stage. How long a stage takes depends on its tensor degree t, its data degree d and the
microbatches y that it holds in flight:

    d · time = K(t, y) + crossing / bandwidth + (d-1) · 4 · parameters / (microbatches · bandwidth)

where K is the knapsack's answer. K is kept for every y as a lower bound that is replaced by the exact value when asked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from heddle.errors import divisors
from heddle.graph.dag import Floats, Ints
from heddle.graph.ideals import Ideals
from heddle.plan.piper_knapsack import exact, swaps
from heddle.plan.piper_workload import Options, Workload

BLOCK = 4_000_000  # pairs looked at together
FORBIDDEN = 1e12  # no time is as long


class OutOfTime(Exception):  # noqa: N818 - caught where the best so far is known
    """The time limit was reached."""


def check(deadline: float) -> None:
    """Stop where there is no time left."""
    if time.perf_counter() > deadline:
        raise OutOfTime


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


class Bounds:
    """Device-seconds that a stage takes at least, memory counted, as sums over its layers.

    For any price of a byte, the options of a stage's layers cost at least the sum of each layer's cheapest
    time + price · bytes, less the price of all the memory that a device has (Lagrange). So a bound on the knapsack is a
    difference of two sums, like everything else.
    """

    def __init__(self, workload: Workload, ideals: Ideals, prices: int = 6) -> None:
        self.workload, self.ideals = workload, ideals
        found = []
        for o in workload.degrees:
            with np.errstate(invalid="ignore", divide="ignore"):  # an option that a layer lacks is infinite
                lost, saved = o.seconds - o.seconds.min(axis=1, keepdims=True), o.stashed[:, :1] - o.stashed
                price = o.tensor * lost / saved
            found.append(price[np.isfinite(price) & (price > 0)])
        each = np.concatenate(found)
        self.prices = [0.0, *(np.quantile(each, np.linspace(0, 1, prices)).tolist() if len(each) else [])]
        self._sums: dict[tuple[float, int], Floats] = {}

    def sums(self, price: float, y: int) -> Floats:
        """For every ideal the cheapest device-seconds and priced bytes, with y microbatches in flight."""
        if (price, y) not in self._sums:
            layers = []
            for o in self.workload.degrees:
                held = np.where(np.isfinite(o.seconds), o.stashed, 0.0) * y + np.where(
                    np.isfinite(o.seconds), o.fixed, 0.0
                )
                layers.append(o.tensor * o.seconds + price * held)
            self._sums[price, y] = self.ideals.total(np.min([layer.min(axis=1) for layer in layers], axis=0))
        return self._sums[price, y]

    def fewest(self, work: list[Floats], pace: float) -> Ints:
        """Devices that so much work takes at least; work by price. A stage of any size brings at least its memory."""
        each = [w / (pace + price * self.workload.memory) for w, price in zip(work, self.prices, strict=True)]
        return np.asarray(np.ceil(np.max(each, axis=0) * (1 - 1e-9)), dtype=np.int64)

    def pace(self, devices: int) -> float:
        """No plan for so many devices is faster."""
        whole = [self.sums(price, 1)[-1:] for price in self.prices]
        low, high = 0.0, float(whole[0][0])
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.fewest(whole, middle)[0] > devices else (low, middle)
        return low

    def knapsack(self, inner: Ints, outer: Ints, y: Ints) -> Floats:
        """At least so many device-seconds for stages, each with its own y."""
        best = np.zeros(len(inner))
        for flight in np.unique(y).tolist():
            at = np.flatnonzero(y == flight)
            for price in self.prices:
                sums = self.sums(price, flight)
                bound = sums[outer[at]] - sums[inner[at]] - price * self.workload.memory
                best[at] = np.maximum(best[at], bound)
        return best


def near(workload: Workload, ideals: Ideals, pace: float, deadline: float = np.inf) -> Pairs:
    """Pairs whose stage can be part of a plan that is no slower than the pace, by bounds that are sums.

    A stage on n devices needs that many device-seconds at least; the layers before and after it must fit the others.
    """
    devices = workload.devices
    inside, outside = ideals.dense, 1 - ideals.dense
    bounds = Bounds(workload, ideals)
    work = [bounds.sums(price, 1) for price in bounds.prices]
    fewest = bounds.fewest(work, pace)
    most = devices - bounds.fewest([total[-1] - total for total in work], pace)
    # Bytes that cross at least, whatever the tensor degree.
    graph = workload.graph
    receive, send = (np.min([getattr(o, side) for o in workload.degrees], axis=0) for side in ("receive", "send"))
    over = np.zeros((graph.nodes, graph.nodes))
    np.add.at(over, (graph.heads, graph.tails), receive + send)
    enters = inside[:, graph.heads] * outside[:, graph.tails]
    into, out = enters @ receive / workload.bandwidth, enters @ send / workload.bandwidth
    # One product gives the lacking members, which rule a pair out, and the bytes that jump over the stage.
    left = inside @ over / -workload.bandwidth + inside * FORBIDDEN
    largest, later_degree = pace * (1 + 1e-9), workload.degrees[-1].tensor
    degrees = np.array([d for d in divisors(workload.microbatches) if d <= devices])
    found = []
    hopeful = np.flatnonzero(fewest <= most)
    rows = max(1, BLOCK // len(ideals))
    for start in range(0, len(hopeful), rows):
        check(deadline)
        outer, inner = hopeful[start : start + rows], hopeful[: start + rows]
        crossing = outside[outer] @ left[inner].T
        crossing += into[outer][:, None] + out[inner]
        # The most devices that may go to this stage: beyond that, too few are left for the rest.
        allowed = most[outer][:, None] - fewest[inner]
        load = crossing + work[0][outer][:, None] - work[0][inner]
        row, column = np.nonzero(load <= allowed * largest)
        pair = inner[column], outer[row]
        base, allowed = crossing[row, column], allowed[row, column]
        # The later stages' data degrees sum to at least this, so at least so many microbatches are in flight.
        later = -(-fewest[pair[0]] // later_degree)
        passes = pair[0] == pair[1]
        for d in degrees.tolist():
            at = np.flatnonzero(~passes & (allowed >= d))
            needs = bounds.knapsack(pair[0][at], pair[1][at], 1 - (-later[at] // d))
            used = np.minimum(allowed[at], d * later_degree)
            passes[at] = base[at] + needs <= used * largest
        keep = passes & (pair[0] < pair[1])
        found.append((pair[0][keep], pair[1][keep]))
    inner, outer = (np.concatenate(column) for column in zip(*found, strict=True))
    return Pairs(inner, outer)


class DegreeTable:
    """Times and memory of all stages at one tensor degree, for one or several data degrees."""

    def __init__(
        self,
        ideals: Ideals,
        pairs: Pairs,
        workload: Workload,
        options: Options,
        data: list[int],
        deadline: float = np.inf,
    ) -> None:
        self.tensor, self.data, self.deadline = options.tensor, data, deadline
        self.ideals, self.pairs, self.memory = ideals, pairs, workload.memory
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
        self.crossing = self._crossing(workload, options) / workload.bandwidth
        self._memory_table(min(workload.devices, workload.microbatches), possible)

    def _crossing(self, workload: Workload, options: Options) -> Floats:
        """Bytes over the borders of every stage, by (D' = later stages, D = D' and the stage), both up-sets.

        An edge into the stage has its tail outside D, an edge out of it has its head in D'. So the bytes are those into
        D, plus those into D' on the sender's side, minus what jumps over the stage, from outside D into D'.
        """
        inside, pairs = self.ideals.dense, self.pairs
        graph = workload.graph
        over = np.zeros((graph.nodes, graph.nodes))
        np.add.at(over, (graph.heads, graph.tails), options.receive + options.send)
        enters = inside[:, graph.heads] * (1 - inside[:, graph.tails])
        into, out = enters @ options.receive, enters @ options.send
        jumps = np.empty(len(pairs))
        reach = inside @ over
        for start in range(0, len(pairs), BLOCK // graph.nodes):
            part = slice(start, start + BLOCK // graph.nodes)
            jumps[part] = np.einsum("pn,pn->p", reach[pairs.inner[part]], 1 - inside[pairs.outer[part]])
        return into[pairs.outer] + out[pairs.inner] - jumps

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
        limit = self.memory * (1 + 1e-12)
        self.easy = self._fitting(self.quick_needs, limit) * possible  # largest y whose fastest choice fits
        self.most = self._fitting(np.where(np.isfinite(smallest), smallest, 0.0), limit) * possible
        self.start = np.concatenate([[0], np.cumsum(self.most - self.easy)])
        self.bounds = np.empty(self.start[-1])
        self.known = np.zeros(self.start[-1], dtype=np.bool_)
        if not len(self.bounds):
            return
        offered = swaps(self.seconds, np.moveaxis(needs[:, :, : self.most.max()], 2, 0))
        members, quick_total = self.ideals.members, self.ideals.total(self.quick_needs)
        stages = np.repeat(np.arange(len(self.pairs)), self.most - self.easy)
        flight = np.arange(len(stages)) - self.start[stages] + self.easy[stages]  # y - 1
        for part in np.array_split(np.arange(len(stages)), -(-len(stages) * len(self.seconds) // BLOCK)):
            check(self.deadline)
            stage, y = stages[part], flight[part]
            inner, outer = self.pairs.inner[stage], self.pairs.outer[stage]
            need = quick_total[outer, y] - quick_total[inner, y] - limit
            lost = offered.bound(y, members[outer] & ~members[inner], need)
            self.bounds[part] = self.fast[stage] + lost
        self._rising()

    def _fitting(self, needs: Floats, limit: float) -> Ints:
        """For every stage the number of y that fit; needs (layers, y) grow with y."""
        total = self.ideals.total(needs)
        inner, outer = self.pairs.inner, self.pairs.outer
        low, high = np.zeros(len(inner), dtype=np.int64), np.full(len(inner), needs.shape[1])
        while (low < high).any():  # bisection in all stages at once
            middle = (low + high) // 2
            at = np.minimum(middle, needs.shape[1] - 1)
            fits = (low < high) & (total[outer, at] - total[inner, at] <= limit)
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

    def choose(self, stage: int, y: int) -> tuple[float, list[int]]:
        """K exactly, and the option of each of the stage's layers; remembers the value."""
        layers = self.ideals.difference(int(self.pairs.outer[stage]), int(self.pairs.inner[stage]))
        found = exact(self.seconds[layers], (self.stashed * y + self.fixed)[layers], self.memory)
        if found is None:  # fitted by rounding only
            found = np.inf, [0] * len(layers)
        if y > self.easy[stage]:
            first, last = self.start[stage], self.start[stage + 1]
            at = first + y - 1 - self.easy[stage]
            self.bounds[at:last] = np.maximum(self.bounds[at:last], found[0])
            self.known[at] = True
        return found
