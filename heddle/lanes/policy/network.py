"""The graph network: items and productions pass messages, then every production gets a score.

Written once, for NumPy and torch alike: `Arrays` is what differs. Users need no torch.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from heddle.errors import HeddleError
from heddle.files import parse_json, read_bytes, shown
from heddle.lanes.choice import estimates
from heddle.lanes.cost import is_constant
from heddle.lanes.ir import BITS
from heddle.lanes.packs import Graph

LARGEST = 16 << 20  # bytes of a file of weights; those that ship have a hundredth of it
HIDDEN = 32
LAYERS = 12  # terms of a short sum
ROUNDS = 4
KINDS = (
    "scalar", "extract", "pack", "load", "shuffle", "shuffle2", "build", "broadcast", "constant", "concat", "patch",
    "store", "reduce", "alternate",
)  # fmt: skip
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
        self._ways: dict[int, tuple[list[tuple[Any, Any]], Any, Any, Any]] = {}

    def add_at(self, values: Any, index: Any, size: int) -> Any:
        total = np.zeros((size, values.shape[1]), dtype=values.dtype)
        if id(index) not in self._ways:
            self._ways[id(index)] = _ways_to_add(index)
        layers, places, rows, starts = self._ways[id(index)]
        for where, some in layers:  # no place twice in one of them
            total[where] += values[some]
        if len(places):
            total[places] = np.add.reduceat(values[rows], starts, axis=0)
        return total

    def sigmoid(self, x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    def tanh(self, x: Any) -> Any:
        return np.tanh(x)

    def relu(self, x: Any) -> Any:
        return np.maximum(x, 0)

    def join(self, parts: list[Any]) -> Any:
        return np.concatenate(parts, axis=1)


def _ways_to_add(index: Any) -> tuple[list[tuple[Any, Any]], Any, Any, Any]:
    """Short sums by their first rows, their second ones, …; long sums one after another. Each is slow at the other."""
    order = np.argsort(index, kind="stable")
    places, starts, counts = np.unique(index[order], return_index=True, return_counts=True)
    short = counts <= LAYERS
    layers = []
    for k in range(LAYERS):
        some = short & (counts > k)
        if some.any():
            layers.append((places[some], order[starts[some] + k]))
    runs = [order[s : s + n] for s, n in zip(starts[~short], counts[~short], strict=True)]
    rows = np.concatenate([*runs, np.zeros(0, dtype=np.int64)]).astype(np.int64)
    return layers, places[~short], rows, np.cumsum([0, *counts[~short]])[:-1]


def features(graph: Graph) -> Features:
    """What the network sees before anything is decided."""
    price = np.minimum(np.array(estimates(graph)), 1e4)
    items = np.zeros((len(graph.items) + 1, ITEM_FEATURES), dtype=np.float32)
    productions = np.zeros((len(graph.productions), PRODUCTION_FEATURES), dtype=np.float32)
    gives = np.full(len(graph.productions), len(graph.items))
    need_of, need_item = [], []
    readers = np.zeros(len(graph.items) + 1)
    for n, p in enumerate(graph.productions):
        others = graph.makers[p.gives] if p.gives >= 0 else graph.stores[p.members[0]]
        share = 1 if p.gives >= 0 else len(p.members)  # a store of several is compared for each of them
        excess = price[n] / share - min(
            price[m] / (1 if p.gives >= 0 else len(graph.productions[m].members)) for m in others
        )
        productions[n, KINDS.index(p.kind)] = 1
        productions[n, len(KINDS) : len(KINDS) + 5] = (
            p.cost / 4, len(p.members) / 8, math.log1p(price[n]) / 4, math.log1p(max(0.0, excess)) / 4,
            len(p.needs) / 4,
        )  # fmt: skip
        if p.gives >= 0:
            gives[n] = p.gives
        for need in p.needs:
            for needed in need.items:
                need_of.append(n)
                need_item.append(needed)
                readers[needed] += 1
    for i, item in enumerate(graph.items):
        width = len(item.lanes)
        items[i, :8] = (
            width == 1, math.log2(width) / 4, sum(map(is_constant, item.lanes)) / width,
            len(dict.fromkeys(item.lanes)) / width, math.log1p(len(graph.makers[i])) / 3, math.log1p(readers[i]) / 3,
            BITS.get(item.type, 64) / 64, math.log1p(min((price[m] for m in graph.makers[i]), default=0)) / 4,
        )  # fmt: skip
    of, at = np.array(need_of, dtype=np.int64), np.array(need_item, dtype=np.int64)
    return Features(
        items, productions, gives, of, at,
        _counts(gives, len(items)), _counts(at, len(items)), _counts(of, len(productions)),
    )  # fmt: skip


def _counts(index: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    return np.maximum(np.bincount(index, minlength=size), 1).astype(np.float32)[:, None]


def scores(w: dict[str, Any], f: Any, xp: Any) -> Any:
    """A score for every production. `f` has the state in it."""
    items, productions = f.items.shape[0], f.productions.shape[0]
    h = xp.tanh(f.items @ w["item.in"])
    g = xp.tanh(f.productions @ w["production.in"])
    for _ in range(ROUNDS):
        wanted = xp.add_at(h[f.need_item], f.need_of, productions) / f.asks
        both = g @ w["production.self"] + (h @ w["production.gives"])[f.gives] + wanted @ w["production.needs"]
        g = _gated(g, both + w["production.bias"], xp)
        makers = xp.add_at(g, f.gives, items) / f.made_by
        readers = xp.add_at(g[f.need_of], f.need_item, items) / f.read_by
        both = h @ w["item.self"] + makers @ w["item.makers"] + readers @ w["item.readers"]
        h = _gated(h, both + w["item.bias"], xp)
    seen = xp.join([g, h[f.gives], f.productions])
    judged = (xp.relu(seen @ w["score.hidden"] + w["score.bias"]) @ w["score.out"])[:, 0]
    return judged + f.productions[:, EXCESS] * w["score.price"]  # learned on top of the greedy choice


def _gated(old: Any, both: Any, xp: Any) -> Any:
    gate = xp.sigmoid(both[:, :HIDDEN])
    return old * (1 - gate) + xp.tanh(both[:, HIDDEN:]) * gate


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
