"""What no layout can beat.

Three facts, each of every layout; P stages, D replicas, m(d) the fastest hop of device d to any other.

1. A device exchanges gradients with D - 1 others: at least with the D - 1 nearest.
2. Sort the m(d) in descending order. Of a layout's P - 1 hops, in descending order, the i-th is at least
   m[D·(i - 1)]: the D·(i - 1) + 1 slowest devices lie in at least i stages, each hop at one of these stages takes at
   least that long, and i < P places of a path touch at least i of its hops (all P touch all P - 1).
3. Let the hops below h join the devices into components. Where a hop of the path is below h, its matching stays within
   components, so the two stages have equally many devices of each. If r hops are not below h, the path falls into r + 1
   runs of stages; in a run of l stages a component of s devices has at most s // l devices in each stage. A device in
   that run exchanges gradients with D - 1 others of which each component provides at most s // l: its load is at least
   the sum over the nearest such, `load(d, l)`, which does not fall with l.
   For layouts with a data cost of at most T, a device may only be in runs up to its largest l with load(d, l) <= T, and
   runs of l_1, l_2 … stages take D·l_i devices each. The least number of runs that this allows gives r(T) hops of at
   least h. A layout with data cost T costs at least T + 2 · (hops by 2, the r(T) largest of them at least h). The bound
   is the least of that over T; only the values of load(d, l) can be the least, as r changes at these alone.

The bound is the largest over all h that join components.
"""

from __future__ import annotations

import numpy as np

from heddle.planning.regions.problem import Floats, Ints, Problem
from heddle.planning.regions.starts import merge_levels

_WORK = 2e8  # numbers sorted, over all h


def lower_bound(problem: Problem) -> float:
    """Seconds that every layout costs at least."""
    n, stages = problem.devices, problem.stages
    if n == 1:
        return 0.0
    least = float(
        np.sort(problem.exchange, axis=1)[:, : problem.replicas].sum(axis=1).max()
    )  # 1; each is its own nearest
    hops = _least_hops(problem)
    best = least + 2 * float(hops.sum())
    if stages == 1:
        return best
    levels = merge_levels(problem.hop)[1:-1]  # before the first join all components are single devices
    most = max(1, int(_WORK / (n * n * stages)))
    for index in np.unique(np.linspace(0, len(levels) - 1, min(most, len(levels))).round().astype(int)):
        hop, component = levels[index]
        loads = _loads(problem, component)
        best = max(best, _with_runs(problem, loads, hop, hops, least, best))
    return best


def pipeline_bound(problem: Problem) -> float:
    """Seconds that every pipeline takes at least."""
    return 2 * float(_least_hops(problem).sum())


def _least_hops(problem: Problem) -> Floats:
    """(stages - 1,): fact 2."""
    slowest = np.sort(problem.hop.min(axis=1))[::-1]
    return slowest[problem.replicas * np.arange(problem.stages - 1)]


def _loads(problem: Problem, component: Ints) -> Floats:
    """(stages, devices): load(d, l) of fact 3, for l from 1."""
    n = problem.devices
    _, component = np.unique(component, return_inverse=True)
    sizes = np.bincount(component)
    # rank[d, e]: how many of e's component are nearer to d; d itself is the nearest of its own
    by_cost = np.argsort(problem.exchange, axis=1, kind="stable")
    by_component = np.argsort(component[by_cost], axis=1, kind="stable")
    order = np.take_along_axis(by_cost, by_component, axis=1)
    first = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    rank = np.empty((n, n), dtype=np.int64)
    np.put_along_axis(rank, order, np.arange(n) - first[component[order]], axis=1)
    found = np.empty((problem.stages, n))
    for length in range(1, problem.stages + 1):
        allowed = rank < (sizes // length)[component]
        cost = np.where(allowed, problem.exchange, np.inf)
        cost.partition(problem.replicas - 1, axis=1)
        found[length - 1] = np.where(
            np.diagonal(allowed), cost[:, : problem.replicas].sum(axis=1), np.inf
        )  # a component smaller than the run is not in it at all
    return found


def _with_runs(problem: Problem, loads: Floats, hop: float, hops: Floats, least: float, enough: float) -> float:
    """The least cost over all data costs T, by fact 3. Nothing is won with T above which one run is allowed."""
    values = np.unique(np.concatenate(([least], loads[np.isfinite(loads)])))
    values = values[values >= least]

    def slow_hops(index: int) -> int:
        return _fewest_runs((loads <= values[index]).sum(axis=1), problem.replicas) - 1

    def total(index: int, slow: int) -> float:
        raised = np.where(np.arange(len(hops)) < slow, np.maximum(hops, hop), hops)
        return float(values[index]) + 2 * float(raised.sum())

    # r(T) falls with T in few steps: of each step only its first T counts
    found, index, last = np.inf, 0, len(values) - 1
    while index <= last:
        slow = slow_hops(index)
        found = min(found, total(index, slow))
        if slow == 0 or found <= enough:
            break
        low, high = index + 1, last + 1  # the first index with fewer
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if slow_hops(middle) < slow else (middle + 1, high)
        index = low
    return found


def _fewest_runs(able: Ints, replicas: int) -> int:
    """The fewest runs that cover all stages, if able[l - 1] devices can be in runs of l stages or more."""
    stages = len(able)
    room = [min(stages, int(count) // replicas) for count in able]  # stages that runs of l or more can have in all
    fewest = [0] + [stages + 1] * stages  # by the number of stages that are covered, with runs of l or more
    for length in range(stages, 0, -1):
        for covered in range(length, room[length - 1] + 1):
            fewest[covered] = min(fewest[covered], fewest[covered - length] + 1)
    return min(fewest[stages], stages)
