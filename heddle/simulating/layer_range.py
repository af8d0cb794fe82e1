"""What layers that follow each other come to where they differ, for many plans at once.

Of one layer the least is that of all kinds; of a chunk, which holds layers that follow each other, it is more: where
wide and narrow layers alternate, nearly their mean. And which rank has the slower ones is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from heddle.simulating.distinct import by_group, distinct
from heddle.spec.rules.even import even_stages


def of_runs(
    fields: Iterable[Sequence[Any]], shape_of: tuple[int, ...], sizes: tuple[np.ndarray, np.ndarray], which: np.ndarray
) -> list[np.ndarray]:
    """Per layer, what so many successive layers come to at least, for each plan.

    Args:
        fields: for each, what a layer of each shape comes to: a number, or one for each price.
        shape_of: the shape of each layer.
        sizes: layers of a plan's smaller and of its larger chunks.
        which: the price of each plan.
    """
    rows, place = distinct([which])
    used = which[rows]
    both = np.concatenate(sizes).astype(np.int64)
    rows, number = distinct([both])
    runs = [(n, _runs(shape_of, n)) for n in both[rows].tolist()]
    shapes = list(zip(*fields, strict=True))
    prices = np.empty((len(shapes), len(shapes[0]), len(used)))
    for shape, columns in enumerate(shapes):
        for field, column in enumerate(columns):
            prices[shape, field] = column[used] if np.ndim(column) else column
    flat = prices.reshape(len(shapes), -1)
    table = np.stack([(counts @ flat).min(axis=0) / n for n, counts in runs])
    table = table.reshape(len(runs), -1, len(used)).transpose(1, 0, 2).reshape(prices.shape[1], -1)
    small, large = number.reshape(2, -1) * len(used) + place
    return list(np.minimum(table.take(small, axis=1), table.take(large, axis=1)))


@lru_cache(maxsize=1024)
def _runs(shape_of: tuple[int, ...], length: int) -> np.ndarray:
    """How many layers of each shape so many successive layers may have: each way once."""
    shapes = range(max(shape_of) + 1)
    so_far = np.cumsum([[shape == place for place in shapes] for shape in (-1, *shape_of)], axis=0)
    return np.unique(so_far[length:] - so_far[:-length], axis=0).astype(np.float64)


def most_of_a_rank(
    seconds: np.ndarray,
    shape_of: tuple[int, ...],
    pipeline: np.ndarray,
    virtual: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """What the layers of the slowest rank come to, for each plan.

    `seconds`: of a layer, for each shape and plan; `ends`: what the first and the last rank have beside layers.
    """
    degrees = [column.astype(np.int64) for column in (pipeline, virtual)]
    one_of_each, group = distinct(degrees)
    most = np.zeros(seconds.shape[1])
    for row, rows in zip(one_of_each, by_group(group), strict=True):
        first, last, others = _layers_of_ranks(shape_of, *(int(column[row]) for column in degrees))
        own = seconds[:, rows]
        slowest = np.maximum(first @ own + ends[0][rows], last @ own + ends[1][rows])
        if first is last:  # one rank has both
            slowest = first @ own + ends[0][rows] + ends[1][rows]
        most[rows] = np.maximum(slowest, (others @ own).max(axis=0, initial=0.0))
    return most


@lru_cache(maxsize=4096)
def _layers_of_ranks(
    shape_of: tuple[int, ...], pipeline: int, virtual: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many layers of each shape the first rank has, the last, and those between, each kind of them once; stages
    are as even as can be.

    Of those between, one that has no more of any shape than another is never slower.
    """
    counts = np.zeros((pipeline, max(shape_of) + 1))
    start = 0
    for chunk, layers in enumerate(even_stages(len(shape_of), pipeline * virtual)):
        np.add.at(counts[chunk % pipeline], list(shape_of[start : start + layers]), 1)
        start += layers
    first = counts[0]
    last = counts[-1] if pipeline > 1 else first
    kinds = np.unique(counts[1:-1], axis=0)
    beaten = (kinds[:, None] <= kinds[None]).all(axis=2) & ~np.eye(len(kinds), dtype=bool)
    return first, last, kinds[~beaten.any(axis=1)]
