"""DualPipeV: two chunks per rank in a V, forwards and whole backwards in pairs (DeepSeek-AI 2025, after DualPipe).

Pairs of a forward and a backward of different microbatches can hide each other's communication. Only the first
backwards and the last ones are taken in two, where ranks would wait for each other otherwise.
"""

from __future__ import annotations

from collections import deque

from heddle.schedule.actions import Action, Kind, Schedule
from heddle.schedule.placement import ChunkPlacement
from heddle.schedule.rule import Column, Rule


def dualpipev(pipeline: int, microbatches: int, virtual: int = 2) -> Schedule:
    """The order that DeepSeek published (github.com/deepseek-ai/DualPipe), for two microbatches per rank or more."""
    assert virtual == 2
    ranks = (tuple(_order(rank, pipeline, microbatches)) for rank in range(pipeline))
    return Schedule("dualpipev", pipeline, 2, microbatches, tuple(ranks), ChunkPlacement.V)


def _order(rank: int, pipeline: int, microbatches: int) -> list[Action]:
    chunks = ChunkPlacement.V.chunks_of(rank, pipeline, 2)
    after = pipeline - rank - 1  # ranks below
    started, back = [0, 0], [0, 0]
    put_off: deque[Action] = deque()
    order: list[Action] = []

    def forward(lap: int) -> None:
        order.append(Action(Kind.FORWARD, chunks[lap], started[lap]))
        started[lap] += 1

    def backward(lap: int, halved: bool = False) -> None:
        order.append(Action(Kind.BACKWARD_INPUT if halved else Kind.BACKWARD, chunks[lap], back[lap]))
        if halved:
            put_off.append(Action(Kind.BACKWARD_WEIGHT, chunks[lap], back[lap]))
        back[lap] += 1

    def weights() -> None:
        if put_off:
            order.append(put_off.popleft())

    for _ in range(2 * after):
        forward(0)
    for _ in range(rank + 1):
        forward(0)
        forward(1)
    for _ in range(after):
        backward(1, halved=True)
        weights()
        forward(1)
    for _ in range(microbatches - 2 * pipeline + rank + 1):  # steady: in pairs
        forward(0)
        backward(1)
        forward(1)
        backward(0)
    for _ in range(after):
        backward(1)
        forward(1)
        backward(0)
    for i in range(rank + 1):  # the second half of these in two, so that the first rank waits less
        backward(1, halved=2 * i > rank)
        backward(0, halved=2 * i >= rank)
    for _ in range(after):
        weights()
        backward(0, halved=True)
    while put_off:
        weights()
    return order


def _bubble(pipeline: int, microbatches: int, virtual: int = 2) -> float:  # noqa: ARG001
    """As long as the last rank's late start, (p-1)·F of a chunk. Where pairs hide each other's messages, it is less."""
    return (pipeline - 1) / (6 * microbatches)


def in_flight(pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column:  # noqa: ARG001
    """A chunk more than ZB-V."""
    return 2 * pipeline + 1 + 0 * microbatches


def _written(pipeline: int, microbatches: int, virtual: int = 2) -> str:  # noqa: ARG001
    return "(p-1)/(6 m)"


DUALPIPEV = Rule(
    "dualpipev",
    dualpipev,
    _bubble,
    in_flight,
    2,
    2,
    2,
    placement=ChunkPlacement.V,
    splits=True,
    microbatches_per_rank=2,
    written=_written,
    torch_name="DualPipeV",
)
