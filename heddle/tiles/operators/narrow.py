"""A few rows times weights in fewer bits: how weights are rounded and packed, and the product cut into tiles."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.digits import BLOCK, GROUP, Digits
from heddle.tiles.kernels.narrow import VECTORS, NarrowProduct, panel_bytes
from heddle.tiles.kernels.recipe import IDENTITY, Recipe
from heddle.tiles.kernels.target import Target
from heddle.tiles.tiling import Tiling, narrow_tile
from heddle.tiles.values import Rect, View, constant, new

BITS = {"float32": 32, "bfloat16": 16, "int8": 8, "int4": 4}  # of a weight, by what users call it


def rounded(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes of depth × columns, and scales of groups × columns: a weight is about its code times its scale.

    With 4 bits the largest number of a group becomes the lowest code, which has no positive counterpart, as in
    llama.cpp; with 8, codes are symmetric. Scales are bfloat16, and codes are the nearest to what these make of them.
    """
    depth, columns = weight.shape
    whole = F.pad(weight.detach().float(), (0, 0, 0, -depth % GROUP)).reshape(-1, GROUP, columns)
    lowest = 1 << bits - 1
    if bits == 8:
        scales = whole.abs().amax(1) / (lowest - 1)
    else:
        scales = whole.gather(1, whole.abs().argmax(1, keepdim=True))[:, 0] / -lowest
    scales = scales.bfloat16().float()
    codes = (whole / torch.where(scales == 0, 1.0, scales)[:, None]).round().clamp(-lowest, lowest - 1)
    return codes.to(torch.int8).reshape(-1, columns)[:depth], scales


def unrounded(codes: Tensor, scales: Tensor) -> Tensor:
    """What codes and scales stand for."""
    return codes * scales.repeat_interleave(GROUP, 0)[: len(codes)]


def narrow_weights(weight: Tensor, bits: int, lanes: int) -> View:
    """Weights of depth × columns, rounded and packed once."""
    columns, across = weight.shape[1], VECTORS * lanes
    whole = columns // across * across
    pieces = [weight[:, :whole]] if whole else []
    pieces += [F.pad(weight[:, whole:], (0, -columns % lanes))] if columns % across else []
    pack = _packed_halves if bits == 16 else _packed_codes
    packed = [pack(each, bits, min(across, each.shape[1])) for each in pieces]
    return constant(torch.cat(packed).reshape(1, -1))


def _packed_halves(weight: Tensor, _: int, across: int) -> Tensor:
    """Panels of pairs along the depth."""
    even = F.pad(weight.detach(), (0, 0, 0, weight.shape[0] % 2)).bfloat16().view(torch.int16)
    return even.reshape(-1, 2, even.shape[1] // across, across).permute(2, 0, 3, 1).reshape(-1).view(torch.uint8)


def _packed_codes(weight: Tensor, bits: int, across: int) -> Tensor:
    """Panels of groups, each of codes and then scales. Codes are unsigned, four of the depth in a word; two words of
    4-bit codes share one.
    """
    codes, scales = rounded(weight, bits)
    groups, panels = len(scales), weight.shape[1] // across
    unsigned = F.pad(codes.int() + (1 << bits - 1), (0, 0, 0, groups * GROUP - len(codes))).to(torch.uint8)
    steps = unsigned.reshape(groups, GROUP // 4, 4, panels, across).permute(3, 0, 1, 4, 2)
    if bits == 4:
        steps = steps[:, :, 0::2] | steps[:, :, 1::2] << 4
    factors = scales.bfloat16().view(torch.int16).reshape(groups, panels, across).permute(1, 0, 2)
    flat = [steps.reshape(panels, groups, -1), factors.contiguous().view(torch.uint8)]
    return torch.cat(flat, -1).reshape(-1)


@dataclass
class DigitsOperator:
    """Rows as digits, a stretch of groups at a time."""

    name: str
    source: View  # rows × depth
    output: View  # rows × bytes of blocks
    kind: str = "digits"

    def tiles(self) -> list[Tile]:
        rows, depth = self.source.shape
        kernel = Digits(depth % GROUP)
        step = GROUP * STRETCH
        return [
            self._tile(kernel, row, left, min(depth, left + step))
            for row in range(rows)
            for left in range(0, depth, step)
        ]

    def _tile(self, kernel: Digits, row: int, left: int, right: int) -> Tile:
        first, last = left // GROUP * BLOCK, -(-right // GROUP) * BLOCK
        placed: list[tuple[View, int] | int] = [
            (self.source, row * self.source.strides[0] + left), (self.output, row * self.output.strides[0] + first),
            (right - left) // GROUP, int((right - left) % GROUP > 0),
        ]  # fmt: skip
        reads = [(self.source.buffer, self.source.rect((row, left), (row + 1, right)))]
        return Tile(
            kernel, placed, reads, [(self.output.buffer, Rect(row, row + 1, first, last))], bytes=6.0 * (right - left)
        )


STRETCH = 64  # groups of a tile of digits


def digits(name: str, source: View) -> DigitsOperator:
    """Digits of rows in a buffer of their own."""
    rows, depth = source.shape
    size = -(-depth // GROUP) * BLOCK
    return DigitsOperator(name, source, new((rows, size), width=size, dtype=torch.uint8))


@dataclass
class NarrowProductOperator:
    """A few rows times weights, then the epilogue."""

    name: str
    target: Target
    tiling: Tiling
    bits: int
    left: View  # rows × depth; of codes, digits
    right: View  # packed, as one row
    output: View  # rows × columns
    depth: int
    epilogue: Recipe = IDENTITY
    operands: list[View] = field(default_factory=list)  # of the epilogue, shaped as the output
    kind: str = "product"

    def tiles(self) -> list[Tile]:
        rows, columns = self.output.shape
        panel = VECTORS * self.target.lanes
        kernel = NarrowProduct(
            self.bits,
            rows,
            self.depth,
            columns,
            self.left.strides[0],
            self.output.strides[0],
            self.epilogue,
            tuple((each.strides[-2], each.strides[-1]) for each in self.operands),
        )
        size = panel_bytes(self.bits, self.depth, panel)
        step = panel * narrow_tile(self.tiling, -(-columns // panel), size)
        return [self._tile(kernel, left, min(columns, left + step), size) for left in range(0, columns, step)]

    def _tile(self, kernel: NarrowProduct, left: int, right: int, size: int) -> Tile:
        panel, columns = VECTORS * self.target.lanes, right - left
        placed: list[tuple[View, int] | int] = [
            (self.left, 0), (self.right, left // panel * size), (self.output, left * self.output.strides[-1]),
            *((each, left * each.strides[-1]) for each in self.operands),
            columns // panel, int(columns % panel > 0),
        ]  # fmt: skip
        box = (0, left), (kernel.rows, right)
        reads = [(self.left.buffer, self.left.whole()), (self.right.buffer, Rect(0, 1, 0, self.right.shape[-1]))]
        reads += [(each.buffer, each.rect(*box)) for each in self.operands]
        writes = [(self.output.buffer, self.output.rect(*box))]
        moved = panel_bytes(self.bits, self.depth, columns)
        return Tile(kernel, placed, reads, writes, 2.0 * kernel.rows * columns * self.depth, moved)
