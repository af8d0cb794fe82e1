"""Time limits of searches: one clock, one way to stop."""

from __future__ import annotations

import time


class OutOfTime(Exception):  # noqa: N818 - caught where the best so far is known
    """The time limit was reached."""


def in_seconds(limit: float) -> float:
    """The moment at which a limit that starts now runs out."""
    return time.perf_counter() + limit


def left(deadline: float) -> float:
    """Seconds until then; negative once it has passed."""
    return deadline - time.perf_counter()


def check(deadline: float) -> None:
    """Stop where there is no time left."""
    if time.perf_counter() > deadline:
        raise OutOfTime
