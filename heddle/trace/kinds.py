"""What a span is, in a few kinds that every picture shows in the same color."""

from __future__ import annotations

from heddle.trace.lanes import Lane, Phase
from heddle.trace.spans import COMPUTE, Span

# Colors that people who see few colors tell apart, too (Okabe and Ito): forwards blue and backwards green, as in
# PTD-P Figure 4.
COLORS = {
    "forward": "#0072b2",
    "backward": "#009e73",
    "weight-gradient": "#f0e442",  # the half of a backward that nobody waits for
    "recompute": "#e69f00",
    "communication": "#cc79a7",
    "waiting": "#a8a8a8",
    "optimizer": "#d55e00",
    "other": "#56b4e9",
}
KINDS = tuple(COLORS)
_WORK = {
    "forward": "forward",
    "backward": "backward",
    "backward input": "backward",
    "backward weight": "weight-gradient",
    "recompute": "recompute",
}
_LANES: dict[str, str] = {Lane.RECEIVE: "waiting", Lane.OPTIMIZER: "optimizer"}
_TRANSFERS = (Lane.SEND, Lane.TENSOR, Lane.CONTEXT, Lane.EXPERT, Lane.DATA, Lane.EMBEDDING)


def kind_of(span: Span) -> str:
    """One of KINDS. Who waits for a message, or for the last sums of gradients, is waiting."""
    if span.lane == COMPUTE:
        return _WORK.get(span.name, "other")
    if span.lane == Lane.OPTIMIZER and span.name == Phase.GRADIENTS:
        return "waiting"
    return "communication" if span.lane in _TRANSFERS else _LANES.get(span.lane, "other")


def is_beside(span: Span) -> bool:
    """Whether a span may go on beside the work of its rank: messages, collectives, and waiting for them."""
    return kind_of(span) in ("communication", "waiting")
