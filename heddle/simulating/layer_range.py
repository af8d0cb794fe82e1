"""The mean, the least and the most of what differs from layer to layer, column by column.

Bounds ask for the least. Of one layer that is the least of all kinds; of a chunk, which holds layers that follow each
other, it is more: where wide and narrow layers alternate, nearly their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any, Generic, TypeVar

import numpy as np

from heddle.spec.rules.even import even_stages

T = TypeVar("T")
U = TypeVar("U")


class Among(Generic[T]):
    """Three records of columns; one and the same where layers are alike."""

    def __init__(self, mean: T, least: T, most: T) -> None:
        self.mean, self.least, self.most = mean, least, most

    def map(self, change: Callable[[T], U]) -> Among[U]:
        """All three, each computed once."""
        mean = change(self.mean)
        if self.least is self.mean:
            return Among(mean, mean, mean)
        return Among(mean, change(self.least), change(self.most))


def among(records: Sequence[Any], counts: Sequence[Any]) -> Among[Any]:
    """Of the records of each kind of layer, of which there are so many."""
    if len(records) == 1:
        return Among(records[0], records[0], records[0])
    make, columns = type(records[0]), list(zip(*records, strict=True))
    weights = [count / sum(counts) for count in counts]
    return Among(
        make(*(sum(w * column for w, column in zip(weights, each, strict=True)) for each in columns)),
        make(*(reduce(np.minimum, each) for each in columns)),
        make(*(reduce(np.maximum, each) for each in columns)),
    )


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
    used, place = np.unique(which, return_inverse=True)
    known, number = np.unique(np.stack(sizes).astype(np.int64), return_inverse=True)
    runs = [(n, _runs(shape_of, n)) for n in map(int, known)]
    found = []
    for columns in fields:
        prices = np.stack([np.broadcast_to(c[used] if np.ndim(c) else c, len(used)) for c in columns], axis=1)
        table = np.stack([(prices @ counts).min(axis=1) / n for n, counts in runs], axis=1)
        found.append(table[place.ravel(), number.reshape(2, -1)].min(axis=0))
    return found


@lru_cache(maxsize=1024)
def _runs(shape_of: tuple[int, ...], length: int) -> np.ndarray:
    """How many layers of each shape so many successive layers may have: each way once, in columns."""
    shapes = range(max(shape_of) + 1)
    so_far = np.cumsum([[shape == place for place in shapes] for shape in (-1, *shape_of)], axis=0)
    return np.unique(so_far[length:] - so_far[:-length], axis=0).T.astype(np.float64)


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
    degrees, group = np.unique(np.stack([pipeline, virtual]).astype(np.int64), axis=1, return_inverse=True)
    most = np.zeros(seconds.shape[1])
    for number, (ranks, chunks) in enumerate(degrees.T.tolist()):
        rows = np.flatnonzero(group.ravel() == number)
        each = _layers_of_ranks(shape_of, ranks, chunks) @ seconds[:, rows]
        each[0] += ends[0][rows]
        each[-1] += ends[1][rows]
        most[rows] = each.max(axis=0)
    return most


@lru_cache(maxsize=4096)
def _layers_of_ranks(shape_of: tuple[int, ...], pipeline: int, virtual: int) -> np.ndarray:
    """How many layers of each shape each rank has, where stages are as even as can be."""
    counts = np.zeros((pipeline, max(shape_of) + 1))
    start = 0
    for chunk, layers in enumerate(even_stages(len(shape_of), pipeline * virtual)):
        np.add.at(counts[chunk % pipeline], list(shape_of[start : start + layers]), 1)
        start += layers
    return counts
