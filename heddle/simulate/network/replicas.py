"""What replicas of a stage send to each other over their own links, and how long that takes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from heddle.cost.work import Work

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def exchange_messages(members: Ints, parameters: float, work: Work) -> list[tuple[int, int, float]]:
    """What replicas of a stage send to each other, in bytes, from whom to whom; of local steps one meeting."""
    d = len(members)
    if d == 1:
        return []
    share = parameters / d
    ring = [(int(a), int(b)) for a, b in zip(members, np.roll(members, -1), strict=True)]
    pairs = [(int(a), int(b)) for a in members for b in members if a != b]
    first = share * float(work.reduce_bytes)
    if work.zero == 1:
        gathered = [(a, b, (d - 1) * share * work.element) for a, b in ring]
        return [(a, b, first) for a, b in pairs] + gathered
    if work.feedback:
        return [(a, b, 2 * first) for a, b in pairs]
    return [(a, b, 2 * (d - 1) * first) for a, b in ring]


def exchange_seconds(delay: Floats, speed: Floats, members: Ints, parameters: float, work: Work) -> float:
    """What the replicas of a stage take to sum their gradients, over their own links; of local steps each step's part.

    Exact sums go round a ring twice, as gloo's do. Codes, and sums for ZeRO-1, go straight to the owner of each share,
    all at once; codes go straight to everybody then, and parameters round a ring. A message is sent when its receiver
    has said that it expects it, so it takes the delay twice.
    """
    d = len(members)
    if d == 1:
        return 0.0
    share = parameters / d
    a, b = members, np.roll(members, -1)
    apart = ~np.eye(d, dtype=bool)
    late, fast = delay[np.ix_(members, members)][apart], speed[np.ix_(members, members)][apart]

    def around(turns: int, count: float) -> float:
        return turns * float((2 * delay[a, b] + count / speed[a, b]).max())

    def straight(count: float) -> float:
        return float((2 * late + count / fast).max())

    first = share * float(work.reduce_bytes)
    if work.zero == 1:
        seconds = straight(first) + around(d - 1, share * work.element)
    elif work.feedback:
        seconds = 2 * straight(first)
    else:
        seconds = around(2 * (d - 1), first)
    return seconds / max(1, int(work.local_steps))
