"""Where buffers live: one arena, whose stretches are used again as soon as that cannot disturb anyone.

Without barriers "as soon as" is not a moment but an order: a buffer may take over memory when *every* tile that touched
the old one is an ancestor of *every* tile that writes the new one. So keys and values of one layer never share memory
with those of the next, whose first rows may be computed while others still attend, but with those of the layer after.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.tiles.graph import TileGraph
from heddle.tiles.values import SPARE, Buffer

ALIGNED = 64
HEAD = 64  # bytes at the beginning of an arena: where kernels note errors


@dataclass
class _Stretch:
    begin: int
    end: int
    touched: int  # tiles, as bits, that used it


def place_buffers(graph: TileGraph) -> int:
    """Give every buffer of the arena its offset; returns the arena's bytes."""
    touched: dict[Buffer, int] = {}
    writers: dict[Buffer, list[int]] = {}
    for number, tile in enumerate(graph.tiles, 1):
        for buffer, _ in tile.reads + tile.writes:
            if buffer.place == "arena":
                touched[buffer] = touched.get(buffer, 0) | 1 << number
        for buffer, _ in tile.writes:
            if buffer.place == "arena":
                writers.setdefault(buffer, []).append(number)
    before = graph.ancestors()
    stretches: list[_Stretch] = []
    size = HEAD
    for buffer, tiles in sorted(writers.items(), key=lambda item: item[1][0]):
        common = before[tiles[0]]
        for each in tiles[1:]:
            common &= before[each]
        wanted = -(-(buffer.bytes + SPARE) // ALIGNED) * ALIGNED
        found = _fit(stretches, common, wanted)
        if found is None:
            found = size
            size += wanted
        stretches = [each for each in stretches if each.end <= found or each.begin >= found + wanted] + [
            part
            for each in stretches
            if each.end > found and each.begin < found + wanted
            for part in _rest(each, found, found + wanted)
        ]
        stretches.append(_Stretch(found, found + wanted, touched[buffer]))
        buffer.offset = found
    return size


def _rest(old: _Stretch, begin: int, end: int) -> list[_Stretch]:
    """What a new buffer leaves of an old one."""
    parts = [(old.begin, min(old.end, begin)), (max(old.begin, end), old.end)]
    return [_Stretch(low, high, old.touched) for low, high in parts if low < high]


def _fit(stretches: list[_Stretch], common: int, wanted: int) -> int | None:
    """The tightest run of stretches that are free for tiles which have these ancestors."""
    free = sorted((each for each in stretches if each.touched & ~common == 0), key=lambda each: each.begin)
    best: tuple[int, int] | None = None
    begin = end = -1
    runs = []
    for each in free:
        if each.begin != end:
            if end > begin >= 0:
                runs.append((begin, end))
            begin = each.begin
        end = each.end
    if end > begin >= 0:
        runs.append((begin, end))
    for low, high in runs:
        if high - low >= wanted and (best is None or high - low < best[1] - best[0]):
            best = (low, high)
    return None if best is None else best[0]
