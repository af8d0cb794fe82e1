"""For each vector: the vectors that hold all of its lanes, pairs of vectors that do, and those that hold most in place.

Tens of thousands of pairs are looked at, so this is machine code: `nearest.c`, which ships as `nearest.ll`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np

from heddle.files import read_text
from heddle.lanes.packs.builder import Builder
from heddle.lanes.packs.graph import Item
from heddle.native.loaded import Loaded

WIDEST = 32  # lanes of a vector
ROOM = 1 << 20  # numbers that are found at a time

# For one vector: others with all of its lanes and the mask that takes them; pairs by the width of both, with the mask
# over both; and others of its width with the lanes, as bits, that they lack in their place.
Mask = tuple[int, ...]
Near = tuple[list[tuple[int, Mask]], list[tuple[int, int, int, Mask]], list[tuple[int, int]]]


class _Vectors(ctypes.Structure):
    """As in `nearest.c`."""

    COUNTS = ("sources", "wanted", "values")
    ARRAYS = (
        "at", "lanes", "type", "item", "low", "high", "start", "who", "where", "seen", "touched", "place", "has",
    )  # fmt: skip
    _fields_ = [*((name, ctypes.c_int64) for name in COUNTS), *((name, ctypes.c_void_p) for name in ARRAYS)]


@cache
def code() -> Callable[..., Any]:
    """Compiled once in a process."""
    module = Loaded(read_text(Path(__file__).parent / "nearest.ll", "the code that comes with Heddle"))
    return module.function("nearest", "i64", ["ptr", "i64", "ptr", "i64"])


def nearest(w: Builder, wanted: Sequence[int]) -> Iterator[Near]:
    """What there is for each of some vectors, among those that an instruction or a load makes."""
    items = w.graph.items
    sources = [n for n, natives in enumerate(w.graph.natives) if natives]
    number: dict[str, int] = {}
    lanes = [[number.setdefault(v, len(number)) for v in w.held(n)] for n in sources]
    lanes += [[number.get(v, -1) for v in items[n].lanes] for n in wanted]
    widths = [len(some) for some in lanes]
    kinds: dict[str, int] = {}
    place = {n: k for k, n in enumerate(sources)}
    halves = [_halves(w, items[n], place) for n in wanted]
    count, total = len(sources), sum(widths[: len(sources)])
    arrays = {
        "at": list(accumulate(widths, initial=0)), "lanes": list(chain.from_iterable(lanes)),
        "type": [kinds.setdefault(items[n].type, len(kinds)) for n in (*sources, *wanted)], "item": [*sources, *wanted],
        "low": [low for low, _ in halves], "high": [high for _, high in halves],
    }  # fmt: skip
    kept = {name: np.array(values, np.int32) for name, values in arrays.items()}
    room = {"start": len(number) + 1, "who": total, "where": total, "seen": len(number), "touched": count}
    kept |= {name: np.empty(size, np.int32) for name, size in room.items()}
    kept["place"], kept["has"] = np.empty(WIDEST * count, np.int32), np.zeros(count, np.uint64)
    vectors = _Vectors(count, len(wanted), len(number), *(kept[name].ctypes.data for name in _Vectors.ARRAYS))
    found, done = np.empty(ROOM + 2 * WIDEST * count, np.int32), 0  # one vector always fits
    while done < len(wanted):
        start = done
        done = code()(ctypes.addressof(vectors), start, found.ctypes.data, len(found))
        yield from _read(found, widths[count + start : count + done])


def _halves(w: Builder, item: Item, place: dict[int, int]) -> tuple[int, int]:
    """Which of the sources are the halves of a vector; -1 if none, or if lanes repeat."""
    kind, lanes = item
    middle = len(lanes) // 2
    if len(lanes) < 4 or len(set(lanes)) < len(lanes):
        return -1, -1
    low, high = w.index.get((kind, lanes[:middle]), -1), w.index.get((kind, lanes[middle:]), -1)
    return place.get(low, -1), place.get(high, -1)


def _read(found: np.ndarray[Any, Any], widths: Sequence[int]) -> Iterator[Near]:
    """What the code wrote for vectors of these widths."""
    rows: list[int] = found[: found[0]].tolist()
    end = 1
    for width in widths:
        at = end + 3
        whole, pairs, end = rows[end:at]
        one, two = 1 + width, 3 + width
        yield (
            [(rows[k], tuple(rows[k + 1 : k + one])) for k in range(at, whole, one)],
            [(rows[k], rows[k + 1], rows[k + 2], tuple(rows[k + 3 : k + two])) for k in range(whole, pairs, two)],
            [(rows[k], rows[k + 1]) for k in range(pairs, end, 2)],
        )
