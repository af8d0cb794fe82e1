"""What a trace is made of: all that a picture of one has to know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from heddle.trace.lanes import Lane

COMPUTE = Lane.COMPUTE.value  # the lane of forwards and backwards


class Span(NamedTuple):
    """One stretch of time on one lane of one rank. Spans of a lane do not overlap.

    Times are seconds on one clock for all ranks. `chunk` and `microbatch` are -1 for work that belongs to
    none, such as the optimizer's: -1 and not None, so that these columns of a trace are plain numbers.
    """

    rank: int
    lane: str
    name: str
    start: float
    end: float
    bytes: int = 0
    chunk: int = -1
    microbatch: int = -1


class Drawable(Protocol):
    """Spans of several ranks: a trace."""

    @property
    def ranks(self) -> int: ...
    @property
    def spans(self) -> Sequence[Span]: ...
    @property
    def duration(self) -> float: ...
