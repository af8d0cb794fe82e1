"""Tile sizes refined by running: a few choices beside the model's own, and the best is kept for this machine and graph.

A choice replaces the model's only where it is faster in the median and in the minimum of alternating rounds, so that a
tuned module is never worse than an untuned one but by noise.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from heddle.capturing.program import Program
from heddle.tiles.engine.pool import Pool
from heddle.tiles.kernels.library import kernel_cache, library
from heddle.tiles.lower.lowering import Weights
from heddle.tiles.program import TileProgram
from heddle.tiles.tiling import Tiling

FACTORS = ({"columns": 0.5}, {"columns": 2.0}, {"rows": 0.5}, {"rows": 2.0}, {"queries": 2.0})
ROUNDS = 5
BETTER = 0.98  # of the time: less is noise


def key_of(program: Program, threads: int) -> str:
    """What a choice depends on: the graph with its shapes, the CPU and the number of workers."""
    nodes = [
        (str(node.target), [tuple(getattr(value, "shape", ())) for value in _values(node)]) for node in program.calls
    ]
    return hashlib.sha256(repr((nodes, library().target, threads)).encode()).hexdigest()[:32]


def _values(node: Any) -> list[Any]:
    value = node.meta.get("val")
    return list(value) if isinstance(value, tuple | list) else [value]


def known_tiling(program: Program, threads: int) -> Tiling | None:
    """What an earlier run found."""
    cache = kernel_cache()
    kept = None if cache is None else cache.read(f"tiling-{key_of(program, threads)}.json")
    if kept is None:
        return None
    with suppress(ValueError, TypeError, KeyError):
        found = json.loads(kept)
        sizes = {name: float(found[name]) for name in ("rows", "columns", "queries")}
        if all(0.1 <= value <= 10 for value in sizes.values()):
            return Tiling(threads, **sizes)
    return None


def tuned(program: Program, workers: Pool, weights: Weights, inputs: Sequence[Any]) -> TileProgram:
    """The fastest of some tilings, which is also remembered."""
    threads = workers.threads
    best = TileProgram(program, Tiling(threads), weights)
    for factors in FACTORS:
        other = TileProgram(program, Tiling(threads, **factors), weights)
        if other.records.shape == best.records.shape and (other.records[:, 3:] == best.records[:, 3:]).all():
            continue  # these sizes change nothing here
        if _faster(other, best, workers, inputs):
            best = other
    cache = kernel_cache()
    if cache is not None:
        choice = {name: getattr(best.tiling, name) for name in ("rows", "columns", "queries")}
        cache.write(f"tiling-{key_of(program, threads)}.json", json.dumps(choice).encode())
    return best


def _faster(other: TileProgram, best: TileProgram, workers: Pool, inputs: Sequence[Any]) -> bool:
    seconds: dict[TileProgram, list[float]] = {other: [], best: []}
    for number in range(ROUNDS + 1):
        for each in (other, best) if number % 2 else (best, other):
            start = time.perf_counter()
            each.run(inputs, workers)
            if number:
                seconds[each].append(time.perf_counter() - start)
    mine, theirs = seconds[other], seconds[best]
    return statistics.median(mine) < BETTER * statistics.median(theirs) and min(mine) < BETTER * min(theirs)
