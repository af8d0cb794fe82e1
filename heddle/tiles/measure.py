"""Tiles as they ran: a trace of a call, and the times of all tiles on one core."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from heddle.tiles.compiled import Compiled
from heddle.tiles.engine.pool import pool
from heddle.tiles.simulate import TileWorkload, workload
from heddle.trace.trace import COMPUTE, Span, Trace


def traced(module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any], threads: int) -> Trace:
    """One call after some that warm up: a rank is a core, a span is a tile with the name of its operator."""
    compiled = Compiled(module, threads)
    for _ in range(3):
        program, times = compiled.traced(*inputs, **keywords)
    first = int(times[:, 1].min())
    spans = [
        Span(int(worker), COMPUTE, program.graph.operators[owner].name, (start - first) * 1e-9, (end - first) * 1e-9)
        for (worker, start, end), owner in zip(times.tolist(), program.graph.owner, strict=True)
    ]
    return Trace(threads, sorted(spans, key=lambda span: (span.rank, span.start)))


def measured_workload(
    module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any], cores: int, calls: int
) -> TileWorkload:
    """The tiles that so many cores would get, each timed on one."""
    compiled = Compiled(module, cores, workers=pool(1))
    program, _ = compiled.traced(*inputs, **keywords)
    times = [compiled.traced(*inputs, **keywords)[1] for _ in range(max(calls, 1))]
    return workload(program.graph, [np.array(each) for each in times], core_bandwidth())


def core_bandwidth() -> float:
    """Bytes per second that one core reads from memory: the best of some sums over more than its caches hold."""
    numbers, best = np.ones(64 << 20, dtype=np.uint8).view(np.uint64), float("inf")
    for _ in range(5):
        start = time.perf_counter()
        numbers.sum()
        best = min(best, time.perf_counter() - start)
    return numbers.nbytes / best
