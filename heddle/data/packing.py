"""Documents put together into samples of one length: best fit, longest first, from the lengths alone.

Documents of one length are alike, so lengths are counted and whole groups are placed at once: a hundred million
documents take as long as the number of different lengths asks for, not as their own.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


def packed(lengths: Numbers, capacity: int) -> tuple[Numbers, Numbers]:
    """Which documents go together: their numbers, sample by sample, and where in that list each sample starts.

    Every document is in one sample, none is cut, and no sample is longer than `capacity`. Each document, from the
    longest to the shortest, goes into the sample with the least room that it fits into, else into a new one. `lengths`
    must be between 1 and `capacity`.
    """
    assert len(lengths) == 0 or (lengths.min() >= 1 and lengths.max() <= capacity)
    order = np.argsort(-lengths, kind="stable")
    sizes, first = np.unique(-lengths[order], return_index=True)
    counts = np.diff([*first, len(lengths)])
    # samples with so much room left, as runs of equal history: their documents' sizes, and how many of them there are
    rooms: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    open_rooms: list[int] = []  # sorted
    full: list[tuple[tuple[int, ...], int]] = []
    for size, count in zip((-sizes).tolist(), counts.tolist(), strict=True):
        left = count
        while left:
            at = bisect_left(open_rooms, size)
            if at == len(open_rooms):  # new samples, each with as many of this size as fit
                each = capacity // size
                whole, rest = divmod(left, each)
                for copies, number in ((each, whole), (rest, 1)):
                    if copies and number:
                        _put(rooms, open_rooms, full, capacity - copies * size, ((size,) * copies, number))
                left = 0
                continue
            room = open_rooms[at]
            history, number = rooms[room].pop()
            if not rooms[room]:
                del rooms[room], open_rooms[at]
            # best fit puts more of the same size into the same sample as long as they fit
            each = min(room // size, left)
            filled = min(number, left // each)
            if filled < number:
                _put(rooms, open_rooms, full, room, (history, number - filled))
            _put(rooms, open_rooms, full, room - each * size, ((*history, *(size,) * each), filled))
            left -= filled * each
    runs = full + [run for room in open_rooms for run in rooms[room]]
    return _as_documents(runs, order, dict(zip((-sizes).tolist(), first.tolist(), strict=True)), len(lengths))


def _put(
    rooms: dict[int, list[tuple[tuple[int, ...], int]]],
    open_rooms: list[int],
    full: list[tuple[tuple[int, ...], int]],
    room: int,
    run: tuple[tuple[int, ...], int],
) -> None:
    if room == 0:
        full.append(run)
        return
    if room not in rooms:
        rooms[room] = []
        open_rooms.insert(bisect_left(open_rooms, room), room)
    rooms[room].append(run)


def _as_documents(
    runs: list[tuple[tuple[int, ...], int]], order: Numbers, next_of: dict[int, int], count: int
) -> tuple[Numbers, Numbers]:
    """Give every place of a size the next document of that size."""
    documents, starts, at = np.empty(count, np.int64), [], 0
    for history, number in runs:
        for _ in range(number):
            starts.append(at)
            for size in history:
                documents[at] = order[next_of[size]]
                next_of[size] += 1
                at += 1
    assert at == count
    return documents, np.array(starts, np.int64)
