"""For all vectors at once: the vectors that hold most of their lanes, and pairs of those that hold them all.

Tens of thousands of pairs are looked at, so this is done with arrays: a type and two widths at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from heddle.lanes.packs.builder import Builder
from heddle.lanes.packs.graph import Item

FIRST, SECOND = 8, 12  # how many vectors are looked at for either of a pair, those with most of the lanes first
PAIRS = 4  # that are kept for each vector, of each width of theirs

Array = np.ndarray[Any, Any]
Pair = tuple[int, int, tuple[int, ...]]  # two vectors, and the mask over both

_ONE, _TWO = np.array([(i, j) for i in range(FIRST) for j in range(i + 1, SECOND)]).T


class Sources:
    """Vectors of one type and width that an instruction or a load makes."""

    def __init__(self, items: list[tuple[int, Item]], number: dict[str, int]) -> None:
        self.items = np.array([n for n, _ in items])
        self.lanes = _numbers([item for _, item in items], number)
        self.width = self.lanes.shape[1]
        self.first = np.full((len(items), len(number) + 1), -1)  # where each has a lane first; the last is any other
        rows = np.arange(len(items))
        for k in reversed(range(self.width)):
            self.first[rows, self.lanes[:, k]] = k


class Nearest:
    """What was found, by vector: pairs by the width of theirs, and vectors of its width with some of its lanes."""

    def __init__(self, w: Builder, wanted: Iterable[int]) -> None:
        self.pairs: dict[tuple[int, int], list[Pair]] = {}
        self.same: dict[int, list[tuple[int, list[int]]]] = {}  # and which lanes they lack in their place
        items = w.graph.items
        held: dict[str, dict[int, list[tuple[int, Item]]]] = {}
        for n, item in enumerate(items):
            if w.graph.natives[n]:
                held.setdefault(item.type, {}).setdefault(len(item.lanes), []).append((n, Item(item.type, w.held(n))))
        groups: dict[tuple[str, int], list[int]] = {}
        for n in wanted:
            groups.setdefault((items[n].type, len(items[n].lanes)), []).append(n)
        for kind, by_width in held.items():
            every = [item for some in by_width.values() for _, item in some]
            number = {lane: k for k, lane in enumerate(dict.fromkeys(v for item in every for v in item.lanes))}
            sources = {size: Sources(some, number) for size, some in by_width.items()}
            for (type_, width), some in groups.items():
                if type_ == kind:
                    lanes = _numbers([items[n] for n in some], number)
                    for size in {width // 2, width, 2 * width, 4 * width} & sources.keys():
                        self._look(w, np.array(some), lanes, sources[size])

    def _look(self, w: Builder, some: Array, lanes: Array, sources: Sources) -> None:
        near, has, full = _nearest(lanes, sources)
        if sources.width == lanes.shape[1]:
            self._in_place(some, lanes, near, sources)
        whole = (has[:, _ONE] | has[:, _TWO]) == full[:, None]
        if 2 * sources.width == lanes.shape[1]:  # two halves are put together anyway
            low, high = (self._halves(w, some, sources, upper) for upper in (False, True))
            whole &= (near[:, _ONE] != low[:, None]) | (near[:, _TWO] != high[:, None])
        whole &= np.cumsum(whole, axis=1) <= PAIRS
        row, which = np.nonzero(whole)
        one, two = near[row, _ONE[which]], near[row, _TWO[which]]
        masks = _masks(lanes[row], one, two, sources)
        pairs = zip(some[row].tolist(), sources.items[one].tolist(), sources.items[two].tolist(), masks, strict=True)
        for n, a, b, mask in pairs:
            self.pairs.setdefault((n, sources.width), []).append((a, b, tuple(mask)))

    def _halves(self, w: Builder, some: Array, sources: Sources, upper: bool) -> Array:
        """Which of the sources is a half of each vector; -2 if none, or if lanes repeat."""
        place = {n: k for k, n in enumerate(sources.items.tolist())}
        found = []
        for n in some.tolist():
            kind, lanes = w.graph.items[n]
            half = lanes[sources.width :] if upper else lanes[: sources.width]
            made = w.index.get(Item(kind, half), -1) if len(set(lanes)) == len(lanes) else -1
            found.append(place.get(made, -2))
        return np.array(found)

    def _in_place(self, some: Array, lanes: Array, near: Array, sources: Sources) -> None:
        width = sources.width
        other = sources.lanes[near] != lanes[:, None]
        row, which = np.nonzero((near >= 0) & (other.sum(axis=2) <= width // 2))
        numbers = sources.items[near[row, which]].tolist()
        for n, u, differs in zip(some[row].tolist(), numbers, other[row, which].tolist(), strict=True):
            self.same.setdefault(n, []).append((u, [k for k in range(width) if differs[k]]))


def _numbers(items: list[Item], number: dict[str, int]) -> Array:
    return np.array([[number.get(v, len(number)) for v in item.lanes] for item in items])


def _nearest(lanes: Array, sources: Sources) -> tuple[Array, Array, Array]:
    """For each vector the first sources that hold some of its lanes, but not all, and which, as bits.

    Those that hold most come first, then those that hold its first lane, and so on. Where there are no more: -1.
    """
    count, width = lanes.shape
    exact = np.float32 if width <= 16 else np.float64  # of sums of powers of two
    bit = np.zeros((sources.first.shape[1], count), dtype=exact)
    for k in reversed(range(width)):  # a lane that comes again counts where it is first
        bit[lanes[:, k], np.arange(count)] = 2 ** (width - 1 - k)
    full = bit.sum(axis=0).astype(np.int64)
    held = (sources.first >= 0).astype(exact)
    held[:, -1] = 0  # any other lane is held by nobody
    has = bit.T @ held.T
    row, which = np.nonzero((has > 0) & (has < full[:, None]))
    bits = has[row, which].astype(np.int64)
    lacks = width - sum((bits >> k & 1) for k in range(width))
    leading = width - np.frexp(bits.astype(np.float64))[1]
    order = np.argsort(((row * 64 + lacks) * 64 + leading) * len(sources.items) + which)
    row, which, bits = row[order], which[order], bits[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    kept = rank < SECOND
    near, seen = np.full((count, SECOND), -1), np.zeros((count, SECOND), dtype=np.int64)
    near[row[kept], rank[kept]] = which[kept]
    seen[row[kept], rank[kept]] = bits[kept]
    return near, seen, full


def _masks(lanes: Array, one: Array, two: Array, sources: Sources) -> list[list[int]]:
    """Where a shuffle of two vectors takes values from: their own lane if it can, else from the first that has them."""
    size, width = sources.width, lanes.shape[1]
    place = np.arange(width)
    a, b = np.take_along_axis(sources.first[one], lanes, 1), np.take_along_axis(sources.first[two], lanes, 1)
    mask = np.where(a >= 0, a, b + size)
    for own, shift in ((two, size), (one, 0)):
        there = sources.lanes[own][:, :width] == lanes[:, :size]
        mask[:, : there.shape[1]] = np.where(there, (place + shift)[: there.shape[1]], mask[:, : there.shape[1]])
    return list(mask.tolist())
