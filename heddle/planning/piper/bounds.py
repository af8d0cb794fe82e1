"""Which stages can be part of a plan as good as a known one: bounds on time and memory that are sums over layers."""

from __future__ import annotations

import numpy as np

from heddle.errors import divisors
from heddle.graph.dag import Floats, Ints
from heddle.graph.deadline import check
from heddle.graph.ideals import Ideals
from heddle.planning.piper.stages import BLOCK, Pairs
from heddle.planning.piper.workload import Workload

FORBIDDEN = 1e12  # no time is as long


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
