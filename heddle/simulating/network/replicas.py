"""What replicas of a stage send to each other over their own links, and how long that takes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from heddle.cost.work import Work

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EXACT = 4.0  # bytes of a gradient that is sent as it is
SEGMENT = float(1 << 20)  # bytes of the largest message of gloo's ring


def exchange_messages(members: Ints, parameters: float, work: Work, sent: Floats) -> list[tuple[int, int, float]]:
    """What replicas of a stage send to each other, in bytes, from whom to whom; of local steps one meeting.

    `sent` are the bytes of a number on the link between each two of them.
    """
    d = len(members)
    if d == 1:
        return []
    share = parameters / d
    ring = [(int(a), int(b)) for a, b in zip(members, np.roll(members, -1), strict=True)]
    parts = [
        (int(a), int(b), share * float(sent[i, j]))
        for i, a in enumerate(members)
        for j, b in enumerate(members)
        if i != j
    ]
    if work.zero == 1:
        return parts + [(a, b, (d - 1) * share * work.element) for a, b in ring]
    if not coded(sent):
        return [(b, a, 2 * (d - 1) * share * EXACT) for a, b in ring]  # gloo's ring of sums runs downwards
    told = share * told_bytes(sent)
    return [(a, b, size + told) for a, b, size in parts]


def exchange_seconds(delay: Floats, speed: Floats, members: Ints, parameters: float, work: Work, sent: Floats) -> float:
    """What the replicas of a stage take to sum their gradients, over their own links; of local steps one meeting.

    Exact sums go round a ring twice, as gloo's do. Codes, and sums for ZeRO-1, go straight to the owner of each share,
    all at once; codes go straight to everybody then, and parameters round a ring. A message is sent when its receiver
    has said that it expects it, so it takes the way there and back.
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

    def straight(each: Floats | float) -> float:
        return float((2 * late + share * each / fast).max())

    if work.zero == 1:
        return straight(sent[apart]) + around(d - 1, share * work.element)
    if not coded(sent):
        return 2 * _half_a_sum(delay[b, a] + delay[a, b], speed[b, a], share * EXACT, d)
    return straight(sent[apart]) + straight(told_bytes(sent))


def _half_a_sum(both_ways: Floats, speed: Floats, share: float, members: int) -> float:
    """Seconds until every member has the sum of its share, or everybody's: of gloo's ring, over links in its order.

    What a member passes on goes in at least two messages, of which two are under way at a time: while one crosses, the
    other's receiver says that it expects it. So a link is either never idle, or waits for its own delay.
    """
    size = min(share / 2, SEGMENT)
    pairs = (members - 1) * share / (2 * size)
    pace = np.maximum(2 * size / speed, both_ways + size / speed)
    last = int(pace.argmax())
    return float(pairs * pace[last] + min(both_ways[last], size / speed[last]))


def early_share(parameters: float, work: Work) -> float:
    """Of an exact sum, what begins while the last backward still runs: all buckets but the last."""
    size = max(float(work.bucket_bytes), float(work.piece_bytes) * float(work.replicas), 1.0)
    return 1 - 1 / max(1, math.ceil(parameters * EXACT / size))


def coded(sent: Floats) -> bool:
    """Whether any two replicas send each other codes."""
    return told_bytes(sent) < EXACT


def told_bytes(sent: Floats) -> float:
    """Bytes of a number of the sum, which all are told in the code of the narrowest link."""
    return float(sent[~np.eye(len(sent), dtype=bool)].min(initial=EXACT))
