"""A trace for https://ui.perfetto.dev and chrome://tracing: a process per rank, a thread per lane, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.format import GIB
from heddle.trace.trace import Trace


def to_perfetto(trace: Trace, memory: Sequence[Sequence[tuple[float, float]]] | None = None) -> dict[str, Any]:
    """The trace in Chrome's Trace Event Format, ready for `json.dump`.

    Args:
        trace: what happened, or would happen.
        memory: for each rank, the bytes that it holds from each second on.
    """
    lanes = sorted({(span.rank, span.lane) for span in trace.spans})
    thread = {lane: number for number, lane in enumerate(lanes)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in range(trace.ranks)
    ]
    events += [
        {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
        for rank in range(trace.ranks)
    ]
    events += [
        {"ph": "M", "name": "thread_name", "pid": rank, "tid": thread[rank, lane], "args": {"name": lane}}
        for rank, lane in lanes
    ]
    for span in trace.spans:
        label = span.name if span.microbatch < 0 else f"{span.name} {span.microbatch}"
        about = {"chunk": span.chunk, "microbatch": span.microbatch, "bytes": span.bytes}
        events.append(
            {
                "ph": "X",
                "name": label,
                "cat": span.name,  # Perfetto colors by name and filters by category
                "pid": span.rank,
                "tid": thread[span.rank, span.lane],
                "ts": span.start * 1e6,  # the format counts in microseconds
                "dur": (span.end - span.start) * 1e6,
                "args": {key: value for key, value in about.items() if value >= 0},
            }
        )
    events += [
        {"ph": "C", "name": "predicted memory", "pid": rank, "ts": second * 1e6, "args": {"GiB": held / GIB}}
        for rank, curve in enumerate(memory or [])
        for second, held in curve
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}
