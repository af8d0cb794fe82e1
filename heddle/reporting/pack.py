"""A trace as columns of plain numbers, small enough to travel inside a page and quick to draw from."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from heddle.trace.kinds import KINDS, is_beside, kind_of
from heddle.trace.trace import Trace

STRIPS = 2  # of a rank: its work, and what goes on beside it


def pack(trace: Trace) -> dict[str, Any]:
    """The spans in base64, ordered by rank, strip and start; `offsets` says where each strip of each rank begins.

    Times are seconds from the first start on. Starts are doubles: of a long step, shorter numbers would blur the
    borders of short spans.
    """
    origin = min((span.start for span in trace.spans), default=0.0)
    names = sorted({span.name for span in trace.spans})
    number = {name: place for place, name in enumerate(names)}
    looks = {(span.lane, span.name): (KINDS.index(kind_of(span)), is_beside(span)) for span in trace.spans}
    ordered = sorted(
        ((span.rank * STRIPS + looks[span.lane, span.name][1], span.start - origin, span) for span in trace.spans),
        key=lambda item: item[:2],
    )
    strips = np.array([strip for strip, _, _ in ordered], dtype=np.int64)
    spans = [span for _, _, span in ordered]
    columns = {
        "start": np.array([start for _, start, _ in ordered], dtype="<f8"),
        "length": np.array([span.end - span.start for span in spans], dtype="<f4"),
        "kind": np.array([looks[span.lane, span.name][0] for span in spans], dtype="u1"),
        "name": np.array([number[span.name] for span in spans], dtype=_smallest(len(names))),
        "chunk": np.array([span.chunk for span in spans], dtype="<i4"),
        "microbatch": np.array([span.microbatch for span in spans], dtype="<i4"),
    }
    if any(span.bytes for span in spans):
        columns["bytes"] = np.array([span.bytes for span in spans], dtype="<f8")
    return {
        "ranks": trace.ranks,
        "duration": trace.duration,
        "names": names,
        "offsets": np.searchsorted(strips, np.arange(trace.ranks * STRIPS + 1)).tolist(),
        "columns": {
            name: {"type": column.dtype.str[1:], "data": base64.b64encode(column.tobytes()).decode()}
            for name, column in columns.items()
        },
    }


def _smallest(count: int) -> str:
    """The type of numbers below `count`."""
    return "u1" if count <= 1 << 8 else "<u2" if count <= 1 << 16 else "<u4"


def unpack(packed: dict[str, Any]) -> dict[str, np.ndarray]:
    """The columns again, as the page sees them."""
    return {
        name: np.frombuffer(base64.b64decode(column["data"]), dtype=f"<{column['type']}")
        for name, column in packed["columns"].items()
    }
