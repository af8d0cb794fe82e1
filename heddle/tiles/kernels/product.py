"""A product of a matrix with packed weights, and convolution as one: what follows is done while sums are in registers.

For each panel of the tile's columns, for each block of its rows: a register tile over the whole depth, then the
epilogue, then the store. The next panel is fetched meanwhile, its lines spread over the blocks of rows. A great depth
is cut into parts, one after the other for all panels, so that the rows of a part stay in the second cache; sums wait in
the output for the next part. In a convolution a row is a pixel of the output, and a table says where each tap of its
window begins in the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from heddle.tiles.kernels.emit import Code, Value
from heddle.tiles.kernels.recipe import Recipe, evaluate, loads
from heddle.tiles.kernels.register_tile import LINE, UNROLL, Ahead, multiply, scattered, strided, zeros
from heddle.tiles.kernels.target import Target
from heddle.tiles.kernels.windows import tap_begin


@dataclass(frozen=True)
class ProductKernel:
    """rows × depth times depth × columns. A record: left, panels, output, table of taps, padding, operands of the
    epilogue, blocks of rows, whether the odd rows follow, panels, whether the odd columns follow.
    """

    depth: int  # of one tap
    columns: int  # of the whole product: which are left over behind the last whole panel
    vectors: int  # of a panel
    rows: int  # of a register tile
    odd_rows: int
    left_stride: int
    output_stride: int
    epilogue: Recipe
    operands: tuple[tuple[int, int], ...]  # strides over rows and columns of the epilogue's operands 1, 2, …
    lines: int  # fetched ahead at each unrolled step
    taps: int = 0  # of a convolution's window; 0: rows are `left_stride` apart
    part: int = 0  # of the depth, or of the taps, that is multiplied at a time; 0: all

    def write(self, name: str, target: Target) -> str:
        code = Code(name, target)
        ProductWriter(self, code).write()
        return code.finish()


@dataclass(frozen=True)
class _Part:
    """Of the depth, or of the taps: where it begins, how much it is, and whether it is the first or the last."""

    begin: Value | int
    count: int
    first: bool
    last: bool


class ProductWriter:
    """Writes a kernel into a function, from the next operand of the record on."""

    def __init__(self, kernel: ProductKernel, code: Code) -> None:
        self.kernel, self.code = kernel, code
        self.left, self.panels, self.output, self.table, self.padding = (code.pointer() for _ in range(5))
        self.operands = [code.pointer() for _ in kernel.operands]
        self.blocks, self.has_odd_rows, self.count, self.has_odd_columns = (code.number() for _ in range(4))

    def write(self) -> None:
        code, whole = self.code, self.kernel.taps or self.kernel.depth
        part = self.kernel.part or whole
        count = -(-whole // part)
        if count == 1:
            self.all_panels(_Part(0, whole, True, True))
            return
        self.all_panels(_Part(0, part, True, False))

        def middle(index: Value, _: list[Value]) -> list[Value]:
            self.all_panels(_Part(code.mul(index, part), part, False, False))
            return []

        code.loop(count - 1, middle, start=1)
        self.all_panels(_Part((count - 1) * part, whole - (count - 1) * part, False, True))

    def all_panels(self, part: _Part) -> None:
        """All columns of the tile, for a part of the depth."""
        kernel, code = self.kernel, self.code
        across = kernel.vectors * code.lanes
        odd = kernel.columns % across
        size = max(kernel.taps, 1) * kernel.depth * across

        def panel(index: Value, _: list[Value]) -> list[Value]:
            begin = code.at(self.panels, code.mul(index, size))
            self.panel(part, begin, code.mul(index, across), kernel.vectors, code.lanes, code.at(begin, size))
            return []

        code.loop(self.count, panel)
        if odd:
            vectors = -(-odd // code.lanes)
            begin = code.at(self.panels, code.mul(self.count, size))
            last = odd - (vectors - 1) * code.lanes
            column = code.mul(self.count, across)
            self.when(self.has_odd_columns, lambda: self.panel(part, begin, column, vectors, last, begin))

    def when(self, flag: Value, body: Callable[[], None]) -> None:
        self.code.when(self.code.block.icmp_signed("!=", flag, self.code.add(0, 0)), body)

    def panel(self, part: _Part, panel: Value, column: Value, vectors: int, last: int, following: Value) -> None:
        """All rows of the tile for one panel."""
        kernel, code = self.kernel, self.code
        steps = part.count * (kernel.depth // UNROLL) if kernel.taps else part.count // UNROLL
        per_block = steps * kernel.lines * LINE
        skip = code.mul(part.begin, (kernel.depth if kernel.taps else 1) * vectors * code.lanes)
        panel, following = code.at(panel, skip), code.at(following, skip)

        def block(index: Value, _: list[Value]) -> list[Value]:
            ahead = Ahead(code.at(following, code.mul(index, per_block), 1), kernel.lines) if kernel.lines else None
            self.tile(part, code.mul(index, kernel.rows), kernel.rows, panel, column, vectors, last, ahead)
            return []

        code.loop(self.blocks, block)
        if kernel.odd_rows:
            row = code.mul(self.blocks, kernel.rows)
            self.when(
                self.has_odd_rows, lambda: self.tile(part, row, kernel.odd_rows, panel, column, vectors, last, None)
            )

    def tile(
        self,
        part: _Part,
        row: Value,
        rows: int,
        panel: Value,
        column: Value,
        vectors: int,
        last: int,
        ahead: Ahead | None,
    ) -> None:
        kernel, code = self.kernel, self.code
        output = code.at(self.output, code.add(code.mul(row, kernel.output_stride), column))

        def place(r: int, v: int) -> tuple[Value, Value | None]:
            mask = code.first(last) if v == vectors - 1 else None
            return code.at(output, r * kernel.output_stride + v * code.lanes), mask

        cells = [(r, v) for r in range(rows) for v in range(vectors)]
        if part.last:
            self.fetch_operands(row, rows, column, vectors)
            for each in cells:
                code.prefetch(place(*each)[0], near=3, write=True)
        sums = zeros(code, rows, vectors) if part.first else [code.load_vector(*place(*each)) for each in cells]
        if kernel.taps:
            sums = self.taps(part, row, rows, panel, vectors, sums, ahead)
        else:
            begin = code.at(code.at(self.left, code.mul(row, kernel.left_stride)), part.begin)
            sums = multiply(code, sums, strided(code, begin, kernel.left_stride), panel, part.count, vectors, ahead)
        if not part.last:
            for each, value in zip(cells, sums, strict=True):
                where, mask = place(*each)
                code.store_vector(value, where, mask)
            return
        used = loads(kernel.epilogue)
        for r, v in cells:

            def load(number: int, r: int = r, v: int = v) -> Value:
                if number == 0:
                    return sums[r * vectors + v]
                assert number in used
                return self.operand(number, row, r, column, v, place(r, v)[1])

            where, mask = place(r, v)
            code.store_vector(evaluate(code, kernel.epilogue, load), where, mask)

    def taps(
        self, part: _Part, row: Value, rows: int, panel: Value, vectors: int, sums: list[Value], ahead: Ahead | None
    ) -> list[Value]:
        """Of a convolution: the sums over some taps of the window."""
        kernel, code = self.kernel, self.code
        first = code.at(code.at(self.table, code.mul(row, kernel.taps)), part.begin)
        fetched = (kernel.depth // UNROLL) * kernel.lines * LINE

        def tap(index: Value, sums: list[Value]) -> list[Value]:
            entry = code.at(first, index)
            begins = [tap_begin(code, self.left, self.padding, code.at(entry, r * kernel.taps)) for r in range(rows)]
            weights = code.at(panel, code.mul(index, kernel.depth * vectors * code.lanes))
            next_ = None if ahead is None else Ahead(code.at(ahead.pointer, code.mul(index, fetched), 1), ahead.lines)
            return multiply(code, sums, scattered(code, begins), weights, kernel.depth, vectors, next_)

        return code.loop(part.count, tap, sums)

    def fetch_operands(self, row: Value, rows: int, column: Value, vectors: int) -> None:
        """What the epilogue adds row by row, such as a residual, was written long ago: fetch it while sums are made."""
        for number, strides in enumerate(self.kernel.operands, 1):
            for r in range(rows if strides[0] and strides[1] == 1 else 0):
                for v in range(vectors):
                    self.code.prefetch(self.operand_at(number, row, r, column, v), near=3)

    def operand_at(self, number: int, row: Value, r: int, column: Value, v: int) -> Value:
        code = self.code
        by_row, by_column = self.kernel.operands[number - 1]
        place = code.add(code.mul(row, by_row), code.mul(column, by_column))
        return code.at(code.at(self.operands[number - 1], place), r * by_row + v * code.lanes * by_column)

    def operand(self, number: int, row: Value, r: int, column: Value, v: int, mask: Value | None) -> Value:
        """An operand of the epilogue, where this vector of the output is."""
        code, by_column = self.code, self.kernel.operands[number - 1][1]
        pointer = self.operand_at(number, row, r, column, v)
        if by_column == 0:
            return code.splat(code.load(code.vector.element, pointer))
        return code.load_vector(pointer, mask) if by_column == 1 else code.gather(pointer, by_column, mask)
