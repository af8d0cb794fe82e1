"""The tile graph: operators cut into tiles, and which tile waits for which, from the rectangles they touch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from heddle.tiles.kernels.library import Kernel
from heddle.tiles.values import Buffer, Rect, View


@dataclass
class Tile:
    """One piece of an operator: a kernel, what its record says, and what it touches."""

    kernel: Kernel | None  # None: a PyTorch operator
    operands: list[tuple[View, int] | int]  # views with an offset in numbers, then plain numbers
    reads: list[tuple[Buffer, Rect]]
    writes: list[tuple[Buffer, Rect]]
    flops: float = 0.0
    bytes: float = 0.0


class Operator(Protocol):
    """A piece of the graph that knows how to cut itself."""

    name: str  # where in the module it comes from

    @property
    def kind(self) -> str:
        """What it is: product, rows, attention, …"""

    def tiles(self) -> list[Tile]:
        """Its tiles, in the order in which one core would run them."""


@dataclass
class TileGraph:
    """All tiles in topological order; tile 0 is the beginning, which every tile without parents waits for."""

    operators: Sequence[Operator]
    tiles: list[Tile] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)  # the operator of each tile
    parents: list[list[int]] = field(default_factory=list)

    @classmethod
    def build(cls, operators: Sequence[Operator]) -> TileGraph:
        """Cut all operators, and find what each tile waits for."""
        graph = cls(operators)
        written: dict[Buffer, _Writers] = defaultdict(_Writers)
        for number, operator in enumerate(operators):
            cut = operator.tiles()
            first = len(graph.tiles) + 1
            for tile in cut:
                waits: set[int] = set()
                for buffer, rect in tile.reads:
                    if buffer.place not in ("constant", "input"):
                        waits.update(written[buffer].overlapping(rect))
                graph.parents.append(sorted(waits))
            for place, tile in enumerate(cut):
                for buffer, rect in tile.writes:
                    written[buffer].add(rect, first + place)
            graph.tiles += cut
            graph.owner += [number] * len(cut)
        return graph

    @property
    def children(self) -> list[list[int]]:
        """Of the beginning and of each tile; those of an operator near by first."""
        found: list[list[int]] = [[] for _ in range(len(self.tiles) + 1)]
        for number, waits in enumerate(self.parents, 1):
            for parent in waits or [0]:
                found[parent].append(number)
        return found

    def ancestors(self) -> list[int]:
        """For each tile, as the bits of a number, all tiles that are done before it begins."""
        found = [0]
        for waits in self.parents:
            bits = 0
            for parent in waits:
                bits |= found[parent] | 1 << parent
            found.append(bits)
        return found


class _Writers:
    """Which tile wrote which part of a buffer."""

    def __init__(self) -> None:
        self.rects: list[Rect] = []
        self.tiles: list[int] = []
        self.table: Any = None

    def add(self, rect: Rect, tile: int) -> None:
        self.rects.append(rect)
        self.tiles.append(tile)
        self.table = None

    def overlapping(self, rect: Rect) -> list[int]:
        if not self.rects:
            return []
        if self.table is None:
            self.table = np.array(self.rects, dtype=np.int64).T, np.array(self.tiles, dtype=np.int64)
        (top, bottom, left, right), tiles = self.table
        hit = (top < rect.bottom) & (bottom > rect.top) & (left < rect.right) & (right > rect.left)
        return tiles[hit].tolist()
