"""Messages of a rank while it works: those it has sent that live on, and those it still awaits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heddle.schedule.actions import Schedule


class Transit(NamedTuple):
    """For each action of a rank, while it runs."""

    sent: np.ndarray  # messages that it has sent, and nobody has shown to have used
    takes: np.ndarray  # whether it began with one that arrived
    awaited: dict[int, np.ndarray]  # messages that are still to be taken when it begins, by the rank that sends them


def transit(schedule: Schedule) -> tuple[Transit, ...]:
    """Of each rank, found once for a schedule, which many plans share."""
    known: dict[str, tuple[Transit, ...]] = schedule.__dict__  # as a cached property would, with NumPy only here
    if "transit" not in known:
        known["transit"] = _transit(schedule)
    return known["transit"]


def _transit(schedule: Schedule) -> tuple[Transit, ...]:
    """What was sent is let go of when its receiver sends something that it made later."""
    chunks, m = schedule.chunks, schedule.microbatches
    at = np.full((2, chunks, m), -1)  # when each microbatch goes through each chunk, on and back, by its rank's clock
    directions, where, which = [], [], []
    for order in schedule.ranks:
        way = np.array([kind.direction for kind, _, _ in order])
        chunk = np.array([chunk for _, chunk, _ in order])
        microbatch = np.array([microbatch for _, _, microbatch in order])
        moves = np.flatnonzero(way)
        at[(way[moves] < 0).astype(int), chunk[moves], microbatch[moves]] = moves
        directions.append(way)
        where.append(chunk)
        which.append(microbatch)
    rank_of = np.array([schedule.rank_of(chunk) for chunk in range(chunks)])
    found = []
    for rank, order in enumerate(schedule.ranks):
        way, chunk, microbatch, size = directions[rank], where[rank], which[rank], len(order)
        source, target = _neighbor(chunk - way, way, rank_of, rank), _neighbor(chunk + way, way, rank_of, rank)
        back = (way < 0).astype(int)
        change = np.zeros(size + 1, dtype=int)
        awaited = {}
        for other in sorted({*source[source >= 0].tolist(), *target[target >= 0].tolist()}):
            sends, takes = np.flatnonzero(target == other), np.flatnonzero(source == other)
            reached = at[back[takes], (chunk - way)[takes], microbatch[takes]]  # how far the sender had come
            used = at[back[sends], (chunk + way)[sends], microbatch[sends]]
            shown = np.searchsorted(np.maximum.accumulate(reached), used) if len(reached) else np.zeros(len(sends), int)
            settled = np.append(takes, size)[np.minimum(shown, len(takes))]
            np.add.at(change, sends + 1, 1)
            np.add.at(change, np.maximum(settled, sends + 1), -1)
            gone = np.zeros(size, dtype=int)
            gone[takes] = 1
            awaited[other] = len(takes) - np.cumsum(gone) + gone
        found.append(Transit(np.cumsum(change)[:size], source >= 0, awaited))
    return tuple(found)


def _neighbor(chunk: np.ndarray, way: np.ndarray, rank_of: np.ndarray, rank: int) -> np.ndarray:
    """The rank of another chunk, for each action; -1 where there is none, or it is the same."""
    inside = (chunk >= 0) & (chunk < len(rank_of)) & (way != 0)
    other = np.where(inside, rank_of[np.clip(chunk, 0, len(rank_of) - 1)], -1)
    return np.where(other == rank, -1, other)
