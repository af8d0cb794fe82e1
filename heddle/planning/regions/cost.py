"""What layouts cost, thousands at a time. A layout is (stages, replicas): the devices of each stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heddle.planning.regions.matching import bottleneck_matching, bottlenecks
from heddle.planning.regions.path import EXACT_AT_LAST, path_length, shortest_lengths, shortest_path
from heddle.planning.regions.problem import Floats, Ints, Problem

_AT_ONCE = 1 << 22


@dataclass(frozen=True, eq=False)
class Layout:
    """A layout in its best order, and its parts: `devices[j, p]` holds stage j of pipeline p."""

    devices: Ints
    exchange: Floats  # (stages,): seconds that the busiest device of each stage exchanges gradients
    hops: Floats  # (stages - 1,): seconds from each stage to the next

    @property
    def data(self) -> float:
        return float(self.exchange.max())

    @property
    def pipeline(self) -> float:
        return 2 * float(self.hops.sum())

    @property
    def cost(self) -> float:
        return self.data + self.pipeline


def data_costs(problem: Problem, layouts: Ints) -> Floats:
    """(layouts, stages): what the busiest device of each stage takes to exchange gradients."""
    pairs = problem.exchange[layouts[..., :, None], layouts[..., None, :]]
    found: Floats = pairs.sum(axis=-1).max(axis=-1)
    return found


def hops_between(problem: Problem, layouts: Ints) -> Floats:
    """(layouts, stages, stages): the bottleneck matching of each two stages; 0 on the diagonal."""
    count, stages, _ = layouts.shape
    a, b = np.triu_indices(stages, 1)
    size = problem.replicas
    found = bottlenecks(problem.hop, layouts[:, a].reshape(-1, size), layouts[:, b].reshape(-1, size))
    hops = np.zeros((count, stages, stages))
    hops[:, a, b] = found.reshape(count, len(a))
    return hops + hops.transpose(0, 2, 1)


def costs_of(problem: Problem, layouts: Ints) -> Floats:
    """(layouts,): what each costs in its best order."""
    step = max(1, _AT_ONCE // problem.devices**2)
    parts = []
    for start in range(0, len(layouts), step):
        some = layouts[start : start + step]
        parts.append(data_costs(problem, some).max(axis=1) + 2 * shortest_lengths(hops_between(problem, some)))
    return np.concatenate(parts) if parts else np.zeros(0)


def laid_out(problem: Problem, stages: Ints, order: Ints | None = None) -> Layout:
    """The best order of these stages, and pipelines along the matchings between neighbors."""
    hops = hops_between(problem, stages[None])[0]
    best = shortest_path(hops, order, EXACT_AT_LAST)
    if order is not None and path_length(hops, order) <= path_length(hops, best):
        best = order
    devices = stages[best].copy()
    for stage in range(1, len(devices)):
        between = problem.hop[np.ix_(devices[stage - 1], devices[stage])]
        devices[stage] = devices[stage][bottleneck_matching(between)[1]]
    return Layout(devices, data_costs(problem, devices[None])[0], hops[best[:-1], best[1:]])
