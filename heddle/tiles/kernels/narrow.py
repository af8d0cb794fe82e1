"""A few rows times weights in fewer bits: products that wait for memory, of which they then read less.

Weights are unpacked in registers. Panels are packed as those of other products are, so that what a tile reads is one
stretch of memory. bfloat16 weights come as pairs along the depth: a shift or a mask makes float32 of either, and
sums are as exact as with float32 weights. Codes of 8 or 4 bits come in groups of some depth, each with a scale for
every column right behind it; they are multiplied with the digits of the rows (kernels/digits.py) as integers.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from heddle.tiles.kernels.digits import BLOCK, GROUP, SCALE, SHIFT, SUM
from heddle.tiles.kernels.dot import dot
from heddle.tiles.kernels.emit import F32, I32, Code, Value, i64
from heddle.tiles.kernels.recipe import Recipe, evaluate
from heddle.tiles.kernels.register_tile import LINE
from heddle.tiles.kernels.target import Target

VECTORS = 4  # of a panel: with two sums of each, enough of them that additions do not wait for each other
ROWS = 2  # whose sums registers hold
AHEAD = 4096  # bytes that weights are fetched ahead: hardware stops at the end of a page
UPPER = -65536  # the mask of a word's upper half


@dataclass(frozen=True)
class NarrowProduct:
    """A record: rows (of codes: their digits), weights, output, operands of the epilogue, panels, whether the odd
    columns follow.
    """

    bits: int  # of a weight: 16, 8 or 4
    rows: int
    depth: int
    columns: int  # of the whole product: which are left over behind the last whole panel
    row_stride: int  # in numbers; of digits in bytes
    output_stride: int
    epilogue: Recipe
    operands: tuple[tuple[int, int], ...]  # strides over rows and columns of the epilogue's operands 1, 2, …

    def write(self, name: str, target: Target) -> str:
        return _Writer(self, Code(name, target)).write()


def panel_bytes(bits: int, depth: int, columns: int) -> int:
    """What so many columns take; they are whole vectors."""
    if bits == 16:
        return 4 * -(-depth // 2) * columns
    return -(-depth // GROUP) * (GROUP * bits // 8 + 2) * columns


class _Writer:
    def __init__(self, kernel: NarrowProduct, code: Code) -> None:
        self.kernel, self.code = kernel, code
        self.left, self.weights, self.output = (code.pointer() for _ in range(3))
        self.operands = [code.pointer() for _ in kernel.operands]
        self.count, self.has_odd = code.number(), code.number()
        self.integers = ir.VectorType(I32, code.lanes)

    def write(self) -> str:
        code, across = self.code, VECTORS * self.code.lanes
        odd = self.kernel.columns % across

        def panel(index: Value, _: list[Value]) -> list[Value]:
            self.panel(index, across)
            return []

        code.loop(self.count, panel)
        if odd:
            code.when(code.block.icmp_signed("!=", self.has_odd, i64(0)), lambda: self.panel(self.count, odd))
        return code.finish()

    def panel(self, index: Value, columns: int) -> None:
        """So many columns of the output, from panel `index` of the tile, some rows at a time."""
        code, kernel, lanes = self.code, self.kernel, self.code.lanes
        whole, vectors = VECTORS * lanes, -(-columns // lanes)
        weights = code.at(self.weights, code.mul(index, panel_bytes(kernel.bits, kernel.depth, whole)), 1)
        column = code.mul(index, whole)
        for first in range(0, kernel.rows, ROWS):
            rows = range(first, min(kernel.rows, first + ROWS))
            multiply = self.halves if kernel.bits == 16 else self.codes
            totals = multiply(rows, weights, vectors, fetch=first == 0)
            for number, row in enumerate(rows):
                self.store(row, column, columns, totals[number * vectors :])

    def halves(self, rows: range, weights: Value, vectors: int, fetch: bool) -> list[Value]:
        """Sums of rows × vectors, over pairs of bfloat16 weights: two of each while they are made."""
        code, kernel, lanes = self.code, self.kernel, self.code.lanes
        step = vectors * lanes  # pairs
        upper, half = self.constant(UPPER), self.constant(16)

        def pair(k: Value, sums: list[Value], both: bool = True) -> list[Value]:
            line, found = code.at(weights, code.mul(k, step)), list(sums)
            for v in range(vectors):
                words = code.load(self.integers, code.at(line, v * lanes))
                parts = [code.block.shl(words, half), code.block.and_(words, upper)]
                for part in range(1 + both):
                    numbers = code.block.bitcast(parts[part], code.vector)
                    for r, row in enumerate(rows):
                        place = (r * vectors + v) * 2 + part
                        x = code.at(code.at(self.left, code.mul(k, 2)), row * kernel.row_stride + part)
                        found[place] = code.fma(code.splat(code.load(F32, x)), numbers, found[place])
            if fetch:
                for place in range(0, 4 * step, LINE):
                    code.prefetch(code.at(line, AHEAD + place, 1), 3)
            return found

        sums = code.loop(kernel.depth // 2, pair, [code.zero()] * (2 * len(rows) * vectors))
        if kernel.depth % 2:
            sums = pair(i64(kernel.depth // 2), sums, both=False)
        return [code.block.fadd(low, high) for low, high in zip(sums[::2], sums[1::2], strict=True)]

    def codes(self, rows: range, weights: Value, vectors: int, fetch: bool) -> list[Value]:
        """Sums of rows × vectors, over groups of codes."""
        code, kernel, lanes = self.code, self.kernel, self.code.lanes
        across = vectors * lanes
        size = panel_bytes(kernel.bits, GROUP, across)

        def group(number: Value, totals: list[Value]) -> list[Value]:
            begin = code.at(weights, code.mul(number, size), 1)
            digits = [
                code.at(code.at(self.left, code.mul(number, BLOCK), 1), row * kernel.row_stride, 1) for row in rows
            ]
            if fetch:
                for place in range(0, size, LINE):
                    code.prefetch(code.at(begin, AHEAD + place, 1), 3)
            sums = self.products(digits, begin, vectors)
            found = []
            for r, block in enumerate(digits):
                scale = code.splat(code.load(F32, code.at(block, SCALE, 1)))
                for v in range(vectors):
                    place = r * vectors + v
                    total = code.block.sitofp(sums[place], code.vector)
                    factor = self.scale(code.at(begin, GROUP * across * kernel.bits // 8 + 2 * v * lanes, 1))
                    found.append(code.fma(total, code.block.fmul(factor, scale), totals[place]))
            return found

        return code.loop(-(-kernel.depth // GROUP), group, [code.zero()] * (len(rows) * vectors))

    def products(self, digits: list[Value], codes: Value, vectors: int) -> list[Value]:
        """One group of codes times digits, as integers: high digits are worth 2^SHIFT, and codes begin at zero."""
        code, kernel, lanes = self.code, self.kernel, self.code.lanes
        zero = ir.Constant(self.integers, [0] * lanes)
        start = [
            code.block.mul(code.splat(code.load(I32, code.at(block, SUM, 1))), self.constant(-(1 << kernel.bits - 1)))
            for block in digits
        ]
        high = [zero] * (len(digits) * vectors)
        low = [each for each in start for _ in range(vectors)]
        per_line = 8 // kernel.bits  # steps of the depth whose codes share bytes
        nibbles = self.constant(0x0F0F0F0F)
        for step in range(0, GROUP // 4, per_line):
            for v in range(vectors):
                words = code.load(self.integers, code.at(codes, (step // per_line * vectors + v) * lanes))
                parts = [words]
                if per_line == 2:
                    parts = [code.block.and_(words, nibbles)]
                    parts.append(code.block.and_(code.block.lshr(words, self.constant(4)), nibbles))
                for part, numbers in enumerate(parts):
                    for r, block in enumerate(digits):
                        place = r * vectors + v
                        first, second = (
                            code.splat(code.load(I32, code.at(block, 4 * (step + part) + plane, 1)))
                            for plane in (0, GROUP)
                        )
                        high[place] = dot(code, high[place], numbers, first)
                        low[place] = dot(code, low[place], numbers, second)
        return [
            code.block.add(code.block.shl(h, self.constant(SHIFT)), each) for h, each in zip(high, low, strict=True)
        ]

    def scale(self, pointer: Value) -> Value:
        """The scales of a vector of columns, which are bfloat16."""
        code = self.code
        halves = code.load(ir.VectorType(ir.IntType(16), code.lanes), pointer, 2)
        return code.block.bitcast(
            code.block.shl(code.block.zext(halves, self.integers), self.constant(16)), code.vector
        )

    def store(self, row: int, column: Value, columns: int, totals: list[Value]) -> None:
        """What follows the product, and then the output."""
        code, kernel, lanes = self.code, self.kernel, self.code.lanes
        for v in range(-(-columns // lanes)):
            mask = code.first(columns - v * lanes)

            def load(number: int, v: int = v, mask: Value | None = mask) -> Value:
                return totals[v] if number == 0 else self.operand(number, row, column, v, mask)

            value = evaluate(code, kernel.epilogue, load)
            place = code.at(code.at(self.output, column), row * kernel.output_stride + v * lanes)
            code.store_vector(value, place, mask)

    def operand(self, number: int, row: int, column: Value, v: int, mask: Value | None) -> Value:
        """An operand of the epilogue, where this vector of the output is."""
        code, (by_row, by_column) = self.code, self.kernel.operands[number - 1]
        place = code.mul(code.add(column, v * code.lanes), by_column) if by_column else 0
        pointer = code.at(code.at(self.operands[number - 1], place), row * by_row)
        if by_column == 0:
            return code.splat(code.load(F32, pointer))
        return code.load_vector(pointer, mask) if by_column == 1 else code.gather(pointer, by_column, mask)

    def constant(self, number: int) -> Value:
        return ir.Constant(self.integers, [number] * self.code.lanes)
