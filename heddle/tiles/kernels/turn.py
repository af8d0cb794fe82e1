"""A matrix turned over: images whose channels are next to each other from images whose pixels are, and back."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from heddle.tiles.kernels.emit import I32, Code, Value, i64
from heddle.tiles.kernels.target import Target

FEW = 4  # rows that are dealt out directly


@dataclass(frozen=True)
class Turn:
    """output[column][row] = source[row][column], for columns first … last. A record: output, source, first, last;
    the first is a multiple of the lanes, and so is the last but at the end.
    """

    rows: int
    columns: int
    source_stride: int
    output_stride: int

    def write(self, name: str, target: Target) -> str:
        code = Code(name, target)
        output, source, first, last = code.pointer(), code.pointer(), code.number(), code.number()
        odd = self.columns % code.lanes
        whole = code.block.and_(last, i64(-code.lanes))

        def several(column: Value, _: list[Value]) -> list[Value]:
            self.columns_at(code, output, source, column, code.lanes)
            return []

        code.loop(whole, several, start=first, step=code.lanes)
        if odd:
            ragged = code.block.icmp_signed("<", whole, last)
            code.when(ragged, lambda: self.columns_at(code, output, source, whole, odd))
        return code.finish()

    def columns_at(self, code: Code, output: Value, source: Value, column: Value, count: int) -> None:
        """A vector of columns, all rows."""
        source = code.at(source, column)
        output = code.at(output, code.mul(column, self.output_stride))
        mask = code.first(count)
        if self.rows <= FEW and self.output_stride == self.rows:
            given = [code.load_vector(code.at(source, row * self.source_stride), mask) for row in range(self.rows)]
            for place, value in enumerate(dealt(code, given)):
                left = count * self.rows - place * code.lanes
                if left > 0:
                    code.store_vector(value, code.at(output, place * code.lanes), code.first(left))
            return

        def block(row: Value, rows: int) -> None:
            begin = code.at(source, code.mul(row, self.source_stride))
            given = [code.load_vector(code.at(begin, each * self.source_stride), mask) for each in range(rows)]
            turned = transposed(code, given + [code.zero()] * (code.lanes - rows))
            for each in range(count):
                place = code.at(code.at(output, row), each * self.output_stride)
                code.store_vector(turned[each], place, code.first(rows))

        def whole_block(row: Value, _: list[Value]) -> list[Value]:
            block(row, code.lanes)
            return []

        even = self.rows // code.lanes * code.lanes
        code.loop(even, whole_block, step=code.lanes)
        if even < self.rows:
            block(i64(even), self.rows - even)


def _shuffle(code: Code, left: Value, right: Value, places: list[int]) -> Value:
    order = ir.Constant(ir.VectorType(I32, code.lanes), places)
    return code.block.shuffle_vector(left, right, order)


def dealt(code: Code, vectors: list[Value]) -> list[Value]:
    """The first of each, the second of each, and so on, in as many vectors."""
    lanes, count = code.lanes, len(vectors)
    found = []
    for place in range(count):
        wanted = [divmod(place * lanes + lane, count) for lane in range(lanes)]  # lane, and of which vector
        value = _shuffle(code, vectors[0], vectors[0], [lane for lane, _ in wanted])
        for number in range(1, count):
            order = [lanes + lane if of == number else here for here, (lane, of) in enumerate(wanted)]
            value = _shuffle(code, value, vectors[number], order)
        found.append(value)
    return found


def transposed(code: Code, rows: list[Value]) -> list[Value]:
    """A square of vectors turned over, by swapping blocks of 1, 2, 4, … numbers between rows so far apart."""
    lanes, step = code.lanes, 1
    while step < lanes:
        found = list(rows)
        for place in range(lanes):
            if place & step:
                continue
            pair = rows[place], rows[place + step]
            upper = [lane if not lane & step else lanes + lane - step for lane in range(lanes)]
            lower = [lane + step if not lane & step else lanes + lane for lane in range(lanes)]
            found[place], found[place + step] = _shuffle(code, *pair, upper), _shuffle(code, *pair, lower)
        rows, step = found, 2 * step
    return rows
