"""A graph of productions as flat arrays, and the machine code that works on them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np

from heddle.files import read_text
from heddle.lanes.packs import Graph, Need
from heddle.lanes.packs.graph import LATE, NATIVE
from heddle.native.loaded import Loaded

Array = np.ndarray[Any, Any]

NOISES = 1 << 16  # random numbers, of which each attempt takes some that follow each other
MOST = 1 << 14  # productions of nearly every graph: for more of them there is more noise, which begins the same
NOISE = (0.4, 1.0, 2.5, 0.4)  # times those, in turn: near to what the network says, and farther away
KEEP = 1.5  # more for what the best choice so far has, where an attempt stays near to it
BY_ANY, BY_EDGE = 19, 4  # arrays that the search needs, by production, need, item or access, and by edge
EDGES = 16  # for each production, on average
READS = {"scalar", "pack", "store", "load"}  # what counts as a reader where costs are shared
TOUCHES = {"scalar", "load", "store"}


class _Graph(ctypes.Structure):
    """As in `search.c`."""

    COUNTS = ("productions", "items", "needs", "stores", "required", "accesses", "edges")
    ARRAYS = (
        "cost", "gives", "native", "late", "reads", "several", "asks_at", "asks", "ways_at", "ways", "meets_at",
        "meets", "makers_at", "makers", "wanted_at", "wanted", "strict", "wide", "must", "store_at", "store",
        "writes_at", "writes", "touches_at", "touches", "before_at", "before", "score", "noise", "room",
    )  # fmt: skip
    _fields_ = [*((name, ctypes.c_int64) for name in COUNTS), *((name, ctypes.c_void_p) for name in ARRAYS)]


class _Effort(ctypes.Structure):
    _fields_ = [
        ("attempts", ctypes.c_int64), ("work", ctypes.c_int64), ("noises", ctypes.c_int64),
        ("spread", ctypes.c_float * 4), ("keep", ctypes.c_float),
    ]  # fmt: skip


@cache
def code() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The estimates and the search, compiled once in a process, with the noise for it."""
    _noise(MOST)
    module = Loaded(read_text(Path(__file__).parent / "search.ll", "the search that comes with Heddle"))
    return module.function("estimates", "void", ["ptr"] * 5), module.function("search", "i64", ["ptr"] * 4)


@cache
def _noise(most: int) -> Array:
    return np.random.default_rng(0).gumbel(size=NOISES + most).astype(np.float32)


def _lists(rows: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    """Where each list begins, and all their numbers."""
    starts = np.fromiter(accumulate(map(len, rows), initial=0), np.int32, len(rows) + 1)
    return starts, np.fromiter(chain.from_iterable(rows), np.int32, int(starts[-1]))


def _turned(starts: Array, values: Array, count: int) -> tuple[Array, Array]:
    """The same lists by what was in them."""
    order = np.argsort(values, kind="stable")
    of = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))[order]
    return np.concatenate([[0], np.cumsum(np.bincount(values, minlength=count))]).astype(np.int32), of


class Flat:
    """The arrays of one graph. Everything is a number: productions, items, needs, stores and accesses to memory."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        kinds, gives, costs, needs, members, *_ = zip(*graph.productions, strict=True)
        must = [Need((item,)) for item in graph.required]
        number = {need: n for n, need in enumerate(dict.fromkeys(chain(chain.from_iterable(needs), must)))}
        self.needs = list(number)
        self.kinds: Sequence[str] = kinds
        self.does = np.fromiter(map(len, members), np.int32, len(members))  # statements of each
        region = graph.region
        stores = {m: k for k, m in enumerate(graph.stores)}
        accesses = {m: k for k, m in enumerate(region.addresses)}
        arrays: dict[str, Any] = {
            "cost": costs, "gives": gives, "native": [kind in NATIVE for kind in kinds],
            "late": [kind in LATE for kind in kinds], "reads": [kind in READS for kind in kinds],
            "several": self.does > 1, "must": [number[need] for need in must],
            "strict": [need.native for need in number],
            "wide": [len(graph.items[need.items[0]].lanes) > 1 for need in number],
        }  # fmt: skip
        asks_at = np.fromiter(accumulate(map(len, needs), initial=0), np.int32, len(needs) + 1)
        asks = np.fromiter(map(number.__getitem__, chain.from_iterable(needs)), np.int32, int(asks_at[-1]))
        lists: dict[str, Sequence[Sequence[int]]] = {
            "ways": [graph.makes(need) for need in number], "makers": graph.makers,
            "wanted": [need.items for need in number], "store": list(graph.stores.values()),
            "writes": [
                [stores[m] for m in some] if item < 0 else () for some, item in zip(members, gives, strict=True)
            ],
            "touches": [
                [accesses[m] for m in some if m in accesses] if kind in TOUCHES else ()
                for some, kind in zip(members, kinds, strict=True)
            ],
            "before": [[accesses[e] for e in _bits(region.before[m]) if e in accesses] for m in accesses],
        }  # fmt: skip
        self.arrays = {name: np.array(values, dtype=np.int32) for name, values in arrays.items()}
        self.arrays |= {"asks_at": asks_at, "asks": asks}
        for name, some in lists.items():
            self.arrays[f"{name}_at"], self.arrays[name] = _lists(some)
        self.arrays["meets_at"], self.arrays["meets"] = _turned(self.arrays["ways_at"], self.arrays["ways"], len(costs))
        self.counts = (len(costs), len(graph.items), len(number), len(stores), len(must), len(accesses))

    def _struct(self, **more: Array) -> _Graph:
        made = _Graph(*self.counts, EDGES * self.counts[0])
        for name, array in (self.arrays | more).items():
            setattr(made, name, array.ctypes.data)
        return made

    @cached_property
    def estimates(self) -> Array:
        """What each production costs with all it needs, where what several read is shared between them."""
        found, items = np.empty(self.counts[0], np.float32), np.empty((3, self.counts[1]), np.float32)
        made = self._struct()
        code()[0](ctypes.addressof(made), found.ctypes.data, *(row.ctypes.data for row in items))
        return found

    def search(self, score: Array, start: Iterable[int], attempts: int, work: int) -> list[int]:
        """The cheapest choice that was found from a start that can be put in order: the same every time."""
        count = self.counts[0]
        chosen = list(start)
        best, length = np.zeros(count, np.int32), np.array([len(chosen)], np.int64)
        best[: len(chosen)] = chosen
        size = sum(self.counts) + 1
        room = np.zeros(BY_ANY * size + BY_EDGE * EDGES * count, np.int32)
        given = np.ascontiguousarray(score, dtype=np.float32)
        made = self._struct(score=given, noise=_noise(max(MOST, 1 << (count - 1).bit_length())), room=room)
        effort = _Effort(attempts, work, NOISES, (ctypes.c_float * 4)(*NOISE), KEEP)
        code()[1](ctypes.addressof(made), ctypes.addressof(effort), best.ctypes.data, length.ctypes.data)
        return sorted(best[: length[0]].tolist())


def _bits(number: int) -> Iterable[int]:
    while number:
        bit = number & -number
        number ^= bit
        yield bit.bit_length() - 1


def flat(graph: Graph) -> Flat:
    """The arrays of a graph, made once."""
    if not isinstance(graph.flat, Flat):
        graph.flat = Flat(graph)
    return graph.flat
