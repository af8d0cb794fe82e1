"""3 × 3 convolution by way of spread patches: which convolutions, and their tiles."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.recipe import IDENTITY, Recipe
from heddle.tiles.kernels.register_tile import LINE, UNROLL
from heddle.tiles.kernels.target import Target
from heddle.tiles.kernels.winograd import PLACES, Spread, Winograd, spread_weights
from heddle.tiles.operators.windows import Taps, Window
from heddle.tiles.tiling import Tiling, product_tile
from heddle.tiles.values import Rect, View, constant

FEWEST = 32  # patches, and channels: below, sums and differences cost what they save
AT_ONCE = 32  # patches of a tile: their products wait in the second cache for each other


def suits(target: Target, window: Window, groups: int, weight: Tensor, pixels: tuple[int, int, int]) -> bool:
    """Whether a convolution is one that this is faster for; `pixels` are images, height and width of the output."""
    outputs, inputs = weight.shape[:2]
    images, height, width = pixels
    panel = target.panel_vectors(outputs) * target.lanes
    plain = (window.size, window.stride, window.dilation) == ((3, 3), (1, 1), (1, 1)) and groups == 1
    even = not (height % 2 or width % 2 or inputs % target.lanes or outputs % panel)
    enough = min(inputs, outputs, images * height * width // 4) >= FEWEST
    return plain and even and enough and bool(weight.isfinite().all())


def patches(image: View, window: Window, height: int, width: int) -> Taps:
    """Where the pixels of each patch are."""
    return Taps.of(image, Window((4, 4), (2, 2), window.padding, (1, 1)), height // 2, width // 2, 0.0)


def packed_places(weight: Tensor, vectors: int, lanes: int) -> View:
    """Spread weights in panels, each with its 16 places, packed once."""
    spread, across = spread_weights(weight), vectors * lanes
    panels = spread.reshape(PLACES, weight.shape[1], -1, across).permute(2, 0, 1, 3)
    return constant(panels.reshape(1, -1))


def patch_tile(tiling: Tiling, target: Target, count: int, channels: int, columns: int) -> tuple[int, int, int, int]:
    """Vectors of a panel, patches of a register tile; blocks of them and panels of a tile."""
    vectors = target.panel_vectors(columns)
    block = target.block_rows(vectors, count)
    panel = vectors * target.lanes
    tall, wide = product_tile(tiling, target, count, columns, PLACES * channels, channels, block, panel)
    blocks = -(-count // block)
    tall = min(tall, max(1, AT_ONCE // block))
    return vectors, block, -(-blocks // -(-blocks // tall)), wide


@dataclass
class SpreadOperator:
    """Sums and differences of the pixels of all patches."""

    name: str
    image: View
    taps: Taps
    output: View  # patches × 16 channels
    step: int  # patches of a tile
    kind: str = "convolution"

    def tiles(self) -> list[Tile]:
        count, across = self.output.shape
        kernel = Spread(across // PLACES)
        found = []
        for first in range(0, count, self.step):
            last = min(count, first + self.step)
            placed: list[tuple[View, int] | int] = [
                (self.output, 0), (self.image, 0), (self.taps.table, 0), (self.taps.padding, 0), first, last,
            ]  # fmt: skip
            reads = [(self.image.buffer, self.taps.rect(self.image, first, last))]
            writes = [(self.output.buffer, self.output.rect((first, 0), (last, across)))]
            work = float((last - first) * across)
            found.append(Tile(kernel, placed, reads, writes, 2 * work, 8 * work))
        return found


@dataclass
class WinogradOperator:
    """Products of spread patches, and the pixels that they make."""

    name: str
    target: Target
    tiling: Tiling
    image: View
    taps: Taps
    spread: View
    weights: View
    output: View  # pixels × columns
    across: int  # patches side by side
    epilogue: Recipe = IDENTITY
    operands: list[View] = field(default_factory=list)
    kind: str = "convolution"

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        count, width = self.spread.shape
        return patch_tile(self.tiling, self.target, count, width // PLACES, self.output.shape[1])

    @property
    def kernel(self) -> Winograd:
        count, width = self.spread.shape
        vectors, block, tall, _ = self._sizes
        strides = tuple((each.strides[0], each.strides[1]) for each in self.operands)
        lines = -(-UNROLL * vectors * self.target.lanes * 4 // LINE // tall)
        return Winograd(
            width // PLACES, vectors, block, count % block, tall * block, self.across, self.output.strides[0],
            self.epilogue, strides, lines,
        )  # fmt: skip

    @property
    def scratch(self) -> int:
        return self.kernel.scratch(self.target.lanes)

    def tiles(self) -> list[Tile]:
        kernel, (vectors, block, tall, wide) = self.kernel, self._sizes
        count, columns = self.spread.shape[0], self.output.shape[1]
        panel = vectors * self.target.lanes
        found = []
        for first in range(0, count, tall * block):
            last = min(count, first + tall * block)
            for left in range(0, columns, wide * panel):
                right = min(columns, left + wide * panel)
                found.append(self._tile(kernel, first, last, Rect(*self._pixels(first, last), left, right), panel))
        return found

    def _pixels(self, first: int, last: int) -> tuple[int, int]:
        """All rows of pixels that some patches make."""
        row = 4 * self.across  # two rows of pixels
        return first // self.across * row, -(-last // self.across) * row

    def _tile(self, kernel: Winograd, first: int, last: int, part: Rect, panel: int) -> Tile:
        rows, width, columns = last - first, self.spread.shape[1], part.right - part.left
        begin, end = (part.top, part.left), (part.bottom, part.right)
        reads = [(self.spread.buffer, self.spread.rect((first, 0), (last, width)))]
        reads += [(self.image.buffer, self.taps.rect(self.image, first, last))]
        reads += [(each.buffer, each.rect(begin, end)) for each in self.operands]
        placed: list[tuple[View, int] | int] = [
            (self.spread, 0), (self.weights, 0), (self.output, 0), (self.image, 0), (self.taps.table, 0),
            (self.taps.padding, 0), *((each, 0) for each in self.operands),
            first, rows // kernel.rows, int(rows % kernel.rows > 0), part.left // panel, columns // panel,
        ]  # fmt: skip
        work = 2.0 * rows * width * columns
        moved = 4.0 * (rows * width + width * columns + 4 * rows * columns)
        return Tile(kernel, placed, reads, [(self.output.buffer, self.output.rect(begin, end))], work, moved)
