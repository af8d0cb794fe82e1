"""Times as ratios: of this process alone, by the processor's clock, and against other work of the same test."""

from __future__ import annotations

import time
from collections.abc import Callable

ROUNDS = 3


def growth(small: Callable[[], object], large: Callable[[], object]) -> float:
    """How many times as long the large case takes as the small one: the least of alternating rounds of each."""
    least = [float("inf")] * 2
    for _ in range(ROUNDS):
        for number, work in enumerate((small, large)):
            began = time.process_time()
            work()
            least[number] = min(least[number], time.process_time() - began)
    return least[1] / least[0]
