"""The mean, the least and the most of what differs from layer to layer, column by column.

Bounds ask for the least. Of one layer that is the least of all kinds; of a chunk, which holds layers that follow each
other, it is more: where wide and narrow layers alternate, nearly their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any, Generic, TypeVar

import numpy as np

from heddle.spec.plan import even_stages

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


def among(records: Sequence[Any], counts: Sequence[int]) -> Among[Any]:
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
    columns: Sequence[Any], shape_of: Sequence[int], sizes: tuple[np.ndarray, np.ndarray], which: np.ndarray
) -> np.ndarray:
    """Per layer, what so many successive layers come to at least, for each plan.

    Args:
        columns: of each shape, what a layer of it comes to: a number, or one for each price.
        shape_of: the shape of each layer.
        sizes: layers of a plan's smaller and of its larger chunks.
        which: the price of each plan.
    """
    count = max(int(which.max()) + 1, *map(np.size, columns))
    prices = np.stack([np.broadcast_to(column, count) for column in columns], axis=1)
    so_far = np.cumsum([[shape == place for place in range(len(columns))] for shape in (-1, *shape_of)], axis=0)
    known, number = np.unique(np.stack(sizes).astype(np.int64), return_inverse=True)
    table = [(prices @ np.unique(so_far[n:] - so_far[:-n], axis=0).T).min(axis=1) / n for n in map(int, known)]
    least: np.ndarray = np.stack(table, axis=1)[which, number.reshape(2, -1)].min(axis=0)
    return least


def most_of_a_rank(
    seconds: np.ndarray, shape_of: tuple[int, ...], pipeline: np.ndarray, virtual: np.ndarray
) -> np.ndarray:
    """What the layers of the slowest rank come to, for each plan; `seconds`: of a layer, for each shape and plan."""
    degrees, group = np.unique(np.stack([pipeline, virtual]).astype(np.int64), axis=1, return_inverse=True)
    most = np.zeros(seconds.shape[1])
    for number, (ranks, chunks) in enumerate(degrees.T.tolist()):
        rows = np.flatnonzero(group.ravel() == number)
        most[rows] = (_layers_of_ranks(shape_of, ranks, chunks) @ seconds[:, rows]).max(axis=0)
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
