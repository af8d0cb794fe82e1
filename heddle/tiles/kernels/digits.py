"""Rows as digits: what codes of weights are multiplied with.

A group of numbers is a scale times integers of 14 bits, of which each is two signed digits to the base 128. Their error
is a hundredth of what 8-bit weights have. A block of memory holds a group: high digits, low ones, the scale, and the
sum of the integers, by which the zero of unsigned codes is taken off again.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from heddle.tiles.kernels.emit import I8, I32, Code, Value
from heddle.tiles.kernels.maths import ROUND
from heddle.tiles.kernels.target import Target

GROUP = 32  # numbers that share a scale
SHIFT = 7  # bits of a digit
LARGEST = 8128.0  # of the integers: 63.5 · 128, whose digits are in [-64, 64]
SMALLEST = 1e-30  # scale: what is smaller is zero, so that one over it is a number
SCALE, SUM, BLOCK = 2 * GROUP, 2 * GROUP + 4, 2 * GROUP + 8  # bytes into a block, and of it


@dataclass(frozen=True)
class Digits:
    """A record: numbers, blocks, whole groups, whether the odd numbers follow."""

    odd: int  # numbers behind the last whole group

    def write(self, name: str, target: Target) -> str:
        return _Writer(self, Code(name, target)).write()


class _Writer:
    def __init__(self, kernel: Digits, code: Code) -> None:
        self.kernel, self.code = kernel, code
        self.numbers, self.blocks = code.pointer(), code.pointer()
        self.count, self.has_odd = code.number(), code.number()
        self.integers = ir.VectorType(I32, code.lanes)

    def write(self) -> str:
        code = self.code

        def group(index: Value, _: list[Value]) -> list[Value]:
            self.group(index, GROUP)
            return []

        code.loop(self.count, group)
        if self.kernel.odd:
            has = code.block.icmp_signed("!=", self.has_odd, code.add(0, 0))
            code.when(has, lambda: self.group(self.count, self.kernel.odd))
        return code.finish()

    def group(self, index: Value, count: int) -> None:
        code, lanes = self.code, self.code.lanes
        begin, block = code.at(self.numbers, code.mul(index, GROUP)), code.at(self.blocks, code.mul(index, BLOCK), 1)
        values = [self.load(begin, v, count) for v in range(GROUP // lanes)]
        top = code.call("llvm.fabs", values[0])
        for value in values[1:]:
            top = code.call("llvm.maximum", top, code.call("llvm.fabs", value))
        scale = code.block.fmul(code.reduce("max", top), code.constant(1 / LARGEST))
        empty = code.block.fcmp_ordered("<", scale, code.constant(SMALLEST))
        factor = code.block.fdiv(code.constant(1.0), code.block.select(empty, code.constant(1.0), scale))
        total = ir.Constant(self.integers, [0] * lanes)
        for v, value in enumerate(values):
            # Adding a large number rounds, and leaves the integer in the lowest bits.
            bits = code.block.bitcast(code.fma(value, factor, code.constant(ROUND)), self.integers)
            whole = code.block.sub(bits, code.block.bitcast(code.constant(ROUND), self.integers))
            total = code.block.add(total, whole)
            half, shift = (ir.Constant(self.integers, [each] * lanes) for each in (1 << SHIFT - 1, SHIFT))
            high = code.block.ashr(code.block.add(whole, half), shift)
            low = code.block.sub(whole, code.block.shl(high, shift))
            for plane, digits in enumerate((high, low)):
                small = code.block.trunc(digits, ir.VectorType(I8, lanes))
                code.store(small, code.at(block, plane * GROUP + v * lanes, 1), 1)
        first = ir.Constant(I32, 0)
        code.store(code.block.extract_element(scale, first), code.at(block, SCALE, 1))
        function = code.intrinsic(f"llvm.vector.reduce.add.v{lanes}i32", I32, [self.integers])
        code.store(code.block.call(function, [total]), code.at(block, SUM, 1))

    def load(self, begin: Value, v: int, count: int) -> Value:
        """A vector of the group; zeros behind its end."""
        code, left = self.code, count - v * self.code.lanes
        return code.zero() if left <= 0 else code.load_vector(code.at(begin, v * code.lanes), code.first(left))
