"""Depthwise convolution over rows of pixels: which ones, and their tiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.depthwise import Depthwise, Line
from heddle.tiles.kernels.recipe import IDENTITY, Recipe
from heddle.tiles.operators.windows import Window
from heddle.tiles.tiling import Tiling, line_tile
from heddle.tiles.values import Rect, View, constant

TAPS = 64  # of a window that is written out
EDGES = 4  # runs of a row that are written out for themselves


def lines(image: View, window: Window, height: int, width: int) -> tuple[Line, Line]:
    """What rows and columns of the output see."""
    down, along = (
        Line(pixels, made, window.size[dim], window.stride[dim], window.padding[dim], window.dilation[dim])
        for dim, (pixels, made) in enumerate(((image.shape[2], height), (image.shape[3], width)))
    )
    return along, down


def suits(along: Line, down: Line) -> bool:
    """Whether the code stays short."""
    return along.taps * down.taps <= TAPS and along.edges <= EDGES


@dataclass
class DepthwiseOperator:
    """Some rows of the output are a tile."""

    name: str
    tiling: Tiling
    image: View  # images, channels, rows, columns, with channels next to each other
    along: Line
    down: Line
    weights: View  # taps × channels
    output: View  # pixels × channels
    epilogue: Recipe = IDENTITY
    operands: list[View] = field(default_factory=list)
    kind: str = "depthwise"

    @property
    def kernel(self) -> Depthwise:
        by_image, _, by_row, by_pixel = self.image.strides
        strides = tuple((each.strides[0], each.strides[1]) for each in self.operands)
        return Depthwise(
            self.along, self.down, self.output.shape[1], (by_image, by_row, by_pixel), self.output.strides[0],
            self.epilogue, strides,
        )  # fmt: skip

    @cached_property
    def zeros(self) -> View:
        """A row outside the image."""
        return constant(torch.zeros(self.along.pixels * self.image.strides[3]))

    def tiles(self) -> list[Tile]:
        pixels, channels = self.output.shape
        kernel, rows = self.kernel, pixels // self.along.made
        operations = 2 * channels * self.along.taps * self.down.taps * self.along.made
        size = 4 * channels * (self.along.made + self.down.stride * self.along.pixels)
        step = line_tile(self.tiling, rows, operations, size)
        return [self.tile(kernel, first, min(rows, first + step)) for first in range(0, rows, step)]

    def tile(self, kernel: Depthwise, first: int, last: int) -> Tile:
        """Some rows of the output."""
        made, channels = self.along.made, kernel.channels
        box = (first * made, 0), (last * made, channels)
        placed: list[tuple[View, int] | int] = [
            (self.output, 0), (self.image, 0), (self.zeros, 0), (self.weights, 0),
            *((each, 0) for each in self.operands), first, last,
        ]  # fmt: skip
        reads = [(self.image.buffer, each) for each in self._seen(first, last)]
        reads += [(each.buffer, each.rect(*box)) for each in self.operands]
        work = 2.0 * (last - first) * made * channels * self.along.taps * self.down.taps
        moved = 4.0 * (last - first) * channels * (made + self.down.stride * self.along.pixels)
        return Tile(kernel, placed, reads, [(self.output.buffer, self.output.rect(*box))], work, moved)

    def _seen(self, first: int, last: int) -> list[Rect]:
        """The rows of each image that some rows of the output see."""
        down, (_, channels, _, width) = self.down, self.image.shape
        found = []
        for image in range(first // down.made, (last - 1) // down.made + 1):
            top, bottom = max(first - image * down.made, 0), min(last - image * down.made, down.made)
            low, high = down.column(top, 0), down.column(bottom - 1, down.taps - 1) + 1
            low, high = max(low, 0), min(high, down.pixels)
            if low < high:
                found.append(self.image.rect((image, 0, low, 0), (image + 1, channels, high, width)))
        return found
