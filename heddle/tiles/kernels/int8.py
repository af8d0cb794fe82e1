"""One row times weights of int8: a product that waits for memory, of which it reads a quarter.

Codes come packed in panels as other weights do, each group of some depth with a scale for every column. Codes become
numbers in registers, sums of a group are scaled once, and what follows is done before the store.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from heddle.tiles.kernels.emit import F32, I8, I32, Code, Value, i64
from heddle.tiles.kernels.recipe import Recipe, evaluate
from heddle.tiles.kernels.register_tile import LINE, UNROLL
from heddle.tiles.kernels.target import Target

VECTORS = 4  # of a panel: with two sums each, enough of them that additions do not wait for each other
GROUP = 64  # of the depth, which shares a scale
AHEAD = 4096  # bytes that codes are fetched ahead: hardware stops at the end of a page


@dataclass(frozen=True)
class Int8Product:
    """A record: row, codes, scales, output, operands of the epilogue, panels, whether the odd columns follow."""

    depth: int
    columns: int  # of the whole product: which are left over behind the last whole panel
    epilogue: Recipe
    operands: tuple[int, ...]  # strides over columns of the epilogue's operands 1, 2, …

    def write(self, name: str, target: Target) -> str:
        return _Writer(self, Code(name, target)).write()


class _Writer:
    def __init__(self, kernel: Int8Product, code: Code) -> None:
        self.kernel, self.code = kernel, code
        self.row, self.codes, self.scales, self.output = (code.pointer() for _ in range(4))
        self.operands = [code.pointer() for _ in kernel.operands]
        self.count, self.has_odd = code.number(), code.number()

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
        """So many columns of the output, from panel `index` of the tile."""
        code, kernel, lanes = self.code, self.kernel, self.code.lanes
        whole, vectors = VECTORS * lanes, -(-columns // lanes)
        groups = -(-kernel.depth // GROUP)
        codes = code.at(self.codes, code.mul(index, kernel.depth * whole), 1)
        scales = code.at(self.scales, code.mul(index, groups * whole))

        def group(number: Value, totals: list[Value], depth: int = GROUP) -> list[Value]:
            row = code.at(self.row, code.mul(number, GROUP))
            begin = code.at(codes, code.mul(number, GROUP * vectors * lanes), 1)
            factors = code.at(scales, code.mul(number, vectors * lanes))
            sums = self.sums(row, begin, depth, vectors)
            found = []
            for v, total in enumerate(totals):
                factor = code.load_vector(code.at(factors, v * lanes))
                found.append(code.fma(code.block.fadd(sums[v], sums[vectors + v]), factor, total))
            return found

        totals = code.loop(kernel.depth // GROUP, group, [code.zero()] * vectors)
        if rest := kernel.depth % GROUP:
            totals = group(i64(kernel.depth // GROUP), totals, rest)
        column = code.mul(index, whole)
        for v in range(vectors):
            mask = code.first(columns - v * lanes)

            def load(number: int, v: int = v, mask: Value | None = mask) -> Value:
                return totals[v] if number == 0 else self.operand(number, column, v, mask)

            value = evaluate(code, kernel.epilogue, load)
            code.store_vector(value, code.at(code.at(self.output, column), v * lanes), mask)

    def sums(self, row: Value, codes: Value, depth: int, vectors: int) -> list[Value]:
        """Two sums of each vector of columns, over even and over odd places of the depth."""
        code, across = self.code, vectors * self.code.lanes

        def step(k: Value, offset: int, sums: list[Value]) -> list[Value]:
            number = code.splat(code.load(F32, code.at(code.at(row, k), offset)))
            line = code.at(codes, code.mul(k, across), 1)
            found = list(sums)
            for v in range(vectors):
                small = code.load(ir.VectorType(I8, code.lanes), code.at(line, offset * across + v * code.lanes, 1), 1)
                wide = code.block.sext(small, ir.VectorType(I32, code.lanes))
                place = (offset % 2) * vectors + v
                found[place] = code.fma(number, code.block.sitofp(wide, code.vector), found[place])
            return found

        def unrolled(k: Value, sums: list[Value]) -> list[Value]:
            for offset in range(UNROLL):
                sums = step(k, offset, sums)
            place = code.at(codes, code.mul(k, across), 1)
            for line in range(0, UNROLL * across, LINE):
                code.prefetch(code.at(place, AHEAD + line, 1), 3)
            return sums

        whole = depth // UNROLL * UNROLL
        found = code.loop(whole, unrolled, [code.zero()] * (2 * vectors), step=UNROLL)
        for k in range(whole, depth):
            found = step(i64(k), 0, found)
        return found

    def operand(self, number: int, column: Value, v: int, mask: Value | None) -> Value:
        """An operand of the epilogue, where this vector of the output is."""
        code, step = self.code, self.kernel.operands[number - 1]
        pointer = code.at(self.operands[number - 1], code.mul(code.add(column, v * code.lanes), step) if step else 0)
        if step == 0:
            return code.splat(code.load(F32, pointer))
        return code.load_vector(pointer, mask) if step == 1 else code.gather(pointer, step, mask)
