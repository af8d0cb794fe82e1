"""Straight-line functions made at random: alike in some lanes, unlike in others, as real ones are."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

FLOAT_OPS = ["fadd", "fsub", "fmul", "fadd", "fmul", "fdiv"]
WHOLE_OPS = ["add", "sub", "mul", "and", "or", "xor", "add", "shl"]
COMMUTE = {"fadd", "fmul", "add", "mul", "and", "or", "xor"}
SWAP = {"fadd": "fsub", "fsub": "fadd", "add": "sub", "sub": "add"}
SIZE = {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}
ARRAYS = 3
LENGTH = 64  # elements of each array that may be touched


@dataclass
class Node:
    """A part of the expression that every lane computes, each with its own leaves."""

    op: str
    inner: list[Node] = field(default_factory=list)
    array: int = 0
    stride: int = 1
    offset: int = 0


@dataclass
class Kernel:
    """IR of a function `kernel(out, a, b, c, s)`: four pointers and a scalar."""

    text: str
    type: str
    seed: int


def kernel(seed: int, size: int = 3) -> Kernel:
    """One function; the same for the same seed.

    Args:
        seed: which.
        size: depth of the expressions; blocks grow with it.
    """
    chance = random.Random(seed)
    kind = chance.choice(["float", "float", "float", "double", "double", "i32", "i32", "i16", "i8", "i64"])
    writer = _Writer(chance, kind)
    for _ in range(chance.randint(1, 3)):
        writer.group(size)
    apart = [chance.random() < 0.7 for _ in range(ARRAYS + 1)]
    arguments = ", ".join(f"ptr {'noalias ' if apart[k] else ''}%p{k}" for k in range(ARRAYS + 1))
    result, end = "void", "  ret void"
    if writer.scalars and chance.random() < 0.4:
        result, end = kind, f"  ret {kind} {chance.choice(writer.scalars)}"
    body = "\n".join(writer.lines)
    text = f"define {result} @kernel({arguments}, {kind} %s) {{\n{body}\n{end}\n}}\n"
    for declared in sorted(writer.declared):
        text += declared + "\n"
    return Kernel(text, kind, seed)


class _Writer:
    def __init__(self, chance: random.Random, kind: str) -> None:
        self.chance, self.kind = chance, kind
        self.floating = kind in ("float", "double")
        self.lines: list[str] = []
        self.scalars: list[str] = []
        self.declared: set[str] = set()
        self.count = 0

    def _new(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def group(self, depth: int) -> None:
        """Some lanes that compute nearly the same, and store it side by side."""
        chance = self.chance
        lanes = chance.choice([2, 3, 4, 4, 4, 6, 8, 8])
        tree = self._tree(depth)
        start = chance.randint(0, 8)
        order = list(range(lanes))
        if chance.random() < 0.3:
            chance.shuffle(order)
        stride = chance.choice([1, 1, 1, 1, 2])
        late: list[tuple[str, int]] = []
        for lane in order:
            shape = tree if chance.random() > 0.08 else self._tree(depth)
            value = self._value(shape, lane)
            self.scalars.append(value)
            at = start + lane * stride
            if chance.random() < 0.5:
                self._store(value, at)
            else:
                late.append((value, at))
        for value, at in late:
            self._store(value, at)

    def _tree(self, depth: int) -> Node:
        chance = self.chance
        if depth == 0 or chance.random() < 0.15:
            kind = chance.choice(["load", "load", "load", "load", "constant", "scalar"])
            return Node(
                kind,
                array=chance.randint(0, ARRAYS),
                stride=chance.choice([1, 1, 1, 2, 0, -1]),
                offset=chance.randint(0, 8),
            )
        if chance.random() < 0.1:
            return Node("unary", [self._tree(depth - 1)])
        if chance.random() < 0.08:
            return Node("choose", [self._tree(depth - 1) for _ in range(4)])
        op = chance.choice(FLOAT_OPS if self.floating else WHOLE_OPS)
        return Node(op, [self._tree(depth - 1), self._tree(depth - 1)])

    def _value(self, node: Node, lane: int) -> str:
        chance = self.chance
        match node.op:
            case "load":
                index = node.offset + lane * node.stride + (8 if node.stride < 0 else 0)
                return self._load(node.array, index)
            case "constant":
                number = chance.randint(1, 7)
                return f"{number}.0" if self.floating else str(number)
            case "scalar":
                return "%s"
            case "unary":
                return self._unary(self._value(node.inner[0], lane))
            case "choose":
                a, b, c, d = (self._value(n, lane) for n in node.inner)
                test = "fcmp olt" if self.floating else "icmp slt"
                return self._new(
                    f"select i1 {self._new(f'{test} {self.kind} {a}, {b}')}, {self.kind} {c}, {self.kind} {d}"
                )
        a, b = (self._value(n, lane) for n in node.inner)
        op = node.op
        if op in SWAP and chance.random() < 0.15:
            op = SWAP[op]
        if op in COMMUTE and chance.random() < 0.2:
            a, b = b, a
        if op == "shl":
            b = str(chance.randint(0, 5))
        return self._new(f"{op} {self.kind} {a}, {b}")

    def _unary(self, value: str) -> str:
        if not self.floating:
            return self._new(f"xor {self.kind} {value}, -1")
        if self.chance.random() < 0.5:
            return self._new(f"fneg {self.kind} {value}")
        suffix = "f32" if self.kind == "float" else "f64"
        self.declared.add(f"declare {self.kind} @llvm.sqrt.{suffix}({self.kind})")
        return self._new(f"call {self.kind} @llvm.sqrt.{suffix}({self.kind} {value})")

    def _pointer(self, array: int, index: int) -> str:
        return self._new(f"getelementptr inbounds i8, ptr %p{array}, i64 {index * SIZE[self.kind]}")

    def _load(self, array: int, index: int) -> str:
        return self._new(f"load {self.kind}, ptr {self._pointer(array, index)}, align {SIZE[self.kind]}")

    def _store(self, value: str, index: int) -> None:
        self.lines.append(f"  store {self.kind} {value}, ptr {self._pointer(0, index)}, align {SIZE[self.kind]}")
