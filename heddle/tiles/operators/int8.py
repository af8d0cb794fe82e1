"""One row times weights of int8: how weights are rounded, and the product cut into tiles."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.int8 import GROUP, VECTORS, Int8Product
from heddle.tiles.kernels.recipe import IDENTITY, Recipe
from heddle.tiles.kernels.target import Target
from heddle.tiles.operators.product import pack_weight
from heddle.tiles.tiling import Tiling, int8_tile
from heddle.tiles.values import Rect, View, constant

LARGEST = 127


@dataclass
class Codes:
    """Weights of depth × columns as int8, packed, and the scales of their groups, packed alike."""

    codes: View
    scales: View


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of depth × columns, and scales of groups × columns: a weight is about its code times its scale."""
    depth, columns = weight.shape
    whole = F.pad(weight.detach().float(), (0, 0, 0, -depth % GROUP)).reshape(-1, GROUP, columns)
    scales = whole.abs().amax(1) / LARGEST
    codes = (whole / torch.where(scales == 0, 1.0, scales)[:, None]).round()
    return codes.to(torch.int8).reshape(-1, columns)[:depth], scales


def int8_codes(weight: Tensor, lanes: int) -> Codes:
    """A weight, rounded and packed once."""
    packed = (pack_weight(each, VECTORS, lanes).reshape(1, -1) for each in rounded(weight))
    return Codes(*map(constant, packed))


@dataclass
class Int8ProductOperator:
    """One row of `depth` times weights, then the epilogue."""

    name: str
    target: Target
    tiling: Tiling
    left: View  # 1 × depth
    right: Codes
    output: View  # 1 × columns
    depth: int
    epilogue: Recipe = IDENTITY
    operands: list[View] = field(default_factory=list)  # of the epilogue, shaped as the output
    kind: str = "product"

    def tiles(self) -> list[Tile]:
        columns = self.output.shape[-1]
        panel = VECTORS * self.target.lanes
        kernel = Int8Product(self.depth, columns, self.epilogue, tuple(each.strides[-1] for each in self.operands))
        step = panel * int8_tile(self.tiling, -(-columns // panel), panel * self.depth)
        return [self._tile(kernel, left, min(columns, left + step)) for left in range(0, columns, step)]

    def _tile(self, kernel: Int8Product, left: int, right: int) -> Tile:
        panel, columns = VECTORS * self.target.lanes, right - left
        groups = -(-self.depth // GROUP)
        placed: list[tuple[View, int] | int] = [
            (self.left, 0), (self.right.codes, left * self.depth), (self.right.scales, left * groups),
            (self.output, left * self.output.strides[-1]),
            *((each, left * each.strides[-1]) for each in self.operands),
            columns // panel, int(columns % panel > 0),
        ]  # fmt: skip
        box = (0, left), (1, right)
        reads = [(self.left.buffer, self.left.rect((0, 0), (1, self.depth)))]
        reads += [(each.buffer, each.rect(*box)) for each in self.operands]
        for each in (self.right.codes, self.right.scales):
            reads.append((each.buffer, Rect(0, 1, 0, each.shape[-1])))
        writes = [(self.output.buffer, self.output.rect(*box))]
        return Tile(kernel, placed, reads, writes, 2.0 * columns * self.depth, columns * (self.depth + 4.0 * groups))
