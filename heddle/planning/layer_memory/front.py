"""All ways to choose an option for each of many layers that no other way beats in both seconds and bytes.

Layers of one group are alike, so what matters is how many of them take which option. They are added one after the
other, and of all ways to spend as many bytes only the quickest stays. A front of many thousand points is thinned: of
neighbors in bytes, within 1/384 of the range, the quickest stays, with its own bytes: nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

POINTS = 384  # from which on a front is thinned


class LayerGroup(NamedTuple):
    """Layers that are alike, with the seconds and the bytes of each option that one of them may take."""

    layers: int
    seconds: np.ndarray
    bytes: np.ndarray


class Front(NamedTuple):
    """Ways to choose, fewest bytes first and quickest last."""

    seconds: np.ndarray
    bytes: np.ndarray
    counts: list[np.ndarray]  # of each group: how many layers take each option, in each of the ways

    def within(self, room: float) -> int | None:
        """The quickest that fits; None: none does."""
        at = int(np.searchsorted(self.bytes, room, side="right")) - 1
        return None if at < 0 else at


def front(groups: Sequence[LayerGroup]) -> Front:
    """All ways that no other beats."""
    seconds, held = np.zeros(1), np.zeros(1)
    counts = [np.zeros((1, len(group.seconds)), dtype=np.int32) for group in groups]
    for number, group in enumerate(groups):
        useful = np.sort(_undominated(group.seconds, group.bytes))
        own = group.seconds[useful, None], group.bytes[useful, None]
        added: list[tuple[np.ndarray, np.ndarray]] = []  # of each layer: the way before, and its option
        for _ in range(group.layers):
            # one option after the other: each is a run that is sorted already, which a stable sort makes use of
            s, b = (own[0] + seconds).ravel(), (own[1] + held).ravel()
            keep = _undominated(s, b)
            if len(keep) > POINTS:
                keep = _thinned(keep, b)
            option, point = np.divmod(keep, len(seconds))
            added.append((point, useful[option]))
            seconds, held = s[keep], b[keep]
        way, rows = np.arange(len(seconds)), np.arange(len(seconds))
        taken = np.zeros((len(seconds), len(group.seconds)), dtype=np.int32)
        for point, option in reversed(added):
            taken[rows, option[way]] += 1
            way = point[way]
        counts = [each[way] for each in counts]
        counts[number] = taken
    return Front(seconds, held, counts)


def _undominated(seconds: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Places of the points that no other beats in both, fewest bytes first."""
    order = np.argsort(held, kind="stable")
    best = np.minimum.accumulate(seconds[order])
    better = np.concatenate([[True], best[1:] < best[:-1]])
    kept = order[better]
    of_equal = np.concatenate([held[kept[1:]] > held[kept[:-1]], [True]])  # the last of those with as many bytes
    return np.asarray(kept[of_equal])


def _thinned(keep: np.ndarray, held: np.ndarray) -> np.ndarray:
    """The last, which is the quickest, of each part of the range; and the first of all, which fits soonest."""
    low, high = held[keep[0]], held[keep[-1]]
    part = np.floor((held[keep] - low) / (high - low) * POINTS)
    last = np.concatenate([part[1:] != part[:-1], [True]])
    last[0] = True
    return np.asarray(keep[last])


def lower_hull(held: np.ndarray, seconds: np.ndarray) -> list[int]:
    """The lower convex hull, fewest bytes first, down to the quickest."""
    hull: list[int] = []
    for at in np.lexsort((seconds, held)):
        if hull and seconds[at] >= seconds[hull[-1]]:
            continue
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (seconds[b] - seconds[a]) * (held[at] - held[a]) < (seconds[at] - seconds[a]) * (held[b] - held[a]):
                break
            hull.pop()
        hull.append(int(at))
    return hull
