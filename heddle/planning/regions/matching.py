"""The slowest message between two stages whose devices are matched, one with one, as well as can be."""

from __future__ import annotations

from functools import cache

import numpy as np

from heddle.graph.ideals import Bools
from heddle.planning.regions.problem import Floats, Ints

_SMALL = 8  # up to so many devices per stage all subsets are looked at, for thousands of pairs of stages at once
_AT_ONCE = 1 << 21


def bottlenecks(hop: Floats, left: Ints, right: Ints) -> Floats:
    """(pairs,): the least largest hop over the perfect matchings of left (pairs, devices) with right."""
    count, size = left.shape
    each = max(1, size << size) if size <= _SMALL else size * size
    step = max(1, _AT_ONCE // each)
    found = np.zeros(count)
    for start in range(0, count, step):
        cost = hop[left[start : start + step, :, None], right[start : start + step, None, :]]
        if size <= _SMALL:
            found[start : start + step] = _over_subsets(cost)
        else:
            found[start : start + step] = [bottleneck_matching(each)[0] for each in cost]
    return found


@cache
def _levels(size: int) -> list[tuple[Ints, Ints, Ints]]:
    """For each number of rows: subsets of as many columns, their columns, and the subsets without each of these."""
    levels = []
    for rows in range(1, size + 1):
        subsets = np.array([s for s in range(1 << size) if s.bit_count() == rows])
        columns = np.array([[c for c in range(size) if s >> c & 1] for s in subsets])
        levels.append((subsets, columns, subsets[:, None] ^ (1 << columns)))
    return levels


def _over_subsets(cost: Floats) -> Floats:
    """best[subset] matches the first rows with the columns of the subset: the last row takes any one of these."""
    best = np.zeros((1 << cost.shape[1], len(cost)))
    for row, (subsets, columns, without) in enumerate(_levels(cost.shape[1])):
        taken = np.ascontiguousarray(cost[:, row, :].T)
        best[subsets] = np.maximum(best[without], taken[columns]).min(axis=1)
    found: Floats = best[-1]
    return found


def bottleneck_matching(cost: Floats) -> tuple[float, list[int]]:
    """The least largest cost of a perfect matching, and the column of every row in one that reaches it.

    No matching beats the worst row's or column's best: that is the first limit. Row after row looks for a column within
    the limit, breadth first over the rows that own the columns it wants. If it finds none, the rows that it reached
    want fewer columns than they are (Hall): the limit must rise to their least cost in any other column.
    """
    size = len(cost)
    limit = max(cost.min(axis=1).max(), cost.min(axis=0).max())
    wants = _bits(cost <= limit)
    owner, column_of = [-1] * size, [-1] * size
    free = every = (1 << size) - 1
    for row in range(size):
        end = -1
        while end < 0:
            asked: dict[int, int] = {}  # column: the row that would take it
            queue, unseen = [row], every
            for asking in queue:
                wanted = wants[asking] & unseen
                if wanted & free:
                    end = (wanted & free).bit_length() - 1
                    asked[end] = asking
                    break
                unseen &= ~wanted
                while wanted:
                    column = wanted.bit_length() - 1
                    wanted ^= 1 << column
                    asked[column] = asking
                    queue.append(owner[column])
            if end < 0:
                others = [column for column in range(size) if unseen >> column & 1]
                limit = cost[np.ix_(queue, others)].min()
                wants = _bits(cost <= limit)
        free ^= 1 << end
        while end >= 0:  # each row on the way takes the column it asked for, and leaves its own to the one before
            asking = asked[end]
            owner[end], column_of[asking], end = asking, end, column_of[asking]
    return float(limit), column_of


def _bits(allowed: Bools) -> list[int]:
    """Each row as a number, its first column the lowest bit."""
    packed = np.packbits(allowed, axis=1, bitorder="little")
    raw, width = packed.tobytes(), packed.shape[1]
    return [int.from_bytes(raw[at : at + width], "little") for at in range(0, len(raw), width)]
