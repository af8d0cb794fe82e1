"""The graph network: items and productions pass messages, then every production gets a score.

Written once, for NumPy and torch alike: `Arrays` is what differs. Users need no torch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from heddle.errors import HeddleError
from heddle.files import parse_json, read_bytes, shown
from heddle.lanes.cost import is_constant
from heddle.lanes.ir import BITS
from heddle.lanes.packs import Graph
from heddle.lanes.search import flat

LARGEST = 16 << 20  # bytes of a file of weights; those that ship have a hundredth of it
HIDDEN = 32
LAYERS = 12  # terms of a short sum
ROUNDS = 4
BLOCK = 1024  # rows that are worked on at a time
KINDS = (
    "scalar", "extract", "pack", "load", "shuffle", "shuffle2", "build", "broadcast", "constant", "concat", "patch",
    "store", "reduce", "alternate", "carry", "phi", "leave", "extract behind",
)  # fmt: skip
NUMBER = {kind: n for n, kind in enumerate(KINDS)}
ITEM_FEATURES = 11  # of which the last three tell the state: demanded, made, made by an instruction
PRODUCTION_FEATURES = len(KINDS) + 6  # of which the last tells the state: chosen
SHAPES = {
    "item.in": (ITEM_FEATURES, HIDDEN), "production.in": (PRODUCTION_FEATURES, HIDDEN),
    "production.self": (HIDDEN, 2 * HIDDEN), "production.gives": (HIDDEN, 2 * HIDDEN),
    "production.needs": (HIDDEN, 2 * HIDDEN), "production.bias": (2 * HIDDEN,),
    "item.self": (HIDDEN, 2 * HIDDEN), "item.makers": (HIDDEN, 2 * HIDDEN), "item.readers": (HIDDEN, 2 * HIDDEN),
    "item.bias": (2 * HIDDEN,), "score.hidden": (2 * HIDDEN + PRODUCTION_FEATURES, HIDDEN), "score.bias": (HIDDEN,),
    "score.out": (HIDDEN, 1), "score.price": (1,),
}  # fmt: skip
EXCESS = len(KINDS) + 3  # the feature that says how much dearer than its alternatives a production looks


@dataclass
class Features:
    """A graph of productions as arrays."""

    items: np.ndarray[Any, Any]
    productions: np.ndarray[Any, Any]
    gives: np.ndarray[Any, Any]  # item of each production; one more for stores
    need_of: np.ndarray[Any, Any]  # edges: production …
    need_item: np.ndarray[Any, Any]  # … and item
    made_by: np.ndarray[Any, Any]  # how many productions give each item, …
    read_by: np.ndarray[Any, Any]  # … how many need it, …
    asks: np.ndarray[Any, Any]  # … and how many items each production needs

    def with_state(self, items: Any, productions: Any) -> Features:
        return replace(self, items=items, productions=productions)


class Arrays:
    """NumPy. Torch has the same methods in `policy.train`."""

    def __init__(self) -> None:
        self._ways: dict[int, tuple[_Sums, Any]] = {}  # and where the sums are put: fresh memory is slow

    def rows(self, values: Any, which: Any) -> Any:
        return values.take(which, axis=0)

    def mean_at(self, values: Any, index: Any, counts: Any, which: Any = None) -> Any:
        """Rows of `values`, or `which` of them, averaged by their place in `index`. Good until asked for again."""
        if id(index) not in self._ways:
            self._ways[id(index)] = _sums(index, which), np.zeros((len(counts), values.shape[1]), dtype=values.dtype)
        sums, total = self._ways[id(index)]
        if sums.layers:
            short = values.take(sums.layers[0], axis=0)
            for some in sums.layers[1:]:
                short[: len(some)] += values.take(some, axis=0)
            total[sums.short] = short
        if len(sums.long):
            total[sums.long] = np.add.reduceat(values.take(sums.rows, axis=0), sums.starts, axis=0)
        total /= counts
        return total

    def gated(self, old: Any, both: Callable[[slice], Any]) -> Any:
        """Some of the old, some of the new. Some rows at a time, in place: memory is slower than the arithmetic."""
        for start in range(0, len(old), BLOCK):
            rows = slice(start, start + BLOCK)
            some, part = old[rows], both(rows)
            gate, new = part[:, :HIDDEN], part[:, HIDDEN:]
            np.negative(gate, out=gate)
            np.exp(gate, out=gate)
            gate += 1
            np.reciprocal(gate, out=gate)
            np.tanh(new, out=new)
            new *= gate
            np.subtract(1, gate, out=gate)
            some *= gate
            some += new
        return old

    def tanh(self, x: Any) -> Any:
        return np.tanh(x)

    def relu(self, x: Any) -> Any:
        return np.maximum(x, 0)

    def join(self, parts: list[Any]) -> Any:
        return np.concatenate(parts, axis=1)


@dataclass
class _Sums:
    """Short sums by their first rows, their second ones, …; long sums one after another. Each is slow at the other."""

    short: Any  # places, those of most terms first
    layers: list[Any]  # rows that are the k-th term, of the first places
    long: Any
    rows: Any
    starts: Any


def _sums(index: Any, which: Any) -> _Sums:
    order = np.argsort(index, kind="stable")
    places, starts, counts = np.unique(index[order], return_index=True, return_counts=True)
    order = order if which is None else which[order]
    long = counts > LAYERS
    by_count = np.argsort(-counts, kind="stable")
    short = by_count[~long[by_count]]
    layers = []
    for k in range(int(counts[short].max(initial=0))):
        some = short[counts[short] > k]
        layers.append(order[starts[some] + k])
    runs = [order[s : s + n] for s, n in zip(starts[long], counts[long], strict=True)]
    rows = np.concatenate([*runs, np.zeros(0, dtype=np.int64)]).astype(np.int64)
    return _Sums(places[short], layers, places[long], rows, np.cumsum([0, *counts[long]])[:-1])


def features(graph: Graph) -> Features:
    """What the network sees before anything is decided."""
    f = flat(graph)
    price, gives = np.minimum(f.estimates, 1e4).astype(np.float64), f.arrays["gives"].astype(np.int64)
    count, of_item = len(graph.items), gives >= 0
    does = np.array(list(map(len, f.members)))
    cheapest = np.full(count, np.inf)
    np.minimum.at(cheapest, gives[of_item], price[of_item])
    cheapest[np.isinf(cheapest)] = 0.0
    # A store of several is compared for each of them.
    share, first = price / np.maximum(does, 1), f.arrays["writes"][f.arrays["writes_at"][:-1][~of_item]]
    each = np.array([share[ways].min() for ways in graph.stores.values()])
    excess = np.where(of_item, price - cheapest[np.maximum(gives, 0)], share)
    excess[~of_item] -= each[first]
    productions = np.zeros((len(price), PRODUCTION_FEATURES), dtype=np.float32)
    productions[np.arange(len(price)), [NUMBER[kind] for kind in f.kinds]] = 1
    asked = np.diff(f.arrays["asks_at"])
    columns = (
        f.arrays["cost"] / 4, does / 8, np.log1p(price) / 4, np.log1p(np.maximum(excess, 0.0)) / 4, asked / 4,
    )  # fmt: skip
    for k, column in enumerate(columns):
        productions[:, len(KINDS) + k] = column
    gives[~of_item] = count
    # An edge for each item of each need of each production.
    sizes = np.diff(f.arrays["wanted_at"])[f.arrays["asks"]]
    starts = f.arrays["wanted_at"][:-1][f.arrays["asks"]]
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    at = f.arrays["wanted"][np.repeat(starts, sizes) + within].astype(np.int64)
    of = np.repeat(np.repeat(np.arange(len(price)), asked), sizes)
    items = np.zeros((count + 1, ITEM_FEATURES), dtype=np.float32)
    lanes = [item.lanes for item in graph.items]
    widths = np.array(list(map(len, lanes)))
    items[:-1, 0], items[:-1, 1] = widths == 1, np.log2(widths) / 4
    items[:-1, 2] = np.array([sum(map(is_constant, some)) for some in lanes]) / widths
    items[:-1, 3] = np.array([len(set(some)) for some in lanes]) / widths
    items[:-1, 4] = np.log1p(np.diff(f.arrays["makers_at"])) / 3
    items[:-1, 5] = np.log1p(np.bincount(at, minlength=count)) / 3
    items[:-1, 6] = [BITS.get(item.type, 64) / 64 for item in graph.items]
    items[:-1, 7] = np.log1p(cheapest) / 4
    return Features(
        items, productions, gives, of, at,
        _counts(gives, len(items)), _counts(at, len(items)), _counts(of, len(productions)),
    )  # fmt: skip


def _counts(index: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    return np.maximum(np.bincount(index, minlength=size), 1).astype(np.float32)[:, None]


def scores(w: dict[str, Any], f: Any, xp: Any) -> Any:
    """A score for every production. `f` has the state in it."""
    h = xp.tanh(f.items @ w["item.in"])
    g = xp.tanh(f.productions @ w["production.in"])

    def of_productions(rows: slice) -> Any:
        both = g[rows] @ w["production.self"]
        both += xp.rows(given, f.gives[rows])
        both += wanted[rows] @ w["production.needs"]
        both += w["production.bias"]
        return both

    def of_items(rows: slice) -> Any:
        both = h[rows] @ w["item.self"] + makers[rows] @ w["item.makers"] + readers[rows] @ w["item.readers"]
        return both + w["item.bias"]

    for _ in range(ROUNDS):
        wanted = xp.mean_at(h, f.need_of, f.asks, f.need_item)
        given = h @ w["production.gives"]
        g = xp.gated(g, of_productions)
        makers = xp.mean_at(g, f.gives, f.made_by)
        readers = xp.mean_at(g, f.need_item, f.read_by, f.need_of)
        h = xp.gated(h, of_items)
    seen = xp.join([g, xp.rows(h, f.gives), f.productions])
    judged = (xp.relu(seen @ w["score.hidden"] + w["score.bias"]) @ w["score.out"])[:, 0]
    return judged + f.productions[:, EXCESS] * w["score.price"]  # learned on top of the greedy choice


def read_weights(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """A safetensors file of float32, read without its library."""
    raw = read_bytes(path, "weights of a policy, as `heddle lanes train` writes them", LARGEST)
    try:
        (length,) = struct.unpack("<Q", raw[:8])
        header = parse_json(raw[8 : 8 + length].decode())
        found = {}
        for name, shape in SHAPES.items():
            start, end = header[name]["data_offsets"]
            found[name] = np.frombuffer(raw[8 + length + start : 8 + length + end], dtype="<f4").reshape(shape)
            if not np.isfinite(found[name]).all():
                raise ValueError(name)
    except (KeyError, TypeError, ValueError, struct.error) as error:
        raise HeddleError(
            f"{shown(path)} does not hold the weights of a policy: its shape or format differs.",
            "They must be a safetensors file written by `heddle lanes train`.",
            "Leave --weights out to use those that come with Heddle.",
        ) from error
    return found
