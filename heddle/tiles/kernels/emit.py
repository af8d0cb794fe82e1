"""A function being written as LLVM IR: loops whose carried values stay in registers, vectors, and memory.

Every kernel has one signature, `void kernel(record, bases, scratch)`: a *record* is the row of the tile table that says
what this tile works on, and `bases` are where memory begins in this call. An operand in a record is a base's number in
its upper 16 bits and a distance in bytes below; base 0 is 0, so that weights go by their address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from heddle.tiles.kernels.target import Target

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
F32, POINTER = ir.FloatType(), ir.PointerType()
HEADER = 4  # of a record: the kernel, the first child, the number of children, unused
BASE_SHIFT = 48
Value = Any  # llvmlite's values have no useful types
Body = Callable[[Value, list[Value]], Sequence[Value]]


class Code:
    """One kernel's function."""

    def __init__(self, name: str, target: Target) -> None:
        self.target, self.lanes = target, target.lanes
        self.module = ir.Module(name)
        self.module.triple = target.triple
        self.vector = ir.VectorType(F32, self.lanes)
        self.mask_type = ir.VectorType(I1, self.lanes)
        self.function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [POINTER] * 3), name)
        self.record, self.bases, self.scratch = self.function.args
        self.block = ir.IRBuilder(self.function.append_basic_block())
        self.operands = 0

    def finish(self) -> str:
        """The function's text."""
        self.block.ret_void()
        return str(self.module)

    # What the tile's record says

    def pointer(self) -> Value:
        """The next operand of the record, as a pointer."""
        word = self.number()
        base = self.load(I64, self.at(self.bases, self.block.lshr(word, i64(BASE_SHIFT)), 8))
        return self.block.inttoptr(self.add(base, self.block.and_(word, i64((1 << BASE_SHIFT) - 1))), POINTER)

    def number(self) -> Value:
        """The next operand of the record, as a number."""
        self.operands += 1
        return self.load(I64, self.at(self.record, HEADER + self.operands - 1, 8))

    # Numbers and addresses

    def add(self, left: Value | int, right: Value | int) -> Value:
        """A sum of integers, of which either may be known."""
        if isinstance(right, int) and right == 0:
            return i64(left)
        return self.block.add(i64(left), i64(right))

    def mul(self, left: Value, right: int) -> Value:
        """An integer times one that is known."""
        return i64(left) if right == 1 else self.block.mul(i64(left), i64(right))

    def at(self, pointer: Value, index: Value | int, size: int = 4) -> Value:
        """The address `index` items of `size` bytes behind a pointer."""
        if isinstance(index, int):
            return pointer if index == 0 else self.block.gep(pointer, [i64(index * size)], source_etype=I8)
        return self.block.gep(pointer, [self.mul(index, size)], source_etype=I8)

    # Memory

    def load(self, kind: Value, pointer: Value, align: int = 4) -> Value:
        value = self.block.load(pointer, typ=kind)
        value.align = align
        return value

    def store(self, value: Value, pointer: Value, align: int = 4) -> None:
        self.block.store(value, pointer).align = align

    def load_vector(self, pointer: Value, mask: Value | None = None) -> Value:
        if mask is None:
            return self.load(self.vector, pointer)
        function = self.intrinsic(
            f"llvm.masked.load.v{self.lanes}f32.p0", self.vector, [POINTER, I32, self.mask_type, self.vector]
        )
        return self.block.call(function, [pointer, ir.Constant(I32, 4), mask, self.zero()])

    def store_vector(self, value: Value, pointer: Value, mask: Value | None = None) -> None:
        if mask is None:
            return self.store(value, pointer)
        function = self.intrinsic(
            f"llvm.masked.store.v{self.lanes}f32.p0", ir.VoidType(), [self.vector, POINTER, I32, self.mask_type]
        )
        self.block.call(function, [value, pointer, ir.Constant(I32, 4), mask])
        return None

    def gather(self, pointer: Value, stride: int, mask: Value | None = None) -> Value:
        """Numbers `stride` items apart."""
        steps = ir.Constant(ir.VectorType(I64, self.lanes), [4 * stride * lane for lane in range(self.lanes)])
        places = self.block.gep(pointer, [steps], source_etype=I8)
        places.type = ir.VectorType(POINTER, self.lanes)
        function = self.intrinsic(
            f"llvm.masked.gather.v{self.lanes}f32.v{self.lanes}p0",
            self.vector,
            [places.type, I32, self.mask_type, self.vector],
        )
        every = ir.Constant(self.mask_type, [1] * self.lanes)
        return self.block.call(function, [places, ir.Constant(I32, 4), every if mask is None else mask, self.zero()])

    def prefetch(self, pointer: Value, near: int = 2, write: bool = False) -> None:
        """Fetch a line ahead: 3 into the first cache, 2 into the second."""
        function = self.intrinsic("llvm.prefetch.p0", ir.VoidType(), [POINTER, I32, I32, I32])
        self.block.call(function, [pointer, *(ir.Constant(I32, value) for value in (int(write), near, 1))])

    # Vectors

    def zero(self) -> Value:
        return ir.Constant(self.vector, [0.0] * self.lanes)

    def constant(self, number: float) -> Value:
        return ir.Constant(self.vector, [float(number)] * self.lanes)

    def splat(self, number: Value) -> Value:
        """One number in all lanes."""
        kind = ir.VectorType(number.type, self.lanes)
        single = self.block.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(I32, 0))
        order = ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes)
        return self.block.shuffle_vector(single, ir.Constant(kind, ir.Undefined), order)

    def first(self, count: int) -> Value | None:
        """The mask of a vector's first lanes; None for all of them."""
        if count >= self.lanes:
            return None
        return ir.Constant(self.mask_type, [int(lane < count) for lane in range(self.lanes)])

    def first_of(self, count: Value) -> Value:
        """The mask of as many lanes as a number says that is known when the kernel runs."""
        lanes = ir.Constant(ir.VectorType(I64, self.lanes), list(range(self.lanes)))
        return self.block.icmp_signed("<", lanes, self.splat(count))

    def fma(self, left: Value, right: Value, addend: Value) -> Value:
        return self.call("llvm.fma", left, right, addend)

    def call(self, name: str, *values: Value) -> Value:
        """An intrinsic on vectors."""
        function = self.intrinsic(f"{name}.v{self.lanes}f32", self.vector, [self.vector] * len(values))
        return self.block.call(function, values)

    def reduce(self, operation: str, value: Value) -> Value:
        """All lanes into one, and that into all lanes."""
        if operation == "sum":
            function = self.intrinsic(f"llvm.vector.reduce.fadd.v{self.lanes}f32", F32, [F32, self.vector])
            return self.splat(self.block.call(function, [ir.Constant(F32, -0.0), value], fastmath=("reassoc",)))
        name = "fmaximum" if operation == "max" else "fminimum"
        function = self.intrinsic(f"llvm.vector.reduce.{name}.v{self.lanes}f32", F32, [self.vector])
        return self.splat(self.block.call(function, [value]))

    def any_nan(self, value: Value) -> Value:
        """Whether any lane is NaN."""
        lanes = self.block.bitcast(self.block.fcmp_unordered("uno", value, value), ir.IntType(self.lanes))
        return self.block.icmp_unsigned("!=", lanes, ir.Constant(lanes.type, 0))

    def intrinsic(self, name: str, gives: Value, takes: Sequence[Value]) -> Value:
        known = self.module.globals.get(name)
        return known if known is not None else ir.Function(self.module, ir.FunctionType(gives, takes), name)

    # Control

    def loop(
        self, stop: Value | int, body: Body, carried: Sequence[Value] = (), start: Value | int = 0, step: int = 1
    ) -> list[Value]:
        """`for index in range(start, stop, step)`; what is carried round stays in registers."""
        if isinstance(stop, int) and isinstance(start, int) and stop - start <= step:
            return list(body(i64(start), list(carried))) if stop > start else list(carried)
        function, before = self.function, self.block.block
        head, inside, after = (function.append_basic_block() for _ in range(3))
        known = isinstance(stop, int) and isinstance(start, int)
        if known:
            self.block.branch(inside)
        else:
            self.block.cbranch(self.block.icmp_signed("<", i64(start), i64(stop)), inside, after)
        self.block.position_at_end(inside)
        index = self.block.phi(I64)
        index.add_incoming(i64(start), before)
        phis = [self.block.phi(value.type) for value in carried]
        for phi, value in zip(phis, carried, strict=True):
            phi.add_incoming(value, before)
        given = list(body(index, list(phis)))
        following = self.block.add(index, i64(step))
        self.block.branch(head)
        last = self.block.block
        self.block.position_at_end(head)
        index.add_incoming(following, head)
        for phi, value in zip(phis, given, strict=True):
            phi.add_incoming(value, head)
        self.block.cbranch(self.block.icmp_signed("<", following, i64(stop)), inside, after)
        self.block.position_at_end(after)
        results = []
        for value, end in zip(carried, given, strict=True):
            phi = self.block.phi(value.type)
            phi.add_incoming(end, head)
            if not known:
                phi.add_incoming(value, before)
            results.append(phi)
        assert last is not None
        return results

    def when(self, condition: Value, body: Callable[[], None]) -> None:
        """`if condition: body()`."""
        with self.block.if_then(condition):
            body()


def i64(value: Value | int) -> Value:
    """A 64-bit number that may be known."""
    return ir.Constant(I64, value) if isinstance(value, int) else value
