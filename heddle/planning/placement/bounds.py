"""Lower bounds on the maximum load of any placement, contiguous or not."""

from __future__ import annotations

from collections import deque

import numpy as np

from heddle.graph.dag import Floats
from heddle.graph.deadline import in_seconds, left
from heddle.planning.placement.operator_graph import PlacementProblem


def lower_bound(problem: PlacementProblem, seconds: float = 1.0) -> float:
    """The better of two: work divided at will, and what the device of some group must at least do."""
    return max(fractional_bound(problem), heaviest_device(problem, fractional_bound(problem), seconds))


def fractional_bound(problem: PlacementProblem) -> float:
    """No placement is better than groups that can be divided at will between devices, moved for nothing."""
    low, high = 0.0, float(problem.accelerator.sum() + problem.cpu.sum())
    runs = np.where(problem.supported, problem.accelerator, 0.0)
    for _ in range(100):
        middle = (low + high) / 2
        enough = problem.accelerators * middle + problem.cpus * most_within(runs, problem.cpu, middle) >= runs.sum()
        low, high = (low, middle) if enough else (middle, high)
    return low


def most_within(weights: Floats, times: Floats, limit: float) -> float:
    """The largest sum of weights of (parts of) groups whose CPU times sum to the limit."""
    if np.isinf(limit):
        return float(weights.sum())
    free = times == 0
    price = np.argsort(-weights[~free] / times[~free])
    used = np.concatenate([[0.0], np.cumsum(times[~free][price])])
    got = np.concatenate([[0.0], np.cumsum(weights[~free][price])])
    return float(weights[free].sum() + np.interp(limit, used, got))


def heaviest_device(problem: PlacementProblem, above: float, seconds: float) -> float:
    """Some device has a given group: at best the set around it with the least time and moves, a minimum cut."""
    alone = np.where(problem.supported, problem.accelerator, 0.0) + problem.nets.T.astype(np.float64) @ problem.cost
    worth = np.minimum(alone, problem.cpu if problem.cpus else np.inf)
    until = in_seconds(seconds)
    for group in np.argsort(-worth).tolist():
        if worth[group] <= above or left(until) < 0:
            break
        on_accelerator = minimum_cut(problem, group, until)[0] if problem.supported[group] else np.inf
        above = max(above, min(on_accelerator, problem.cpu[group] if problem.cpus else np.inf))
    return above


def minimum_cut(problem: PlacementProblem, source: int, until: float = np.inf) -> tuple[float, list[int]]:
    """Least time and moves of a set with the group `source`, and the set: the largest flow from it to a sink.

    Where time runs out, a flow that is not the largest yet: a bound all the same, of a set that is larger.

    A group in the set lets its time flow to the sink; a net that the set meets but does not hold lets its cost flow
    from the members inside to those outside.
    """
    groups, nets = problem.groups, len(problem.cost)
    sink = groups + 2 * nets
    room: list[dict[int, float]] = [{} for _ in range(sink + 1)]

    def pipe(tail: int, head: int, capacity: float) -> None:
        room[tail][head] = room[tail].get(head, 0.0) + capacity
        room[head].setdefault(tail, 0.0)

    for group in range(groups):
        pipe(group, sink, float(problem.accelerator[group]))
    for net in range(nets):
        entry, leave = groups + 2 * net, groups + 2 * net + 1
        pipe(entry, leave, float(problem.cost[net]))
        for member in np.flatnonzero(problem.nets[net]).tolist():
            pipe(member, entry, np.inf)
            pipe(leave, member, np.inf)
    flow, least = 0.0, 1e-12 * (problem.accelerator.sum() + problem.cost.sum())
    while True:  # shortest augmenting paths (Edmonds and Karp)
        came = {source: source}
        queue = deque([source])
        while queue and sink not in came:
            node = queue.popleft()
            for after, capacity in room[node].items():
                if capacity > least and after not in came:
                    came[after] = node
                    queue.append(after)
        if sink not in came or left(until) < 0:
            return flow, [node for node in came if node < groups]
        path = [sink]
        while path[-1] != source:
            path.append(came[path[-1]])
        steps = list(zip(path[1:], path[:-1], strict=True))
        amount = min(room[tail][head] for tail, head in steps)
        for tail, head in steps:
            room[tail][head] -= amount
            room[head][tail] += amount
        flow += amount
