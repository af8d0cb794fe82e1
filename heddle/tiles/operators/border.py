"""An image of a few channels whose window rows are read in one piece: each row gets zeros at its ends.

A tap of so few channels is too short a depth for a product. With the zeros in place, the taps of one row of a window
follow each other in memory at every pixel, and are one tap of many channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.border import Border
from heddle.tiles.operators.windows import Window
from heddle.tiles.tiling import Tiling, row_tile
from heddle.tiles.values import View, new

FEW = 8  # channels


def suits(image: View, window: Window, groups: int) -> bool:
    """Whether a convolution over an image is one that gains by it; rows of pixels have to lie as they are captured."""
    few = groups == 1 and image.shape[1] <= FEW and window.size[1] > 1 and window.dilation[1] == 1
    return few and image.strides[3] == 1 and image.dtype == torch.float32


@dataclass
class BorderOperator:
    """Some rows of all images are a tile."""

    name: str
    tiling: Tiling
    image: View  # images, channels, rows, columns
    output: View  # images, rows, columns with their zeros, channels
    left: int
    kind: str = "copy"

    def tiles(self) -> list[Tile]:
        images, channels, height, width = self.image.shape
        wide = self.output.shape[2]
        by_image, by_channel, by_row, _ = self.image.strides
        kernel = Border(
            channels, height, width, self.left, wide - width - self.left, (by_image, by_channel, by_row)
        )  # fmt: skip
        step = row_tile(self.tiling, images * height, 8 * wide * channels)
        found = []
        for image in range(images):
            for first in range(0, height, step):
                last = min(height, first + step)
                reads = self.image.rect((image, 0, first, 0), (image + 1, channels, last, width))
                writes = self.output.rect((image, first, 0, 0), (image + 1, last, wide, channels))
                placed: list[tuple[View, int] | int] = [
                    (self.output, 0), (self.image, 0), image * height + first, image * height + last,
                ]  # fmt: skip
                moved = 8.0 * (last - first) * wide * channels
                found.append(
                    Tile(kernel, placed, [(self.image.buffer, reads)], [(self.output.buffer, writes)], bytes=moved)
                )
        return found


def bordered(name: str, tiling: Tiling, image: View, window: Window, made: int) -> tuple[BorderOperator, View, Window]:
    """The copy, the image whose channels are a row of the window, and the window that is left; `made` pixels wide."""
    images, channels, height, width = image.shape
    across, step, left = window.size[1], window.stride[1], window.padding[1]
    wide = max(left + width, (made - 1) * step + across)
    copy = new((images, height, wide, channels), width=wide * channels)
    shape = (images, across * channels, height, wide - across + 1)
    seen = copy.then(lambda meta: meta.as_strided(shape, (height * wide * channels, 1, wide * channels, channels)))
    rest = Window((window.size[0], 1), window.stride, (window.padding[0], 0), (window.dilation[0], 1))
    return BorderOperator(name, tiling, image, copy, left), seen, rest
