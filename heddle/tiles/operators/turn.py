"""Images from channels behind each other to channels next to each other, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.target import Target
from heddle.tiles.kernels.turn import Turn
from heddle.tiles.tiling import Tiling, row_tile
from heddle.tiles.values import View


@dataclass
class TurnOperator:
    """output[:, column, row] = source[:, row, column] of each image."""

    name: str
    target: Target
    tiling: Tiling
    source: View  # images, rows, columns that are next to each other
    output: View  # images, columns, rows that are next to each other
    kind: str = "copy"

    def tiles(self) -> list[Tile]:
        images, rows, columns = self.source.shape
        lanes = self.target.lanes
        kernel = Turn(rows, columns, self.source.strides[1], self.output.strides[1])
        step = lanes * row_tile(self.tiling, -(-columns // lanes), 8 * rows * lanes)
        found = []
        for image in range(images):
            for first in range(0, columns, step):
                last = min(columns, first + step)
                reads = self.source.rect((image, 0, first), (image + 1, rows, last))
                writes = self.output.rect((image, first, 0), (image + 1, last, rows))
                placed: list[tuple[View, int] | int] = [
                    (self.output, image * self.output.strides[0]), (self.source, image * self.source.strides[0]),
                    first, last,
                ]  # fmt: skip
                moved = 8.0 * rows * (last - first)
                found.append(
                    Tile(kernel, placed, [(self.source.buffer, reads)], [(self.output.buffer, writes)], bytes=moved)
                )
        return found


def turned(source: View, output: View) -> tuple[View, View] | None:
    """The two sides of a turn as (images, rows, columns) and (images, columns, rows); None where a copy is none."""
    if len(source.shape) != 4 or source.dtype != torch.float32:
        return None
    images, channels, height, width = source.shape

    def outer(meta: Tensor) -> Tensor:
        return meta.view(images, channels, height * width)

    def inner(meta: Tensor) -> Tensor:
        return meta.permute(0, 2, 3, 1).view(images, height * width, channels)

    for first, second in ((outer, inner), (inner, outer)):
        try:
            pair = source.then(first), output.then(second)
        except RuntimeError:  # memory in another order
            continue
        if min(pair[0].shape[1:]) > 1 and pair[0].strides[2] == pair[1].strides[2] == 1:
            return pair
    return None
