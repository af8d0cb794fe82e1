"""Windows over images whose channels are next to each other: taps, pooling, depthwise convolution, blending."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.recipe import IDENTITY, Recipe
from heddle.tiles.kernels.windows import Windows
from heddle.tiles.tiling import Tiling, window_tile
from heddle.tiles.values import Rect, View, constant


@dataclass(frozen=True)
class Window:
    """A window's geometry, each as (height, width)."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


@dataclass
class Taps:
    """For each pixel of the output, where the taps of its window are in the image: bytes, or -1 outside."""

    count: int
    offsets: NDArray[np.int32]  # pixels × taps
    table: View
    padding: View  # what is read outside

    @classmethod
    def of(cls, image: View, window: Window, height: int, width: int, outside: float) -> Taps:
        """Of an image (batch, channels, rows, columns) with any strides, but for channels next to each other."""
        batch, channels, rows, columns = image.shape
        by_image, _, by_row, by_column = image.strides
        y = np.arange(height)[:, None] * window.stride[0] - window.padding[0]
        y = y + np.arange(window.size[0]) * window.dilation[0]
        x = np.arange(width)[:, None] * window.stride[1] - window.padding[1]
        x = x + np.arange(window.size[1]) * window.dilation[1]
        inside = ((y >= 0) & (y < rows))[:, None, :, None] & ((x >= 0) & (x < columns))[None, :, None, :]
        places = y[:, None, :, None] * by_row + x[None, :, None, :] * by_column
        count = window.size[0] * window.size[1]
        one = np.where(inside, 4 * places, -1).reshape(1, -1, count)
        shift = 4 * by_image * np.arange(batch).reshape(-1, 1, 1)
        offsets = np.where(one >= 0, one + shift, -1).reshape(-1, count).astype(np.int32)
        return cls._kept(offsets, channels, outside)

    @classmethod
    def between(cls, image: View, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Taps:
        """Of each pixel of the output all pairs of some rows (its height × several) and columns of the image."""
        by_image, _, by_row, by_column = image.strides
        places = rows[:, None, :, None] * by_row + columns[None, :, None, :] * by_column
        one = places.reshape(1, -1, rows.shape[1] * columns.shape[1])
        shift = by_image * np.arange(image.shape[0]).reshape(-1, 1, 1)
        return cls._kept((4 * (one + shift)).reshape(-1, one.shape[-1]).astype(np.int32), image.shape[1], 0.0)

    @classmethod
    def _kept(cls, offsets: NDArray[np.int32], channels: int, outside: float) -> Taps:
        table = constant(torch.from_numpy(offsets))
        return cls(offsets.shape[1], offsets, table, constant(torch.full((max(channels, 64),), outside)))

    def rect(self, image: View, first: int, last: int) -> Rect:
        """The rows of the image's buffer that some pixels read."""
        used = self.offsets[first:last]
        used = used[used >= 0]
        if not used.size:
            return Rect(0, 0, 0, 0)
        width = image.buffer.width
        low, high = image.offset + int(used.min()) // 4, image.offset + int(used.max()) // 4 + image.shape[1]
        return Rect(low // width, -(-high // width), 0, width)

    def shares(self) -> NDArray[np.float32]:
        """1 over the taps of each pixel that are inside."""
        return (1.0 / np.maximum((self.offsets >= 0).sum(1), 1)).astype(np.float32)


@dataclass
class WindowsOperator:
    """Depthwise convolution, pooling, or blending."""

    name: str
    tiling: Tiling
    window: str  # "depthwise", "max", "mean" or "blend"
    image: View
    taps: Taps
    weights: View  # taps × channels, or a share for each pixel, or pixels × taps
    output: View  # pixels × channels
    epilogue: Recipe = IDENTITY
    operands: list[View] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return {"depthwise": "depthwise", "blend": "upsampling"}.get(self.window, "pooling")

    def tiles(self) -> list[Tile]:
        pixels, channels = self.output.shape
        strides = tuple((each.strides[0], each.strides[1]) for each in self.operands)
        kernel = Windows(self.window, self.taps.count, channels, self.output.strides[0], self.epilogue, strides)
        read = max(1, self.image.meta.numel() // (pixels * channels))  # numbers of the image for each of the output
        step = window_tile(self.tiling, pixels, 2 * channels * self.taps.count, 4 * channels * (read + 1))
        found = []
        for first in range(0, pixels, step):
            last = min(pixels, first + step)
            box = (first, 0), (last, channels)
            placed: list[tuple[View, int] | int] = [
                (self.output, 0), (self.image, 0), (self.taps.table, 0), (self.taps.padding, 0), (self.weights, 0),
                *((each, 0) for each in self.operands), first, last,
            ]  # fmt: skip
            reads = [(self.image.buffer, self.taps.rect(self.image, first, last))]
            reads += [(each.buffer, each.rect(*box)) for each in self.operands]
            work = float((last - first) * channels * self.taps.count)
            found.append(
                Tile(kernel, placed, reads, [(self.output.buffer, self.output.rect(*box))], 2 * work, 4 * work)
            )
        return found
