"""The mean, the least and the most of what differs from layer to layer, column by column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Generic, TypeVar

import numpy as np

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
