"""Products: a matrix with packed weights or with another computed matrix, and convolution as a product of windows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.pack import Pack, packed_size
from heddle.tiles.kernels.product import ProductKernel
from heddle.tiles.kernels.recipe import IDENTITY, Recipe
from heddle.tiles.kernels.register_tile import LINE, UNROLL
from heddle.tiles.kernels.target import Target
from heddle.tiles.operators.windows import Taps
from heddle.tiles.tiling import Tiling, narrow_tile, product_tile
from heddle.tiles.values import Rect, View, constant, new

FEW = 4  # rows that wait for the memory of their weights, not for arithmetic


def pack_weight(weight: Tensor, vectors: int, lanes: int) -> Tensor:
    """Depth × columns into panels, the last one as many whole vectors wide as it needs."""
    depth, columns = weight.shape
    across = vectors * lanes
    whole = columns // across * across
    parts = [weight[:, :whole].reshape(depth, -1, across).permute(1, 0, 2).reshape(-1)]
    if columns > whole:
        odd = weight[:, whole:]
        parts.append(F.pad(odd, (0, -odd.shape[1] % lanes)).reshape(-1))
    return torch.cat(parts)


@dataclass
class ProductOperator:
    """[batch ×] rows × depth times depth × columns, then the epilogue."""

    name: str
    target: Target
    tiling: Tiling
    left: View  # batch, rows, depth; of a convolution the image
    right: View  # packed: of a computed matrix one row for each of the batch
    output: View  # batch, rows, columns
    depth: int
    vectors: int
    epilogue: Recipe = IDENTITY
    operands: list[View] = field(default_factory=list)  # of the epilogue, shaped as the output
    taps: Taps | None = None
    shared: tuple[int, ...] = ()  # of each dim of the batch, how far the right side moves; () moves with every one

    @property
    def kind(self) -> str:
        return "product" if self.taps is None else "convolution"

    @property
    def block(self) -> int:
        return self.target.block_rows(self.vectors, self.output.shape[-2])

    @property
    def part(self) -> int:
        """Of the depth, or of the taps, what is multiplied at a time."""
        return self.target.depth_part(self.depth, self.vectors, self.taps.count if self.taps else 0)

    def kernel(self, tall: int) -> ProductKernel:
        rows, columns = self.output.shape[-2:]
        lines = -(-UNROLL * self.vectors * self.target.lanes * 4 // LINE // tall)
        return ProductKernel(
            depth=self.depth,
            columns=columns,
            vectors=self.vectors,
            rows=self.block,
            odd_rows=rows % self.block,
            left_stride=0 if self.taps else self.left.strides[-2],
            output_stride=self.output.strides[-2],
            epilogue=self.epilogue,
            operands=tuple((each.strides[-2], each.strides[-1]) for each in self.operands),
            # One row reads weights as fast as they come, in order: hardware fetches them ahead better than we do.
            lines=lines if rows > 1 and self.right.buffer.place == "constant" else 0,
            taps=0 if self.taps is None else self.taps.count,
            part=self.part,
        )

    def tiles(self) -> list[Tile]:
        *batch, rows, columns = self.output.shape
        panel = self.vectors * self.target.lanes
        depth = self.depth * (self.taps.count if self.taps else 1)
        held = self.depth * self.part if self.taps else self.part
        tall, wide = product_tile(self.tiling, self.target, rows, columns, depth, held, self.block, panel)
        if rows <= FEW and self.right.buffer.place == "constant":
            tall, wide = 1, narrow_tile(self.tiling, -(-columns // panel), 4 * depth * panel)
        kernel = self.kernel(tall)
        size = packed_size(depth, panel, self.target.lanes)
        found = []
        for index in itertools.product(*map(range, batch)):
            for top in range(0, rows, tall * self.block):
                for left in range(0, columns, wide * panel):
                    bottom, right = min(rows, top + tall * self.block), min(columns, left + wide * panel)
                    found.append(self._tile(kernel, index, Rect(top, bottom, left, right), left // panel * size, depth))
        return found

    def rows_tile(self, kernel: ProductKernel, first: int, last: int) -> Tile:
        """Some rows, all columns."""
        return self._tile(kernel, (), Rect(first, last, 0, self.output.shape[-1]), 0, self.depth)

    def _tile(self, kernel: ProductKernel, index: tuple[int, ...], part: Rect, packed: int, depth: int) -> Tile:
        rows, columns = part.bottom - part.top, part.right - part.left
        panel = self.vectors * self.target.lanes
        number = _flat(index, self.shared or _steps(self.output.shape[:-2]))
        row_size = self.right.shape[-1]
        output = _at(self.output, (*index, part.top, part.left))
        if self.taps is None:
            left, table, padding = _at(self.left, (*index, part.top, 0)), 0, 0
            read = self.left.rect((*index, part.top, 0), (*(i + 1 for i in index), part.bottom, self.depth))
        else:
            left, table, padding = 0, part.top * self.taps.count, 0
            read = self.taps.rect(self.left, part.top, part.bottom)
        box = (*index, part.top, part.left), (*(i + 1 for i in index), part.bottom, part.right)
        reads = [(self.left.buffer, read), (self.right.buffer, Rect(number, number + 1, 0, row_size))]
        reads += [(each.buffer, each.rect(*box)) for each in self.operands]
        placed: list[tuple[View, int] | int] = [
            (self.left, left), (self.right, number * row_size + packed), (self.output, output),
            (self.taps.table, table) if self.taps else 0, (self.taps.padding, padding) if self.taps else 0,
        ]  # fmt: skip
        placed += [(each, _at(each, (*index, part.top, part.left))) for each in self.operands]
        placed += [rows // kernel.rows, int(rows % kernel.rows > 0), columns // panel, int(columns % panel > 0)]
        moved = 4.0 * (rows * self.depth + depth * columns + rows * columns)
        return Tile(
            kernel, placed, reads, [(self.output.buffer, self.output.rect(*box))], 2.0 * rows * columns * depth, moved
        )


@dataclass
class PackOperator:
    """A computed matrix of each of a batch into panels."""

    name: str
    target: Target
    source: View  # batch, depth, columns
    output: View  # of the batch, what is packed
    vectors: int
    kind: str = "pack"

    def tiles(self) -> list[Tile]:
        *batch, depth, columns = self.source.shape
        kernel = Pack(depth, columns, self.vectors, *self.source.strides[-2:])
        found = []
        for number, index in enumerate(itertools.product(*map(range, batch))):
            begin, end = (*index, 0, 0), (*(i + 1 for i in index), depth, columns)
            rows = Rect(number, number + 1, 0, self.output.shape[-1])
            found.append(
                Tile(
                    kernel,
                    [(self.output, number * self.output.shape[-1]), (self.source, _at(self.source, begin))],
                    [(self.source.buffer, self.source.rect(begin, end))],
                    [(self.output.buffer, rows)],
                    bytes=8.0 * depth * columns,
                )
            )
        return found


def packed(name: str, target: Target, source: View, vectors: int) -> PackOperator:
    """Pack a computed matrix into a buffer of its own."""
    *batch, depth, columns = source.shape
    size = packed_size(depth, columns, target.lanes)
    count = int(np.prod(batch)) if batch else 1
    return PackOperator(name, target, source, new((count, size), width=size), vectors)


def packed_constant(weight: Tensor, vectors: int, lanes: int) -> View:
    """Weights, packed once, as one row."""
    return constant(pack_weight(weight, vectors, lanes).reshape(1, -1))


def _at(view: View, index: Sequence[int]) -> int:
    """How far an element of a view is from its beginning, in numbers."""
    return sum(place * stride for place, stride in zip(index, view.strides, strict=True))


def _steps(sizes: Sequence[int]) -> tuple[int, ...]:
    steps: list[int] = []
    step = 1
    for size in reversed(sizes):
        steps.insert(0, step)
        step *= size
    return tuple(steps)


def _flat(index: Sequence[int], steps: Sequence[int]) -> int:
    return sum(place * step for place, step in zip(index, steps, strict=True))
