"""Attention of one query over keys and values that were kept and some new ones: each head of them is a tile."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.one_query import OneQuery
from heddle.tiles.kernels.target import Target
from heddle.tiles.values import Buffer, Rect, View

Pair = tuple[View, View]  # what was kept, and what is new


@dataclass
class OneQueryOperator:
    """All as (batch, heads, places, numbers); keys and values may have fewer heads than queries."""

    name: str
    target: Target
    queries: View
    keys: Pair
    values: Pair
    output: View
    scale: float
    mask: View | None = None  # expanded to (batch, heads of queries, 1, keys)
    kind: str = "attention"

    @property
    def kernel(self) -> OneQuery:
        (kept, new), values = self.keys, self.values
        return OneQuery(
            head=self.queries.shape[-1],
            value_head=self.output.shape[-1],
            kept=kept.shape[2],
            new=new.shape[2],
            queries=self.queries.shape[1] // kept.shape[1],
            query_stride=self.queries.strides[1],
            output_stride=self.output.strides[1],
            key_strides=(kept.strides[2], new.strides[2]),
            value_strides=(values[0].strides[2], values[1].strides[2]),
            scale=self.scale,
            mask_stride=None if self.mask is None else self.mask.strides[1],
        )

    @property
    def scratch(self) -> int:
        """Bytes that a worker needs."""
        return self.kernel.scratch(self.target.lanes)

    def tiles(self) -> list[Tile]:
        batch, heads = self.keys[0].shape[:2]
        return [self._tile(self.kernel, b, h) for b in range(batch) for h in range(heads)]

    def _tile(self, kernel: OneQuery, b: int, h: int) -> Tile:
        share = kernel.queries

        def part(view: View, first: int, count: int) -> tuple[tuple[View, int], tuple[Buffer, Rect]]:
            begin = (b, first, 0, 0)
            place = sum(i * s for i, s in zip(begin, view.strides, strict=True))
            return (view, place), (view.buffer, view.rect(begin, (b + 1, first + count, *view.shape[2:])))

        output, written = part(self.output, h * share, share)
        read = [part(self.queries, h * share, share)]
        read += [part(each, h, 1) for each in (self.keys[0], self.values[0], self.keys[1], self.values[1])]
        if self.mask is not None:
            read.append(part(self.mask, h * share, share))
        placed: list[tuple[View, int] | int] = [output, *(place for place, _ in read)]
        placed += [0] if self.mask is None else []
        numbers = (kernel.kept + kernel.new) * (kernel.head + kernel.value_head)
        reads = [rect for _, rect in read]
        return Tile(kernel, placed, reads, [written], 2.0 * share * numbers, 4.0 * numbers)
