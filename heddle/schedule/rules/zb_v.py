"""ZB-V: two chunks per rank in a V, no bubble but the late start, the memory of 1F1B (arXiv 2401.10241 §6, Figure 7).

A microbatch goes down the ranks through their first chunks and up again through their second, so that the rank that
sees it first also sees its loss: its backward starts there at once, and no rank holds more than another.
"""

from __future__ import annotations

from heddle.schedule.actions import Action, Kind, Schedule
from heddle.schedule.placement import ChunkPlacement
from heddle.schedule.rule import Column, Rule


def zb_v(pipeline: int, microbatches: int, virtual: int = 2) -> Schedule:
    """The handcrafted order of the paper's authors, for any number of microbatches.

    Fewer microbatches than fill the pipeline take the order of those that would, without those that are not there.
    """
    assert virtual == 2
    ranks = (tuple(_order(rank, pipeline, microbatches)) for rank in range(pipeline))
    return Schedule("zb-v", pipeline, 2, microbatches, tuple(ranks), ChunkPlacement.V)


def _order(rank: int, pipeline: int, microbatches: int) -> list[Action]:
    count = max(microbatches, 2 * pipeline - 1)
    chunks = ChunkPlacement.V.chunks_of(rank, pipeline, 2)
    done = {(kind, chunk): 0 for kind in Kind for chunk in chunks}
    order: list[Action] = []

    def add(kind: Kind, lap: int) -> None:
        microbatch = done[kind, chunks[lap]]
        done[kind, chunks[lap]] += 1
        if microbatch < microbatches:
            order.append(Action(kind, chunks[lap], microbatch))

    def back(lap: int) -> None:
        add(Kind.BACKWARD_INPUT, lap)
        add(Kind.BACKWARD_WEIGHT, lap)

    # warm-up: forwards until the first microbatch has come back up; then as many as there are ranks above
    for _ in range(2 * (pipeline - rank) - 1):
        add(Kind.FORWARD, 0)
    for _ in range(rank):
        add(Kind.FORWARD, 1)
        add(Kind.FORWARD, 0)
    for _ in range(pipeline - rank):
        add(Kind.FORWARD, 1)
        back(1)
    # steady: each chunk takes one microbatch on and one back
    while done[Kind.FORWARD, chunks[1]] < count:
        if done[Kind.FORWARD, chunks[0]] < count:
            add(Kind.FORWARD, 0)
        back(0)
        add(Kind.FORWARD, 1)
        back(1)
    # cool-down: what others wait for first
    for _ in range(rank):
        add(Kind.BACKWARD_INPUT, 0)
        add(Kind.BACKWARD_INPUT, 1)
    for _ in range(pipeline - rank):
        add(Kind.BACKWARD_INPUT, 0)
        add(Kind.BACKWARD_WEIGHT, 0)
    for lap in (1, 0):
        while done[Kind.BACKWARD_WEIGHT, chunks[lap]] < count:
            add(Kind.BACKWARD_WEIGHT, lap)
    return order


def _bubble(pipeline: int, microbatches: int, virtual: int = 2) -> float:  # noqa: ARG001
    """The late start of the last rank, (p-1)·F of a chunk; more where a lap takes longer than its microbatches.

    Where steps follow each other without a barrier there is none (arXiv 2401.10241 §6).
    """
    p, m = pipeline, microbatches
    return max(p - 1, 4 * p - 2 - 2 * m) / (6 * m)


def _written(pipeline: int, microbatches: int, virtual: int = 2) -> str:  # noqa: ARG001
    return "(p-1)/(6 m)" if 2 * microbatches >= 3 * pipeline - 1 else "(2 p-1 - m)/(3 m)"


def in_flight(pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column:  # noqa: ARG001
    """Twice as many chunks as 1F1B's first rank, each half as large; the first ranks reach that when m ≥ 2p-1."""
    import numpy as np  # here, so that drawing a schedule does without it

    return np.minimum(np.minimum(2 * pipeline, 2 * microbatches), microbatches + 1 + rank)


ZB_V = Rule(
    "zb-v",
    zb_v,
    _bubble,
    in_flight,
    2,
    2,
    2,
    placement=ChunkPlacement.V,
    splits=True,
    written=_written,
    torch_name="ZBVZeroBubble",
)
