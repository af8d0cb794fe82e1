"""Memory over time: what each rank holds, from the trace of a step and the bytes that each chunk leaves behind."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.schedule import Kind
from heddle.trace.trace import COMPUTE, Trace

CHANGES = {str(kind): (kind.holds, kind.owes) for kind in Kind}
Curve = list[tuple[float, float]]  # (second, bytes from then on)


def memory_curves(
    trace: Trace, saved: Sequence[float], always: Sequence[float] | float = 0.0, owed: Sequence[float] | None = None
) -> list[Curve]:
    """The bytes of each rank, over time.

    Args:
        trace: a step; a forward holds what it leaves from its start on, until its backward has ended.
        saved: bytes that one microbatch leaves in each chunk.
        always: bytes that a rank holds from beginning to end, one number or one for each rank.
        owed: bytes of each chunk that the first half of a backward leaves to the second; as `saved` if not said.
    """
    owed = saved if owed is None else owed
    changes: list[list[tuple[float, float]]] = [[] for _ in range(trace.ranks)]
    for span in trace.spans:
        if span.lane != COMPUTE or span.chunk < 0:
            continue
        holds, owes = CHANGES.get(span.name, (0, 0))
        if holds or owes:
            change = holds * saved[span.chunk] + owes * owed[span.chunk]
            changes[span.rank].append((span.start if holds > 0 else span.end, change))
    curves = []
    for rank, steps in enumerate(changes):
        held = float(always) if isinstance(always, int | float) else float(always[rank])
        curve = [(0.0, held)]
        # what ends at a moment is freed before what starts at it is held
        for second, change in sorted(steps):
            held += change
            if second == curve[-1][0]:
                curve[-1] = (second, held)
            else:
                curve.append((second, held))
        curves.append(curve)
    return curves


def peak(curve: Curve) -> float:
    """The most bytes of a curve."""
    return max(held for _, held in curve)
