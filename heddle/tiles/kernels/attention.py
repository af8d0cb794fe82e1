"""Attention of some queries of one head over all keys: scores, softmax and the weighted values in one tile.

Scores of a block of queries stay in scratch memory of the worker. Keys beyond the last query of the block are not
even multiplied where attention is causal; a mask is added, or is a table of truths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from heddle.tiles.kernels.emit import F32, I8, Code, Value, i64
from heddle.tiles.kernels.maths import exp
from heddle.tiles.kernels.register_tile import multiply, strided, zeros
from heddle.tiles.kernels.target import Target


@dataclass(frozen=True)
class AttentionKernel:
    """A record: output, queries, packed keys, packed values, mask, first query, blocks of rows, whether odd follow."""

    head: int  # numbers of a query
    value_head: int
    keys: int
    rows: int  # of a register tile
    odd_rows: int
    query_stride: int
    output_stride: int
    key_vectors: int  # of the panels of keys and of values
    value_vectors: int
    scale: float
    causal: bool = False
    mask: tuple[str, int, int] | None = None  # "f32" or "bool", its strides over queries and keys

    def write(self, name: str, target: Target) -> str:
        return _Writer(self, Code(name, target)).write()

    def scratch(self, lanes: int) -> int:
        """Bytes that a tile needs: the scores of one block of rows."""
        return 4 * max(self.rows, self.odd_rows) * _padded(self.keys, self.key_vectors * lanes)


def _padded(keys: int, across: int) -> int:
    return -(-keys // across) * across


class _Writer:
    def __init__(self, kernel: AttentionKernel, code: Code) -> None:
        self.kernel, self.code = kernel, code
        self.output, self.queries, self.keys, self.values, self.mask = (code.pointer() for _ in range(5))
        self.first, self.blocks, self.has_odd = (code.number() for _ in range(3))
        self.stride = _padded(kernel.keys, kernel.key_vectors * code.lanes)

    def write(self) -> str:
        code, kernel = self.code, self.kernel

        def block(index: Value, _: list[Value]) -> list[Value]:
            self.block(code.mul(index, kernel.rows), kernel.rows)
            return []

        code.loop(self.blocks, block)
        if kernel.odd_rows:
            row = code.mul(self.blocks, kernel.rows)
            code.when(code.block.icmp_signed("!=", self.has_odd, i64(0)), lambda: self.block(row, kernel.odd_rows))
        return code.finish()

    def block(self, row: Value, rows: int) -> None:
        """Some queries from scores to output."""
        code, kernel = self.code, self.kernel
        seen: Value | int = kernel.keys
        if kernel.causal:  # the last query of the block sees most
            most = code.add(code.add(self.first, row), rows)
            seen = code.block.select(code.block.icmp_signed("<", most, i64(kernel.keys)), most, i64(kernel.keys))
        self.scores(row, rows, seen)
        sums = [self.softmax(row, r, seen) for r in range(rows)]
        self.weigh(row, rows, seen, sums)

    def scores(self, row: Value, rows: int, seen: Value | int) -> None:
        code, kernel = self.code, self.kernel
        across = kernel.key_vectors * code.lanes
        left = strided(code, code.at(self.queries, code.mul(row, kernel.query_stride)), kernel.query_stride)
        whole, odd = kernel.keys // across, kernel.keys % across

        def panel(index: Value, vectors: int) -> None:
            begin = code.at(self.keys, code.mul(index, kernel.head * across))
            sums = multiply(code, zeros(code, rows, vectors), left, begin, kernel.head, vectors)
            place = code.at(code.scratch, code.mul(index, across))
            for r in range(rows):
                for v in range(vectors):
                    value = code.block.fmul(sums[r * vectors + v], code.constant(kernel.scale))
                    code.store_vector(value, code.at(place, r * self.stride + v * code.lanes))

        def each(index: Value, _: list[Value]) -> list[Value]:
            panel(index, kernel.key_vectors)
            return []

        if isinstance(seen, int):
            code.loop(whole, each)
            if odd:
                panel(i64(whole), -(-odd // code.lanes))
            return
        needed = code.block.udiv(code.add(seen, across - 1), i64(across))
        fits = code.block.icmp_signed("<", needed, i64(whole))
        code.loop(code.block.select(fits, needed, i64(whole)), each)
        if odd:
            code.when(code.block.icmp_signed(">", needed, i64(whole)), lambda: panel(i64(whole), -(-odd // code.lanes)))

    def softmax(self, row: Value, r: int, seen: Value | int) -> Value:
        """Scores of one query to weights, but for their sum, which is given."""
        code, kernel = self.code, self.kernel
        scores = code.at(code.scratch, r * self.stride)
        mine: Value | int = seen
        if kernel.causal:
            upto = code.add(code.add(self.first, row), r + 1)
            mine = code.block.select(code.block.icmp_signed("<", upto, i64(kernel.keys)), upto, i64(kernel.keys))
        low = code.constant(float("-inf"))

        def best(offset: Value, carried: list[Value], mask: Value | None) -> list[Value]:
            value = code.load_vector(code.at(scores, offset))
            if kernel.mask is not None:
                value = self.masked(value, row, r, offset, mask)
            if mask is not None:
                value = code.block.select(mask, value, low)
            if kernel.mask is not None:
                code.store_vector(value, code.at(scores, offset))
            return [code.call("llvm.maximum", carried[0], value)]

        (top,) = self.along(mine, best, [low])
        top = code.reduce("max", top)
        if kernel.mask is not None:  # who sees nothing gets zeros, as in PyTorch
            top = code.block.select(code.block.fcmp_ordered("==", top, low), code.zero(), top)

        def weights(offset: Value, carried: list[Value], mask: Value | None) -> list[Value]:
            value = exp(code, code.block.fsub(code.load_vector(code.at(scores, offset)), top))
            if mask is not None:
                value = code.block.select(mask, value, code.zero())
            code.store_vector(value, code.at(scores, offset))
            return [code.block.fadd(carried[0], value)]

        (total,) = self.along(mine, weights, [code.zero()])
        if kernel.causal:  # what other queries of the block see further on weighs nothing for this one
            self.clear(scores, mine, seen)
        total = code.reduce("sum", total)
        if kernel.mask is not None:
            total = code.block.select(code.block.fcmp_ordered("==", total, code.zero()), code.constant(1.0), total)
        return code.block.fdiv(code.constant(1.0), total)

    def clear(self, scores: Value, mine: Value | int, seen: Value | int) -> None:
        code = self.code
        lanes = i64(code.lanes)
        begin = code.mul(code.block.udiv(code.add(mine, code.lanes - 1), lanes), code.lanes)

        def one(offset: Value, _: list[Value]) -> list[Value]:
            code.store_vector(code.zero(), code.at(scores, offset))
            return []

        code.loop(seen, one, start=begin, step=code.lanes)

    def masked(self, value: Value, row: Value, r: int, offset: Value, mask: Value | None) -> Value:
        """Scores with the user's mask."""
        code = self.code
        assert self.kernel.mask is not None
        kind, by_query, by_key = self.kernel.mask
        place = code.add(code.mul(code.add(row, r), by_query), code.mul(offset, by_key))
        if kind == "f32":
            pointer = code.at(self.mask, place)
            if by_key == 0:
                return code.block.fadd(value, code.splat(code.load(F32, pointer)))
            if by_key == 1:
                return code.block.fadd(value, code.load_vector(pointer, mask))
            return code.block.fadd(value, code.gather(pointer, by_key, mask))
        pointer = code.at(self.mask, place, 1)
        low = code.constant(float("-inf"))
        if by_key == 0:
            seen = code.splat(code.load(I8, pointer, 1))
        else:
            kind_ = ir.VectorType(I8, code.lanes)
            assert by_key == 1
            seen = code.load(kind_, pointer, 1)
        return code.block.select(
            code.block.icmp_unsigned("!=", seen, ir.Constant(seen.type, [0] * code.lanes)), value, low
        )

    def along(
        self, count: Value | int, step: Callable[[Value, list[Value], Value | None], list[Value]], starts: list[Value]
    ) -> list[Value]:
        """Over the keys that a query sees."""
        code, lanes = self.code, self.code.lanes
        if isinstance(count, int):
            whole = count // lanes * lanes
            found = code.loop(whole, lambda offset, sums: step(offset, sums, None), starts, step=lanes)
            return step(i64(whole), found, code.first(count % lanes)) if count % lanes else found
        whole_ = code.block.and_(count, i64(-lanes))
        found = code.loop(whole_, lambda offset, sums: step(offset, sums, None), starts, step=lanes)
        return code.loop(
            count,
            lambda offset, sums: step(offset, sums, code.first_of(code.block.sub(count, offset))),
            found,
            start=whole_,
            step=lanes,
        )

    def weigh(self, row: Value, rows: int, seen: Value | int, sums: list[Value]) -> None:
        """Weights times values."""
        code, kernel = self.code, self.kernel
        across = kernel.value_vectors * code.lanes
        left = strided(code, code.scratch, self.stride)
        begin = code.at(self.output, code.mul(row, kernel.output_stride))
        column = 0
        while column < kernel.value_head:
            wide = min(across, kernel.value_head - column)
            vectors = -(-wide // code.lanes)
            panel = code.at(self.values, column * kernel.keys)
            found = multiply(code, zeros(code, rows, vectors), left, panel, seen, vectors)
            for r in range(rows):
                for v in range(vectors):
                    value = code.block.fmul(found[r * vectors + v], sums[r])
                    place = code.at(begin, r * kernel.output_stride + column + v * code.lanes)
                    code.store_vector(value, place, code.first(wide - v * code.lanes))
            column += wide
