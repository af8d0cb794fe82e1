"""3 × 3 convolution in 16 multiplications for four pixels instead of 36 (Winograd; Lavin and Gray, CVPR 2016).

A *patch* of 4 × 4 pixels gives a square of 2 × 2. `Spread` takes sums and differences of a patch's pixels, which makes
16 matrices of patches × channels; `Winograd` multiplies each with weights of its own, and takes sums and differences
of the 16 products. Sums only cancel where all numbers are finite: a NaN or an infinity of one pixel would reach all
four of a square, so squares that have one are computed again, tap by tap.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heddle.tiles.kernels.emit import Code, Value, i64
from heddle.tiles.kernels.recipe import Recipe, evaluate
from heddle.tiles.kernels.register_tile import LINE, UNROLL, Ahead, multiply, strided, zeros
from heddle.tiles.kernels.target import Target
from heddle.tiles.kernels.windows import tap_begin

PLACES = 16  # of a patch
# Of three weights in a row, each from their four sums: g₀ = u₀, g₁ = u₁ − u₂, g₂ = u₃
BACK = (((0, 1),), ((1, 1), (2, -1)), ((3, 1),))


def spread_weights(weight: Tensor) -> Tensor:
    """Weights (outputs, inputs, 3, 3) as 16 matrices of inputs × outputs."""
    g = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], dtype=torch.float64)
    made = torch.einsum("ia,ocab,jb->ijco", g, weight.double(), g)
    return made.reshape(PLACES, weight.shape[1], weight.shape[0]).float()


def _spread(code: Code, d: Sequence[Value]) -> list[Value]:
    block = code.block
    return [block.fsub(d[0], d[2]), block.fadd(d[1], d[2]), block.fsub(d[2], d[1]), block.fsub(d[1], d[3])]


def _gathered(code: Code, m: Sequence[Value]) -> list[Value]:
    block = code.block
    return [block.fadd(block.fadd(m[0], m[1]), m[2]), block.fsub(block.fsub(m[1], m[2]), m[3])]


@dataclass(frozen=True)
class Spread:
    """Patches of an image. A record: output (patches × 16 × channels), image, table of taps, padding, first, last."""

    channels: int  # whole vectors

    def write(self, name: str, target: Target) -> str:
        code = Code(name, target)
        output, image, table, padding = (code.pointer() for _ in range(4))
        first, last = code.number(), code.number()

        def patch(index: Value, _: list[Value]) -> list[Value]:
            entry = code.at(table, code.mul(index, PLACES))
            begins = [tap_begin(code, image, padding, code.at(entry, place)) for place in range(PLACES)]
            into = code.at(output, code.mul(index, PLACES * self.channels))

            def vector(channel: Value, _: list[Value]) -> list[Value]:
                pixels = [code.load_vector(code.at(begin, channel)) for begin in begins]
                columns = [_spread(code, pixels[x::4]) for x in range(4)]  # down each column, then along each row
                for y in range(4):
                    for x, value in enumerate(_spread(code, [column[y] for column in columns])):
                        code.store_vector(value, code.at(code.at(into, channel), (4 * y + x) * self.channels))
                return []

            code.loop(self.channels, vector, step=code.lanes)
            return []

        code.loop(last, patch, start=first)
        return code.finish()


@dataclass(frozen=True)
class Winograd:
    """Products of spread patches with spread weights, as squares of pixels. A record: spread patches, panels of weights
    (each with its 16 places), output, image, table of taps, padding, operands of the epilogue, the first patch, blocks
    of patches, whether the odd ones follow, first panel, panels.
    """

    channels: int
    vectors: int  # of a panel; columns are whole panels
    rows: int  # patches of a register tile
    odd_rows: int
    most: int  # patches of a tile
    across: int  # patches side by side in an image
    output_stride: int
    epilogue: Recipe
    operands: tuple[tuple[int, int], ...]  # strides over pixels and columns
    lines: int  # fetched ahead at each unrolled step

    def scratch(self, lanes: int) -> int:
        """Bytes of a panel's products."""
        return 4 * PLACES * self.most * self.vectors * lanes

    def write(self, name: str, target: Target) -> str:
        return _Writer(self, Code(name, target)).write()


class _Writer:
    def __init__(self, kernel: Winograd, code: Code) -> None:
        self.kernel, self.code = kernel, code
        self.left, self.weights, self.output, self.image, self.table, self.padding = (code.pointer() for _ in range(6))
        self.operands = [code.pointer() for _ in kernel.operands]
        self.first, self.blocks, self.has_odd, self.panel, self.panels = (code.number() for _ in range(5))
        self.width = kernel.vectors * code.lanes
        self.count = code.add(code.mul(self.blocks, kernel.rows), code.mul(self.has_odd, kernel.odd_rows))

    def write(self) -> str:
        code, size = self.code, self.kernel.channels * self.width

        def panel(index: Value, _: list[Value]) -> list[Value]:
            begin, column = code.at(self.weights, code.mul(index, PLACES * size)), code.mul(index, self.width)

            def place(number: Value, _: list[Value]) -> list[Value]:
                self.product(number, code.at(begin, code.mul(number, size)))
                return []

            def square(row: Value, _: list[Value]) -> list[Value]:
                self.square(row, column, begin)
                return []

            code.loop(PLACES, place)
            code.loop(self.count, square)
            return []

        code.loop(code.add(self.panel, self.panels), panel, start=self.panel)
        return code.finish()

    def product(self, number: Value, panel: Value) -> None:
        """One of the 16: all patches of the tile, into scratch."""
        kernel, code = self.kernel, self.code
        left = code.at(self.left, code.mul(code.add(code.mul(self.first, PLACES), number), kernel.channels))
        into = code.at(code.scratch, code.mul(number, kernel.most * self.width))
        following = code.at(panel, kernel.channels * self.width)

        def tile(row: Value, rows: int, ahead: Ahead | None) -> None:
            begin = strided(code, code.at(left, code.mul(row, PLACES * kernel.channels)), PLACES * kernel.channels)
            start = zeros(code, rows, kernel.vectors)
            sums = multiply(code, start, begin, panel, kernel.channels, kernel.vectors, ahead)
            place = code.at(into, code.mul(row, self.width))
            for each, value in enumerate(sums):
                code.store_vector(value, code.at(place, each * code.lanes))

        def block(index: Value, _: list[Value]) -> list[Value]:
            fetched = kernel.channels // UNROLL * kernel.lines * LINE
            tile(
                code.mul(index, kernel.rows), kernel.rows,
                Ahead(code.at(following, code.mul(index, fetched), 1), kernel.lines),
            )  # fmt: skip
            return []

        code.loop(self.blocks, block)
        if kernel.odd_rows:
            odd = code.block.icmp_signed("!=", self.has_odd, i64(0))
            code.when(odd, lambda: tile(code.mul(self.blocks, kernel.rows), kernel.odd_rows, None))

    def square(self, row: Value, column: Value, panel: Value) -> None:
        """Four pixels of all columns of a panel, from 16 products."""
        kernel, code = self.kernel, self.code
        patch = code.add(self.first, row)
        down, right = (operation(patch, i64(kernel.across)) for operation in (code.block.udiv, code.block.urem))
        pixel = code.add(code.mul(down, 4 * kernel.across), code.mul(right, 2))
        begin = code.at(code.scratch, code.mul(row, self.width))
        nothing = code.zero()  # becomes NaN where anything is not finite
        for v in range(kernel.vectors):
            places = [
                code.load_vector(code.at(begin, place * kernel.most * self.width + v * code.lanes))
                for place in range(PLACES)
            ]
            columns = [_gathered(code, places[x::4]) for x in range(4)]
            values = [value for y in range(2) for value in _gathered(code, [each[y] for each in columns])]
            for value in values:
                nothing = code.fma(value, code.zero(), nothing)
            self.store(values, pixel, code.add(column, v * code.lanes))
        code.when(code.any_nan(nothing), lambda: self.plain(patch, pixel, column, panel))

    def plain(self, patch: Value, pixel: Value, column: Value, panel: Value) -> None:
        """The same four pixels, tap by tap, with weights from their sums."""
        kernel, code = self.kernel, self.code
        entry = code.at(self.table, code.mul(patch, PLACES))
        begins = [tap_begin(code, self.image, self.padding, code.at(entry, place)) for place in range(PLACES)]

        def vector(lane: Value, _: list[Value]) -> list[Value]:
            def channel(c: Value, sums: list[Value]) -> list[Value]:
                weights = code.at(code.at(panel, code.mul(c, self.width)), lane)
                pixels = [code.splat(code.load(code.vector.element, code.at(begin, c))) for begin in begins]
                for y, x in itertools.product(range(3), repeat=2):
                    weight = self.weight(weights, y, x)
                    sums = [
                        code.fma(pixels[4 * (y + down) + x + right], weight, sums[2 * down + right])
                        for down, right in itertools.product(range(2), repeat=2)
                    ]
                return sums

            self.store(code.loop(kernel.channels, channel, [code.zero()] * 4), pixel, code.add(column, lane))
            return []

        code.loop(self.width, vector, step=code.lanes)

    def weight(self, begin: Value, y: int, x: int) -> Value:
        """A vector of weights of one tap."""
        code, size = self.code, self.kernel.channels * self.width
        value = code.zero()
        for (down, up), (right, side) in itertools.product(BACK[y], BACK[x]):
            part = code.load_vector(code.at(begin, (4 * down + right) * size))
            value = (code.block.fadd if up * side > 0 else code.block.fsub)(value, part)
        return value

    def store(self, values: Sequence[Value], pixel: Value, column: Value) -> None:
        """A square of pixels, after the epilogue."""
        for number, value in enumerate(values):
            down, right = divmod(number, 2)
            self.store_one(value, self.code.add(pixel, down * 2 * self.kernel.across + right), column)

    def store_one(self, value: Value, pixel: Value, column: Value) -> None:
        kernel, code = self.kernel, self.code

        def load(number: int) -> Value:
            if number == 0:
                return value
            by_pixel, by_column = kernel.operands[number - 1]
            place = code.add(code.mul(pixel, by_pixel), code.mul(column, by_column))
            pointer = code.at(self.operands[number - 1], place)
            if by_column == 0:
                return code.splat(code.load(code.vector.element, pointer))
            return code.load_vector(pointer) if by_column == 1 else code.gather(pointer, by_column)

        place = code.add(code.mul(pixel, kernel.output_stride), column)
        code.store_vector(evaluate(code, kernel.epilogue, load), code.at(self.output, place))
