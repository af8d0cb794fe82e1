"""The mean, the least and the most of what differs from layer to layer, column by column: bounds ask for the least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from typing import Any, Generic, TypeVar

import numpy as np

T = TypeVar("T")
U = TypeVar("U")


class Among(Generic[T]):
    """Three records of columns; one and the same where layers are alike."""

    def __init__(self, mean: T, least: T, most: T) -> None:
        self._given = mean, least, most

    @cached_property
    def mean(self) -> T:
        """Of all layers."""
        return self._given[0]

    @cached_property
    def least(self) -> T:
        """Column by column, that of whichever layer has least."""
        return self._given[1]

    @cached_property
    def most(self) -> T:
        """The same of whichever has most."""
        return self._given[2]

    @property
    def alike(self) -> bool:
        """Whether all three are one."""
        return self._given[1] is self._given[0]

    def map(self, change: Callable[[T], U]) -> Among[U]:
        """All three, each computed once, and only where it is asked for."""
        return _Changed(self, change)


class _Changed(Among[U], Generic[T, U]):
    def __init__(self, source: Among[T], change: Callable[[T], U]) -> None:
        self._source, self._change = source, change

    @cached_property
    def mean(self) -> U:
        return self._change(self._source.mean)

    @cached_property
    def least(self) -> U:
        return self.mean if self.alike else self._change(self._source.least)

    @cached_property
    def most(self) -> U:
        return self.mean if self.alike else self._change(self._source.most)

    @property
    def alike(self) -> bool:
        return self._source.alike


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
