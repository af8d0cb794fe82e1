"""The idle time that a schedule with a flush after each step cannot avoid, in closed form."""

from __future__ import annotations


def flush_bubble(pipeline: int, microbatches: int, virtual: int = 1) -> float:
    """Idle time over ideal time, t_pb / t_id, when all chunks cost the same and messages are free.

    (p-1) / (v·m) for m ≥ p: PTD-P §2.2.1 for v=1 and §2.2.2 for v>1. With fewer microbatches than ranks and
    v > 1, a rank waits for the single group to come round, so each lap lasts p microbatches instead of m:
    the step takes v·p + m - 1 pairs of forward and backward. Our own extension; it holds for GPipe,
    1F1B and the interleaved schedule alike, and the tests hold the event replay to it.
    """
    p, m, v = pipeline, microbatches, virtual
    return (v * max(m, p) + min(m, p) - 1 - v * m) / (v * m)


def flush_formula(pipeline: int, microbatches: int, virtual: int = 1) -> str:
    """The same in letters."""
    if virtual == 1:
        return "(p-1)/m"
    return "(p-1)/(v m)" if microbatches >= pipeline else "(v p + m-1)/(v m) - 1"
