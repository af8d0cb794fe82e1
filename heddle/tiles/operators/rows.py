"""Element-wise work, norms, softmax, look-ups and copies, fused into one operator over the rows of its output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.recipe import REDUCTIONS, Recipe
from heddle.tiles.kernels.rows import Access, Rows
from heddle.tiles.memory import HEAD
from heddle.tiles.tiling import Tiling, row_tile
from heddle.tiles.values import Buffer, View

SHORT = 64  # numbers of a row: shorter ones are joined where memory allows


@dataclass
class Lookup:
    """Rows of a table, chosen by an index."""

    table: View
    index: View  # shaped as the output without its last dim


# Where errors are noted: the beginning of the arena, which no buffer has.
ERRORS = View(Buffer(HEAD, torch.uint8, HEAD, "arena"), torch.empty(HEAD, dtype=torch.uint8, device="meta"))


@dataclass
class RowsOperator:
    """A recipe over all numbers of `shape`; operands are broadcast to it."""

    name: str
    tiling: Tiling
    shape: tuple[int, ...]
    recipe: Recipe
    operands: list[View | Lookup]
    output: View  # of `shape`, or with a last dim of 1

    @property
    def kind(self) -> str:
        return "rows" if any(each[0] in REDUCTIONS for each in self.recipe) else "element-wise"

    def tiles(self) -> list[Tile]:
        order = self._order()
        *outer, inner = order
        accesses, bytes_of_row = [], 8
        for each in self.operands:
            if isinstance(each, Lookup):
                table = (each.table.shape[0], each.table.strides[0])
                index = each.index.meta.unsqueeze(-1).expand(self.shape).stride()
                accesses.append(Access(tuple(index[dim] for dim in outer), 1, "f32", table))
            else:
                strides = each.meta.expand(self.shape).stride()
                kind = "bool" if each.dtype == torch.bool else "f32"
                accesses.append(Access(tuple(strides[dim] for dim in outer), strides[inner], kind))
            bytes_of_row += 4 * self.shape[inner]
        strides = self.output.strides
        reduced = self.output.shape[inner] == 1 and self.shape[inner] > 1
        output = Access(tuple(strides[dim] for dim in outer), 0 if reduced else strides[inner])
        sizes, accesses, output, inner_size = _joined(
            [self.shape[dim] for dim in outer], accesses, output, self.shape[inner], self.kind == "rows"
        )
        kernel = Rows(tuple(sizes), inner_size, self.recipe, tuple(accesses), output)
        count = math.prod(sizes)
        step = row_tile(self.tiling, count, bytes_of_row * inner_size // max(1, self.shape[inner]))
        return [self._tile(kernel, order, first, min(count, first + step), count) for first in range(0, count, step)]

    def _order(self) -> list[int]:
        """Dims from far to near in the memory of the output; with reductions the last one is nearest."""
        dims = list(range(len(self.shape)))
        if self.kind == "rows" or any(isinstance(each, Lookup) for each in self.operands):
            outer = sorted(dims[:-1], key=lambda dim: (-self.output.strides[dim], dim))
            return [*outer, dims[-1]]
        return sorted(dims, key=lambda dim: (-self.output.strides[dim], self.shape[dim] != 1, dim))

    def _tile(self, kernel: Rows, order: list[int], first: int, last: int, count: int) -> Tile:
        """Rows first … last: a box of the output, in the order of its memory."""
        outer = order[:-1]
        total = math.prod(self.shape[dim] for dim in outer)
        share = total / count  # short rows were joined
        low, high = _box([self.shape[dim] for dim in outer], int(first * share), max(1, math.ceil(last * share)))
        begins, ends = [0] * len(self.shape), list(self.shape)
        for dim, begin, end in zip(outer, low, high, strict=True):
            begins[dim], ends[dim] = begin, end
        placed: list[tuple[View, int] | int] = [(self.output, 0)]
        reads = []
        for each in self.operands:
            if isinstance(each, Lookup):
                placed += [(each.table, 0), (each.index, 0)]
                index = View(each.index.buffer, each.index.meta.unsqueeze(-1).expand(self.shape))
                reads.append((each.index.buffer, index.rect(begins, ends)))
                reads.append((each.table.buffer, each.table.whole()))
            else:
                placed.append((each, 0))
                wide = View(each.buffer, each.meta.expand(self.shape))
                reads.append((each.buffer, wide.rect(begins, ends)))
        placed += [(ERRORS, 0), first, last]
        stop = [min(end, size) for end, size in zip(ends, self.output.shape, strict=True)]
        work = float((last - first) * kernel.inner)
        writes = [(self.output.buffer, self.output.rect(begins, stop))]
        return Tile(kernel, placed, reads, writes, work * len(self.recipe), 4 * work * (1 + len(self.operands)))


def _box(sizes: Sequence[int], first: int, last: int) -> tuple[list[int], list[int]]:
    """The smallest box that holds rows first … last - 1 of these dims."""
    low, high = [], []
    rest = math.prod(sizes)
    for place, size in enumerate(sizes):
        rest //= size
        begin, end = first // rest, (last - 1) // rest
        low.append(begin)
        high.append(end + 1)
        if begin != end:
            return low + [0] * (len(sizes) - place - 1), high + list(sizes[place + 1 :])
        first, last = first - begin * rest, last - begin * rest
    return low, high


def _joined(
    sizes: list[int], accesses: list[Access], output: Access, inner: int, reduces: bool
) -> tuple[list[int], list[Access], Access, int]:
    """Fewer dims, where all operands step through two of them as through one."""
    every = [*accesses, output]
    dims = [(size, [each.outer[dim] for each in every]) for dim, size in enumerate(sizes) if size != 1]
    near = [each.inner for each in every]
    plain = not reduces and not any(each.table or each.kind == "bool" for each in every)
    while plain and dims and inner < SHORT:
        size, strides = dims[-1]
        if any(stride != step * inner for stride, step in zip(strides, near, strict=True)):
            break
        inner *= size
        dims.pop()
    merged: list[tuple[int, list[int]]] = []
    for size, strides in dims:
        if merged and all(before == stride * size for before, stride in zip(merged[-1][1], strides, strict=True)):
            merged[-1] = (merged[-1][0] * size, strides)
        else:
            merged.append((size, strides))
    found = [
        Access(tuple(strides[place] for _, strides in merged), each.inner, each.kind, each.table)
        for place, each in enumerate(every)
    ]
    return [size for size, _ in merged], found[:-1], found[-1], inner
