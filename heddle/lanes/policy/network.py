"""The graph network: what it sees of a graph of productions, and its weights.

Items and productions pass messages, then every production gets a score: in machine code where the policy decides
(`network.c`), and in torch where it learns (`train.py`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from itertools import chain
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
ROUNDS = 4
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


def features(graph: Graph) -> Features:
    """What the network sees before anything is decided."""
    f = flat(graph)
    price, gives = np.minimum(f.estimates, 1e4).astype(np.float64), f.arrays["gives"].astype(np.int64)
    count, of_item = len(graph.items), gives >= 0
    cheapest = np.full(count, np.inf)
    np.minimum.at(cheapest, gives[of_item], price[of_item])
    cheapest[np.isinf(cheapest)] = 0.0
    # A store of several is compared for each of them.
    share, first = price / np.maximum(f.does, 1), f.arrays["writes"][f.arrays["writes_at"][:-1][~of_item]]
    each = np.minimum.reduceat(share[f.arrays["store"]], f.arrays["store_at"][:-1]) if graph.stores else share
    excess = np.where(of_item, price - cheapest[np.maximum(gives, 0)], share)
    excess[~of_item] -= each[first]
    productions = np.zeros((len(price), PRODUCTION_FEATURES), dtype=np.float32)
    productions[np.arange(len(price)), [NUMBER[kind] for kind in f.kinds]] = 1
    asked = np.diff(f.arrays["asks_at"])
    columns = (
        f.arrays["cost"] / 4, f.does / 8, np.log1p(price) / 4, np.log1p(np.maximum(excess, 0.0)) / 4, asked / 4,
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
    kinds, lanes = zip(*graph.items, strict=True)
    widths = np.array(list(map(len, lanes)))
    constants = {v for v in set(chain.from_iterable(lanes)) if is_constant(v)}
    items[:-1, 0], items[:-1, 1] = widths == 1, np.log2(widths) / 4
    items[:-1, 2] = np.array([sum(map(constants.__contains__, some)) for some in lanes]) / widths
    items[:-1, 3] = np.array(list(map(len, map(set, lanes)))) / widths
    items[:-1, 4] = np.log1p(np.diff(f.arrays["makers_at"])) / 3
    items[:-1, 5] = np.log1p(np.bincount(at, minlength=count)) / 3
    items[:-1, 6] = [BITS.get(kind, 64) / 64 for kind in kinds]
    items[:-1, 7] = np.log1p(cheapest) / 4
    return Features(
        items, productions, gives, of, at,
        _counts(gives, len(items)), _counts(at, len(items)), _counts(of, len(productions)),
    )  # fmt: skip


def _counts(index: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    return np.maximum(np.bincount(index, minlength=size), 1).astype(np.float32)[:, None]


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
