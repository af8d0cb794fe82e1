"""A depthwise convolution whose only reader is a product over its channels: which pairs are one, and their tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.separable import Separable
from heddle.tiles.operators.depthwise import DepthwiseOperator
from heddle.tiles.operators.product import ProductOperator
from heddle.tiles.tiling import PER_WORKER
from heddle.tiles.values import View

HELD = 192 << 10  # bytes of rows between the two: a part of the second cache
COLUMNS = 128  # of a product: each tile reads all of its weights


def suits(first: DepthwiseOperator, second: ProductOperator) -> bool:
    """Whether one reads what the other writes, and that is too large to wait in a cache."""
    between = first.output
    same = second.taps is None and second.left.buffer is between.buffer and between.buffer.place == "arena"
    whole = between.meta.numel() == between.buffer.size == second.left.meta.numel()
    large = between.buffer.bytes > 0.4 * second.target.l2
    return same and whole and large and second.output.shape[-1] <= COLUMNS and second.part >= second.depth


@dataclass
class SeparableOperator:
    """Both, a few rows of pixels at a time."""

    name: str
    first: DepthwiseOperator
    second: ProductOperator
    kind: str = "separable"

    @property
    def output(self) -> View:
        return self.second.output

    @property
    def _sizes(self) -> tuple[int, int]:
        """Pixels of a register tile, and rows of a tile: whole register tiles, but for the last."""
        made, rows = self.first.along.made, self.first.output.shape[0] // self.first.along.made
        threads, most = self.second.tiling.threads, self.second.target.register_rows(self.second.vectors)
        wanted = -(-rows // (PER_WORKER * threads)) if threads > 1 else rows
        wanted = max(1, min(wanted, HELD // (4 * made * self.second.depth)))

        def unit(block: int) -> int:
            return block // math.gcd(block, made)

        fits = [block for block in range(most, most // 2, -1) if unit(block) <= wanted]
        block = fits[0] if fits else min(range(most, most // 2, -1), key=unit)
        return block, min(rows, max(1, wanted // unit(block)) * unit(block))

    @property
    def scratch(self) -> int:
        """Bytes that a worker needs."""
        return 4 * self._sizes[1] * self.first.along.made * self.second.depth

    def tiles(self) -> list[Tile]:
        made, depth = self.first.along.made, self.second.depth
        block, step = self._sizes
        rows = self.first.output.shape[0] // made
        left = replace(self.second.kernel(step * made // block or 1), rows=block, left_stride=depth)
        product = replace(left, odd_rows=rows * made % block)
        kernel = Separable(replace(self.first.kernel, output_stride=depth), product)
        found = []
        for top in range(0, rows, step):
            bottom = min(rows, top + step)
            before = self.first.tile(kernel.depthwise, top, bottom)
            after = self.second.rows_tile(product, top * made, bottom * made)
            reads = before.reads + after.reads[1:]  # all but the rows between them
            found.append(
                Tile(kernel, before.operands + after.operands, reads, after.writes, before.flops + after.flops,
                     before.bytes + after.bytes)
            )  # fmt: skip
        return found
