"""Attention of one query over keys and values that were kept, and over the new ones behind them.

A token that is decoded reads everything kept once, so that memory decides: keys and values are read where they are,
neither copied nor packed, and what a mask hides before the first and behind the last key that is seen is not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from heddle.tiles.kernels.emit import F32, I32, Code, Value, i64
from heddle.tiles.kernels.maths import exp
from heddle.tiles.kernels.target import Target

COLUMNS = 8  # vectors of values that are summed at a time
LOWEST = float("-inf")


@dataclass(frozen=True)
class OneQuery:
    """A record: output, queries, kept keys, kept values, new keys, new values, mask. One head of keys, and all heads of
    queries that share it; strides are in numbers, over keys or over heads of queries.
    """

    head: int
    value_head: int
    kept: int  # keys; whole vectors
    new: int  # keys; at most a vector
    queries: int  # heads that share the keys
    query_stride: int
    output_stride: int
    key_strides: tuple[int, int]  # of kept ones and of new ones
    value_strides: tuple[int, int]
    scale: float
    mask_stride: int | None  # over heads of queries; None: no mask

    def write(self, name: str, target: Target) -> str:
        return _Writer(self, Code(name, target)).write()

    def scratch(self, lanes: int) -> int:
        """Bytes that a tile needs: the scores of a query."""
        return 4 * (self.kept + lanes)


class _Writer:
    def __init__(self, kernel: OneQuery, code: Code) -> None:
        self.kernel, self.code = kernel, code
        self.output, self.queries = code.pointer(), code.pointer()
        kept_keys, kept_values, new_keys, new_values, self.mask = (code.pointer() for _ in range(5))
        self.keys, self.values = (kept_keys, new_keys), (kept_values, new_values)

    def write(self) -> str:
        code, kernel = self.code, self.kernel

        def query(index: Value, _: list[Value]) -> list[Value]:
            mask = None
            if kernel.mask_stride is not None:
                mask = code.at(self.mask, code.mul(index, kernel.mask_stride) if kernel.mask_stride else 0)
            first, last = self.seen(mask)
            row = code.at(self.queries, code.mul(index, kernel.query_stride))
            self.scores(row, first, last)
            share = self.softmax(mask, first, last)
            self.weigh(code.at(self.output, code.mul(index, kernel.output_stride)), share, first, last)
            return []

        code.loop(kernel.queries, query)
        return code.finish()

    def seen(self, mask: Value | None) -> tuple[Value, Value]:
        """The kept keys, in whole vectors, before and behind which the mask hides all."""
        code, kernel = self.code, self.kernel
        if mask is None:
            return i64(0), i64(kernel.kept)
        low = code.constant(LOWEST)

        def block(offset: Value, bounds: list[Value]) -> list[Value]:
            lanes = code.block.fcmp_unordered("!=", code.load_vector(code.at(mask, offset)), low)
            bits = code.block.bitcast(lanes, ir.IntType(code.lanes))
            shown = code.block.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
            first, last = bounds
            earlier = code.block.and_(shown, code.block.icmp_signed("==", first, i64(kernel.kept)))
            end = code.add(offset, code.lanes)
            return [code.block.select(earlier, offset, first), code.block.select(shown, end, last)]

        first, last = code.loop(kernel.kept, block, [i64(kernel.kept), i64(0)], step=code.lanes)
        return first, last

    def scores(self, row: Value, first: Value, last: Value) -> None:
        """The query times each key that is seen, into scratch memory; those of new keys go behind all kept ones."""
        code, kernel, lanes = self.code, self.kernel, self.code.lanes
        vectors = range(-(-kernel.head // lanes))
        masks = [code.first(kernel.head - v * lanes) for v in vectors]
        query = [code.load_vector(code.at(row, v * lanes), masks[v]) for v in vectors]

        def score(key: Value, place: Value) -> None:
            total = code.zero()
            for v in vectors:
                total = code.fma(query[v], code.load_vector(code.at(key, v * lanes), masks[v]), total)
            value = code.block.fmul(code.reduce("sum", total), code.constant(kernel.scale))
            code.store(code.block.extract_element(value, ir.Constant(I32, 0)), place)

        def block(offset: Value, _: list[Value]) -> list[Value]:
            begin = code.at(self.keys[0], code.mul(offset, kernel.key_strides[0]))
            for k in range(lanes):
                score(code.at(begin, k * kernel.key_strides[0]), code.at(code.at(code.scratch, offset), k))
            return []

        code.loop(last, block, start=first, step=lanes)
        for k in range(kernel.new):
            score(code.at(self.keys[1], k * kernel.key_strides[1]), code.at(code.scratch, kernel.kept + k))

    def softmax(self, mask: Value | None, first: Value, last: Value) -> Value:
        """Scores to weights, but for their sum, one over which is given."""
        code, kernel = self.code, self.kernel
        behind, end = code.at(code.scratch, kernel.kept), code.first(kernel.new)
        low, zero = code.constant(LOWEST), code.zero()

        def score(offset: Value, lanes: Value | None = None) -> Value:
            value = code.load_vector(code.at(code.scratch, offset))
            if mask is not None:
                value = code.block.fadd(value, code.load_vector(code.at(mask, offset), lanes))
            return value if lanes is None else code.block.select(lanes, value, low)

        def best(offset: Value, tops: list[Value]) -> list[Value]:
            return [code.call("llvm.maximum", tops[0], score(offset))]

        tops = code.loop(last, best, [score(i64(kernel.kept), end)], start=first, step=code.lanes)
        top = code.reduce("max", tops[0])
        top = code.block.select(code.block.fcmp_ordered("==", top, low), zero, top)  # who sees nothing gets zeros

        def weight(offset: Value, sums: list[Value]) -> list[Value]:
            value = exp(code, code.block.fsub(score(offset), top))
            code.store_vector(value, code.at(code.scratch, offset))
            return [code.block.fadd(sums[0], value)]

        newest = exp(code, code.block.fsub(score(i64(kernel.kept), end), top))
        code.store_vector(newest, behind)
        (total,) = code.loop(last, weight, [newest], start=first, step=code.lanes)
        total = code.reduce("sum", total)
        total = code.block.select(code.block.fcmp_ordered("==", total, zero), code.constant(1.0), total)
        return code.block.fdiv(code.constant(1.0), total)

    def weigh(self, output: Value, share: Value, first: Value, last: Value) -> None:
        """Weights times values."""
        code, kernel, lanes = self.code, self.kernel, self.code.lanes
        for column in range(0, kernel.value_head, COLUMNS * lanes):
            wide = min(COLUMNS * lanes, kernel.value_head - column)
            vectors = range(-(-wide // lanes))
            masks = [code.first(wide - v * lanes) for v in vectors]

            def add(place: Value, row: Value, sums: list[Value], masks: list[Value | None] = masks) -> list[Value]:
                weight = code.splat(code.load(F32, place))
                return [
                    code.fma(weight, code.load_vector(code.at(row, v * lanes), masks[v]), before)
                    for v, before in enumerate(sums)
                ]

            def key(index: Value, sums: list[Value], column: int = column) -> list[Value]:
                row = code.at(self.values[0], code.add(code.mul(index, kernel.value_strides[0]), column))
                return add(code.at(code.scratch, index), row, sums)

            sums = code.loop(last, key, [code.zero()] * len(vectors), start=first)
            for k in range(kernel.new):
                row = code.at(self.values[1], k * kernel.value_strides[1] + column)
                sums = add(code.at(code.scratch, kernel.kept + k), row, sums)
            for v in vectors:
                value = code.block.fmul(sums[v], share)
                code.store_vector(value, code.at(output, column + v * lanes), masks[v])
