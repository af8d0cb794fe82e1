"""What one rank did and has under way: its program, and the memory that operations on their way still use."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.strict.program import Communicator, Event, Meet, Operation
from tests.strict.replay import StrictError

Span = tuple[int, int]  # bytes of memory


class Pending(NamedTuple):
    """Memory that an operation under way uses."""

    span: Span
    written: bool
    operation: Operation


class Recording:
    """What one rank did, and what it has under way."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.program: list[Event] = []
        self.pending: list[Pending] = []
        self.undelivered: dict[Communicator, list[Any]] = defaultdict(list)
        self.kernels: set[Any] = set()
        self.meetings: dict[Any, int] = defaultdict(int)

    @contextmanager
    def silence(self) -> Any:
        with torch._C._DisableTorchDispatch():
            yield

    def meet(self, ranks: tuple[int, ...], what: str) -> None:
        self.meetings[ranks, what] += 1
        self.program.append(Meet(ranks, what, self.meetings[ranks, what]))


def span_of(x: Tensor) -> Span:
    """The bytes that a tensor takes."""
    start = x.data_ptr()
    if x.is_contiguous():
        return start, start + x.numel() * x.element_size()
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return start, start + (last + 1) * x.element_size()


def check_memory(recording: Recording, span: Span, writes: bool, user: Any) -> None:
    for (start, stop), written, operation in recording.pending:
        if start < span[1] and span[0] < stop and (writes or written):
            if isinstance(user, Operation) and user.communicator is operation.communicator:
                continue  # one stream, one after the other
            does = "overwrites what is not yet sent by" if not written else "touches what has not arrived by"
            raise StrictError(f"rank {recording.rank}: {user} {does} {operation}; nobody has waited for it")
