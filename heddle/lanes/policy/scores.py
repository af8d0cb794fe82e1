"""The network's scores in machine code: `network.c`, which ships as `network.ll`. Users need no torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from heddle.files import read_text
from heddle.lanes.policy.network import HIDDEN, SHAPES, Features
from heddle.native.loaded import Loaded


class _Network(ctypes.Structure):
    """As in `network.c`."""

    FEATURES = ("items", "productions", "gives", "need_of", "need_item", "made_by", "read_by", "asks")
    ROOM = ("h", "g", "sums", "more", "given", "score")
    _fields_ = [
        *((f"count of {name}", ctypes.c_int64) for name in ("items", "productions", "edges")),
        *((name, ctypes.c_void_p) for name in (*FEATURES, *SHAPES, *ROOM)),
    ]


@cache
def code() -> Callable[..., Any]:
    """Compiled once in a process."""
    module = Loaded(read_text(Path(__file__).parent / "network.ll", "the network that comes with Heddle"))
    return module.function("scores", "void", ["ptr"])


def scores(w: dict[str, np.ndarray[Any, Any]], f: Features) -> np.ndarray[Any, Any]:
    """A score for every production. `f` has the state in it."""
    items, productions, edges = len(f.items), len(f.productions), len(f.need_of)
    rows = {"h": items, "g": productions, "sums": max(items, productions), "more": items, "given": 2 * items}
    room = {name: np.empty((count, HIDDEN), np.float32) for name, count in rows.items()}
    score = np.empty(productions, np.float32)
    given = {name: np.ascontiguousarray(w[name], np.float32) for name in SHAPES}
    arrays = [*(getattr(f, name) for name in _Network.FEATURES), *given.values(), *room.values(), score]
    network = _Network(items, productions, edges, *(array.ctypes.data for array in arrays))
    code()(ctypes.addressof(network))
    return score
