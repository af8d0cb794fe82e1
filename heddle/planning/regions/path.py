"""The cheapest open path through all stages: exact for few (Held and Karp 1962), by local search for many."""

from __future__ import annotations

from functools import cache

import numpy as np

from heddle.planning.regions.problem import Floats, Ints

EXACT = 9  # stages up to which the path is exact wherever one is asked for
EXACT_AT_LAST = 16  # and up to which the answer's own is
_AT_ONCE = 1 << 21


def path_length(hops: Floats, order: Ints) -> float:
    """Seconds of one way through the stages in this order."""
    return float(hops[order[:-1], order[1:]].sum())


def shortest_lengths(hops: Floats) -> Floats:
    """(networks,): the length of the cheapest path through each (networks, stages, stages)."""
    count, stages, _ = hops.shape
    if stages > EXACT:
        return np.array([path_length(each, shortest_path(each)) for each in hops]).reshape(count)
    step = max(1, _AT_ONCE // (stages * stages << stages))
    parts = [_table(hops[start : start + step])[-1].min(axis=0) for start in range(0, count, step)]
    return np.concatenate(parts) if parts else np.zeros(0)


def shortest_path(hops: Floats, start: Ints | None = None, exact: int = EXACT) -> Ints:
    """The order of the stages on the cheapest path; with many stages a good one, never longer than `start`."""
    stages = len(hops)
    if stages > exact:
        return _improved(hops, start)
    best = _table(hops[None])[:, :, 0]
    subset = (1 << stages) - 1
    order = [int(best[subset].argmin())]
    while len(order) < stages:
        last, subset = order[-1], subset ^ (1 << order[-1])
        order.append(int((best[subset] + hops[:, last]).argmin()))
    return np.array(order)


@cache
def _levels(stages: int) -> list[tuple[Ints, Ints, Ints]]:
    """For each size above 1: (subset, last stage) of all subsets of it, and the subset without its last stage."""
    levels = []
    for size in range(2, stages + 1):
        subsets = np.array([s for s in range(1 << stages) if s.bit_count() == size])
        inside = (subsets[:, None] >> np.arange(stages) & 1).astype(bool)
        where, last = np.nonzero(inside)
        levels.append((subsets[where], last, subsets[where] ^ (1 << last)))
    return levels


def _table(hops: Floats) -> Floats:
    """(subsets, last stage, networks): the shortest path over the stages of a subset that ends in one of them."""
    count, stages, _ = hops.shape
    best = np.full((1 << stages, stages, count), np.inf)
    best[1 << np.arange(stages), np.arange(stages)] = 0.0
    arriving = np.ascontiguousarray(hops.transpose(2, 1, 0))  # to, from, network
    for subsets, last, before in _levels(stages):
        best[subsets, last] = (best[before] + arriving[last]).min(axis=1)
    return best


def _improved(hops: Floats, start: Ints | None) -> Ints:
    """Reversals and moves of runs of up to three stages, from `start`, else from the best nearest-neighbor path."""
    stages = len(hops)
    if start is None:
        order = min((_nearest(hops, first) for first in range(stages)), key=lambda found: path_length(hops, found))
    else:
        order = start.copy()
    # A stage at distance 0 of all others closes the path to a tour: its ends need no case of their own.
    padded = np.zeros((stages + 1, stages + 1))
    padded[:stages, :stages] = np.where(np.eye(stages, dtype=bool), 0.0, hops)
    while True:
        tour = np.concatenate(([stages], order, [stages]))
        i, j = np.triu_indices(stages, 0)
        i, j = i + 1, j + 1  # reverse tour[i..j]
        before, first, final, after = tour[i - 1], tour[i], tour[j], tour[j + 1]
        gain = padded[before, first] + padded[final, after] - padded[before, final] - padded[first, after]
        best = int(gain.argmax())
        if gain[best] > 1e-12:
            order[i[best] - 1 : j[best]] = order[i[best] - 1 : j[best]][::-1].copy()
            continue
        moved = _moved(padded, tour, order)
        if moved is None:
            return order
        order = moved


def _moved(padded: Floats, tour: Ints, order: Ints) -> Ints | None:
    """The best move of one to three stages to another place, either way round; None if nothing is gained."""
    stages, best_gain, best = len(order), 1e-12, None
    for run in range(1, min(3, stages - 1) + 1):
        for start in range(1, stages - run + 2):
            left, right = tour[start - 1], tour[start + run]
            head, tail = tour[start], tour[start + run - 1]
            saved = padded[left, head] + padded[tail, right] - padded[left, right]
            rest = np.concatenate((tour[:start], tour[start + run :]))
            there = padded[rest[:-1], rest[1:]]
            for a, b, way in ((head, tail, 1), (tail, head, -1)):
                gain = saved - (padded[rest[:-1], a] + padded[b, rest[1:]] - there)
                where = int(gain.argmax())
                if gain[where] > best_gain:
                    piece = tour[start : start + run][::way]
                    best_gain = float(gain[where])
                    best = np.concatenate((rest[: where + 1], piece, rest[where + 1 :]))[1:-1]
    return best


def _nearest(hops: Floats, first: int) -> Ints:
    """From one stage always on to the nearest that is left."""
    order, left = [first], np.zeros(len(hops))
    left[first] = np.inf
    while len(order) < len(hops):
        order.append(int((hops[order[-1]] + left).argmin()))
        left[order[-1]] = np.inf
    return np.array(order)
