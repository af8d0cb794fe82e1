"""What depends on few fields of a plan, computed once for each combination of their values, and spread over the plans.

Among a hundred thousand plans of one model there are perhaps a hundred prices of a layer, and a thousand or two orders
of work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from heddle.cost.work import Work
from heddle.simulating.among import Among
from heddle.spec.axes import AXES

T = TypeVar("T")

# What may differ between plans of one model and one batch.
_OF_A_PLAN = {*AXES, "sequence_parallel", "virtual", "zero", "shard_ranks", "microbatch", "schedule"}
_OF_A_PLAN |= {
    "expert",
    "whole_experts",
    "context_exchange",
    "context_inner",
    "full",
    "selective",
    "elementwise",
    "per_op",
    "scatter",
    "regather",
}


class Once(Generic[T]):
    """A record of columns, with a row for each combination; `which`: the row of each plan, None: they are in order."""

    def __init__(self, record: T, which: np.ndarray | None) -> None:
        self.record, self.which = record, which

    def of(self, plans: slice) -> T:
        """The record of some plans, column by column."""
        found: T = spread(self.record, plans if self.which is None else self.which[plans])
        return found


def once(work: Work, fields: Sequence[Any], compute: Callable[[Work], T]) -> Once[T]:
    """`compute(work)`, which depends on these fields of a plan alone: columns of whole numbers, or numbers for all."""
    columns = [field for field in fields if np.ndim(field)]
    if not columns or not len(work) or not all(map(_whole, columns)) or set(work.arrays) - _OF_A_PLAN:
        return Once(compute(work.as_floats()), None)
    rows, which = distinct([np.asarray(column, dtype=np.int64) for column in columns])
    return Once(compute(work.take(rows).as_floats()), which)


def _whole(column: np.ndarray) -> bool:
    return bool(np.issubdtype(column.dtype, np.integer) or np.array_equal(column, column.astype(np.int64)))


def distinct(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each combination of values, and for every row the place of its combination in their order.

    As `np.unique` of rows, but it counts instead of sorting, so it takes whole numbers from 0 on.
    """
    place, count = _numbered(columns[0])
    for column in columns[1:]:
        values, several = _numbered(column)
        place, count = _numbered(place * several + values)
    rows = np.empty(count, dtype=np.int64)
    rows[place[::-1]] = np.arange(len(place))[::-1]  # of those with one place the last that is written stays
    return rows, place


def by_group(place: np.ndarray) -> list[np.ndarray]:
    """The rows of each combination, in the order of `distinct`."""
    # of short numbers NumPy's stable sort counts digits, which is several times as fast
    count = int(place.max(initial=-1)) + 1
    order = np.argsort(place.astype(np.int16) if count < 2**15 else place, kind="stable")
    return np.split(order, np.cumsum(np.bincount(place, minlength=count))[:-1])


def _numbered(column: np.ndarray) -> tuple[np.ndarray, int]:
    """Values by their place among those that occur, and how many do."""
    occurs = np.zeros(int(column.max()) + 1, dtype=bool)
    occurs[column] = True
    values = np.flatnonzero(occurs)
    place = np.zeros(len(occurs), dtype=np.int64)
    place[values] = np.arange(len(values))
    return place[column], len(values)


def spread(record: Any, which: Any) -> Any:
    """The rows `which` of every column of a record; numbers hold for all."""
    if isinstance(record, Among):
        return record.map(lambda each: spread(each, which))
    if isinstance(record, tuple):
        columns = [spread(column, which) for column in record]
        return type(record)(*columns) if hasattr(record, "_fields") else tuple(columns)
    if not np.ndim(record):
        return record
    return record[which] if isinstance(which, slice) else record.take(which)
