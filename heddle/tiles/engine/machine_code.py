"""What the engine's functions are written with: words of memory, atomics, and structured control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

I32, I64, POINTER, VOID = ir.IntType(32), ir.IntType(64), ir.PointerType(), ir.VoidType()
WORD = I64.as_pointer()  # atomics want to know what they point to
Value = Any


def number(value: Value | int) -> Value:
    """A word that may be known."""
    return ir.Constant(I64, value) if isinstance(value, int) else value


class WordFunction:
    """A function of words that gives a word, being written."""

    def __init__(self, module: ir.Module, name: str, arguments: int, internal: bool = True) -> None:
        self.module = module
        self.function = ir.Function(module, ir.FunctionType(I64, [I64] * arguments), name)
        if internal:
            self.function.linkage = "internal"
        self.build = ir.IRBuilder(self.function.append_basic_block())
        self.arguments = self.function.args

    # Memory

    def address(self, base: Value, index: Value | int) -> Value:
        offset = index * 8 if isinstance(index, int) else self.build.mul(index, number(8))
        return self.build.inttoptr(self.build.add(base, number(offset)), WORD)

    def get(self, base: Value, index: Value | int) -> Value:
        """A plain word."""
        value = self.build.load(self.address(base, index), typ=I64)
        value.align = 8
        return value

    def put(self, value: Value | int, base: Value, index: Value | int) -> None:
        self.build.store(number(value), self.address(base, index)).align = 8

    def get_atomic(self, base: Value, index: Value | int, ordering: str = "acquire") -> Value:
        return self.build.load_atomic(self.address(base, index), ordering, 8, typ=I64)

    def put_atomic(self, value: Value | int, base: Value, index: Value | int, ordering: str = "release") -> None:
        self.build.store_atomic(number(value), self.address(base, index), ordering, 8)

    def add_atomic(self, base: Value, index: Value | int, value: int, ordering: str = "seq_cst") -> Value:
        """Add to a word; returns what it was."""
        return self.build.atomic_rmw("add", self.address(base, index), number(value), ordering)

    def swap(self, base: Value, index: Value | int, before: Value | int, after: Value | int) -> Value:
        """Compare and swap; returns whether it was done."""
        pair = self.build.cmpxchg(self.address(base, index), number(before), number(after), "seq_cst", "monotonic")
        return self.build.extract_value(pair, 1)

    def fence(self) -> None:
        self.build.fence("seq_cst")

    # Arithmetic

    def add(self, left: Value, right: Value | int) -> Value:
        return self.build.add(left, number(right))

    def mul(self, left: Value, right: Value | int) -> Value:
        return self.build.mul(left, number(right))

    def test(self, left: Value, sign: str, right: Value | int) -> Value:
        return self.build.icmp_signed(sign, left, number(right))

    def call(self, function: WordFunction, *arguments: Value | int) -> Value:
        return self.build.call(function.function, [number(each) for each in arguments])

    def outside(self, name: str, *arguments: Value) -> Value:
        """A function of the C library, of words."""
        known = self.module.globals.get(name)
        if known is None:
            known = ir.Function(self.module, ir.FunctionType(I32, [I64] * len(arguments)), name)
        return self.build.call(known, [number(each) for each in arguments])

    # Control

    def give(self, value: Value | int) -> None:
        self.build.ret(number(value))

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """`if condition:`; what is inside may return."""
        inside, after = self.function.append_basic_block(), self.function.append_basic_block()
        self.build.cbranch(condition, inside, after)
        self.build.position_at_end(inside)
        yield
        if not self.build.block.is_terminated:
            self.build.branch(after)
        self.build.position_at_end(after)

    def each(self, count: Value | int, body: Callable[[Value], None], start: Value | int = 0) -> None:
        """`for index in range(start, count)`."""
        slot = self.variable(start)
        head, inside, after = (self.function.append_basic_block() for _ in range(3))
        self.build.branch(head)
        self.build.position_at_end(head)
        index = self.read(slot)
        self.build.cbranch(self.test(index, "<", count), inside, after)
        self.build.position_at_end(inside)
        body(index)
        self.write(slot, self.add(index, 1))
        self.build.branch(head)
        self.build.position_at_end(after)

    def forever(self, body: Callable[[], None]) -> None:
        """`while True:`; the body returns from the function."""
        inside = self.function.append_basic_block()
        self.build.branch(inside)
        self.build.position_at_end(inside)
        body()
        if not self.build.block.is_terminated:
            self.build.branch(inside)

    def variable(self, value: Value | int = 0) -> Value:
        """A word of the stack, made once for the whole function."""
        with self.build.goto_entry_block():
            slot = self.build.alloca(I64)
        self.write(slot, value)
        return slot

    def read(self, slot: Value) -> Value:
        return self.build.load(slot, typ=I64)

    def write(self, slot: Value, value: Value | int) -> None:
        self.build.store(number(value), slot)
