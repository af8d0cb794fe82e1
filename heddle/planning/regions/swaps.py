"""All exchanges of two devices between two stages, priced at once.

The stages stand in the order of their path, so an exchange changes the exchange of gradients in two stages and at most
four hops. Of a new hop the bound is taken that no matching beats: the worst device's best partner. Where the bound of
an exchange promises something, its matchings are made.
"""

from __future__ import annotations

import numpy as np

from heddle.graph.ideals import Bools
from heddle.planning.regions.cost import data_costs, hops_between
from heddle.planning.regions.matching import bottlenecks
from heddle.planning.regions.path import path_length, shortest_path
from heddle.planning.regions.problem import Floats, Ints, Problem


class Position:
    """A layout under search, its stages in the order of their path."""

    def __init__(self, problem: Problem, layout: Ints) -> None:
        self.problem = problem
        self.members = layout.copy()
        self.hops = hops_between(problem, layout[None])[0]
        self._ordered(shortest_path(self.hops))

    def _ordered(self, order: Ints) -> None:
        self.order = order  # new place: old place
        self.members, self.hops = self.members[order], self.hops[np.ix_(order, order)]
        self.stage_of = np.empty(self.problem.devices, dtype=np.int64)
        self.stage_of[self.members] = np.arange(self.problem.stages)[:, None]
        self.loads = data_costs(self.problem, self.members[None])[0]
        self.path = path_length(self.hops, np.arange(self.problem.stages))
        self.cost = float(self.loads.max()) + 2 * self.path

    def exchange(self, x: int, y: int) -> None:
        """Put each of two devices into the stage of the other, and find the best order anew."""
        a, b = self.stage_of[x], self.stage_of[y]
        self.members[a][self.members[a] == x] = y
        self.members[b][self.members[b] == y] = x
        self._matched((int(a), int(b)))

    def _matched(self, changed: tuple[int, int]) -> None:
        stages = self.problem.stages
        left = np.repeat(changed, stages)
        right = np.tile(np.arange(stages), 2)
        two = (left != right) & ~((left == changed[1]) & (right == changed[0]))
        left, right = left[two], right[two]
        found = bottlenecks(self.problem.hop, self.members[left], self.members[right])
        self.hops[left, right] = self.hops[right, left] = found
        here = np.arange(stages)
        order = shortest_path(self.hops, here)
        shorter = path_length(self.hops, order) < path_length(self.hops, here) - 1e-12
        self._ordered(order if shorter else here)

    def exact(self, xs: Ints, ys: Ints) -> Floats:
        """What the layout would cost after each of some exchanges, its order kept."""
        stages, here = self.problem.stages, np.arange(len(xs))
        layouts = np.repeat(self.members[None], len(xs), axis=0)
        a, b = self.stage_of[xs], self.stage_of[ys]
        layouts[here, a] = np.where(layouts[here, a] == xs[:, None], ys[:, None], layouts[here, a])
        layouts[here, b] = np.where(layouts[here, b] == ys[:, None], xs[:, None], layouts[here, b])
        hops = np.repeat(np.diagonal(self.hops, 1)[None], len(xs), axis=0)
        loads = np.repeat(self.loads[None], len(xs), axis=0)
        for stage in (a, b):
            loads[here, stage] = data_costs(self.problem, layouts[here, stage][:, None])[:, 0]
        which, edge = np.tile(here, 4), np.concatenate((a - 1, a, b - 1, b))
        inside = (edge >= 0) & (edge < stages - 1)
        which, edge = np.unique(np.stack((which, edge))[:, inside], axis=1)
        hops[which, edge] = bottlenecks(self.problem.hop, layouts[which, edge], layouts[which, edge + 1])
        cost: Floats = loads.max(axis=1) + 2 * hops.sum(axis=1)
        return cost

    def bounds(self) -> tuple[Ints, Floats, Floats]:
        """Some devices x; (x, x): at least what the layout costs after each exchange of two, its order kept; the loads.

        Of twins in one stage one is among the devices. The loads, of the two stages after the exchange, break ties.
        """
        p, stage, twins = self.problem, self.stage_of, self.problem.twins
        _, x = np.unique(stage * p.devices + twins, return_index=True)
        mine, kind = stage[x], twins[x]
        peers = self.members[mine]  # (x, replicas): the stage of each, itself among them
        itself = peers == x[:, None]
        sums = p.exchange[:, self.members].sum(axis=2)  # (devices, stages): with all of a stage
        load = sums[np.arange(p.devices), stage]
        # replaced[x, y]: the busiest device of x's stage once y stands in for x
        rest = np.where(itself, -np.inf, load[peers] - p.exchange[peers, x[:, None]])
        replaced = (rest[:, :, None] + p.exchange[:, x][peers]).max(axis=1)
        replaced = np.maximum(replaced, sums[np.ix_(x, mine)].T - p.exchange[np.ix_(x, x)])
        data = np.maximum(np.maximum(replaced, replaced.T), self._others()[np.ix_(mine, mine)])
        none = (mine[:, None] == mine) | (kind[:, None] == kind)
        costs = data + 2 * self._paths(x, peers, itself)
        return x, np.where(none, np.inf, costs), (replaced + replaced.T) / 2

    def _others(self) -> Floats:
        """(stages, stages): the busiest stage but these two."""
        stages = self.problem.stages
        found = np.full((stages, stages), -np.inf)
        missing = np.ones((stages, stages), dtype=bool)
        for busy in np.argsort(-self.loads)[:3]:
            fits = missing.copy()
            fits[busy, :] = fits[:, busy] = False
            found[fits] = self.loads[busy]
            missing &= ~fits
        return found

    def _paths(self, x: Ints, peers: Ints, itself: Bools) -> Floats:
        """(x, x): the length of the path after each exchange, at least."""
        hop, members, stages = self.problem.hop, self.members, self.problem.stages
        mine = self.stage_of[x]
        if stages == 1:
            return np.zeros((len(x), len(x)))
        reach = hop[:, members]  # (devices, stages, replicas)
        if members.shape[1] > 1:
            reach.partition(1, axis=2)
            nearest, second = reach[:, :, 0], reach[:, :, 1]
        else:
            nearest, second = reach[:, :, 0], np.full(reach.shape[:2], np.inf)
        # without[d, x]: from d to the nearest of x's stage but x
        without = np.where(hop[:, x] <= nearest[:, mine], second[:, mine], nearest[:, mine])
        rows = np.arange(len(x))
        total = np.zeros((len(x), len(x)))
        for side in (-1, 1):
            inside = (mine + side >= 0) & (mine + side < stages)
            k = np.where(inside, mine + side, mine)
            there = members[k]  # (x, replicas): the neighboring stage
            to = np.minimum(without[there, rows[:, None]][:, :, None], hop[:, x][there]).max(axis=1)
            back = np.where(itself, -np.inf, nearest[peers, k[:, None]]).max(axis=1)
            new = np.maximum(np.maximum(to, back[:, None]), nearest[np.ix_(x, k)].T)
            # where y is of that very neighbor, both ends of the hop change: below
            total += np.where(inside[:, None] & (mine != (mine + side)[:, None]), new, 0.0)
        total = total + total.T
        edge = np.diagonal(self.hops, 1)
        around = np.append(0.0, edge) + np.append(edge, 0.0)
        old = around[:, None] + around
        a = np.arange(stages - 1)
        old[a, a + 1] = old[a + 1, a] = old[a, a + 1] - edge
        i, j = np.nonzero(mine == mine[:, None] + 1)  # y in the stage after x's

        def seen(i: Ints, j: Ints) -> Floats:
            # from those who stay beside x, and from y, to the nearest of y's stage with x instead of y
            stay = np.minimum(without[peers[i], j[:, None]], hop[peers[i], x[i][:, None]])
            stay = np.where(itself[i], -np.inf, stay).max(axis=1)
            found: Floats = np.maximum(stay, np.minimum(without[x[j], j], hop[x[i], x[j]]))
            return found

        both = np.maximum(seen(i, j), seen(j, i))
        total[i, j] += both
        total[j, i] += both
        found: Floats = self.path - old[np.ix_(mine, mine)] + total
        return found
