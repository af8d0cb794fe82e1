"""Functions made at random, most of them straight-line: alike in some lanes, unlike in others, as real ones are."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from heddle.lanes.policy.looped import looped

FLOAT_OPS = ["fadd", "fsub", "fmul", "fadd", "fmul", "fdiv"]
WHOLE_OPS = ["add", "sub", "mul", "and", "or", "xor", "add", "shl"]
COMMUTE = {"fadd", "fmul", "add", "mul", "and", "or", "xor"}
SWAP = {"fadd": "fsub", "fsub": "fadd", "add": "sub", "sub": "add"}
SIZE = {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}
ARRAYS = 3
LOOPS = 6  # every so many kernels one is a loop
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
class RandomKernel:
    """IR of a function `kernel(out, a, b, c, s)`: four pointers and a scalar."""

    text: str
    type: str
    seed: int


def kernel(seed: int, size: int = 3) -> RandomKernel:
    """One function; the same for the same seed.

    Args:
        seed: which.
        size: depth of the expressions; blocks grow with it.
    """
    if seed % LOOPS == LOOPS - 1:
        text, kind = looped(seed)
        return RandomKernel(text, kind, seed)
    chance = random.Random(seed)
    kind = chance.choice(["float", "float", "float", "double", "double", "i32", "i32", "i16", "i8", "i64"])
    writer = _Writer(chance, kind)
    if chance.random() < 0.5:
        for _ in range(chance.randint(1, 3)):
            writer.group(size)
    else:
        chance.choice([writer.bilinear, writer.linear, writer.stencil, writer.butterfly])(size)
    apart = [chance.random() < 0.7 for _ in range(ARRAYS + 1)]
    arguments = ", ".join(f"ptr {'noalias ' if apart[k] else ''}%p{k}" for k in range(ARRAYS + 1))
    result, end = "void", "  ret void"
    if writer.scalars and chance.random() < 0.4:
        result, end = kind, f"  ret {kind} {chance.choice(writer.scalars)}"
    body = "\n".join(writer.lines)
    text = f"define {result} @kernel({arguments}, {kind} %s) {{\n{body}\n{end}\n}}\n"
    for declared in sorted(writer.declared):
        text += declared + "\n"
    return RandomKernel(text, kind, seed)


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

    def bilinear(self, size: int) -> None:
        """Sums of products of two arrays: products of matrices, of complex numbers, of quaternions, of vectors."""
        chance = self.chance
        shape = chance.choice(["matrix", "matrix", "table", "complex"])
        m, n, k = (chance.randint(2, 2 + size) for _ in range(3))
        if shape == "complex":
            m, n, k = chance.randint(1, 1 + size), 2, 2
        elif shape == "table":
            m, n = 1, chance.choice([3, 4, 4, 6, 8])
        ways = [[(chance.randrange(4), chance.randrange(4), chance.random() < 0.4) for _ in range(k)] for _ in range(n)]
        turned = chance.random() < 0.3
        for i in range(m):
            for j in range(n):
                total = None
                for t in range(k):
                    if shape == "matrix":
                        a, b, minus = i * k + t, j * k + t if turned else t * n + j, False
                    elif shape == "complex":
                        a, b, minus = 2 * i + t, 2 * i + (t + j) % 2, j == 0 and t == 1
                    else:
                        a, b, minus = ways[j][t]
                    part = self._binary("mul", self._load(1, a), self._load(2, b))
                    total = part if total is None else self._binary("sub" if minus else "add", total, part)
                assert total is not None
                if chance.random() < 0.1:
                    total = self._binary("add", self._load(0, i * n + j), total)
                self.scalars.append(total)
                self._store(total, i * n + j)

    def linear(self, size: int) -> None:
        """A fixed matrix times interleaved points, interleaved again or in planes: colors, transforms."""
        chance = self.chance
        points, wide, high = chance.choice([2, 4, 4]), chance.randint(2, 4), chance.randint(2, 1 + size)
        factors = [[self._constant() for _ in range(wide)] for _ in range(high)]
        planes, given = chance.random() < 0.4, chance.random() < 0.4
        for p in range(points):
            for i in range(high):
                total = None
                for j in range(wide):
                    factor = self._load(2, i * wide + j) if given else factors[i][j]
                    part = self._binary("mul", self._load(1, p * wide + j), factor)
                    total = part if total is None else self._binary("add", total, part)
                assert total is not None
                self._store(total, i * 16 + p if planes else p * high + i)

    def stencil(self, size: int) -> None:
        """Neighbors in a row, with or without factors of their own: filters."""
        chance = self.chance
        taps, outputs = chance.randint(2, 3 + size), chance.choice([2, 4, 4, 8])
        factors = [self._constant() for _ in range(taps)]
        given = chance.random() < 0.5
        for i in range(outputs):
            total = None
            for t in range(taps):
                factor = self._load(2, t) if given else factors[t]
                part = self._binary("mul", self._load(1, i + t), factor)
                total = part if total is None else self._binary("add", total, part)
            assert total is not None
            if chance.random() < 0.2:
                total = self._binary("add", total, "%s")
            self._store(total, i)

    def butterfly(self, size: int) -> None:
        """Sums and differences of pairs, in rounds: small Fourier and Hadamard transforms."""
        chance = self.chance
        n = chance.choice([4, 8]) if size < 3 else 8
        values = [self._load(1, i) for i in range(n)]
        step = n // 2 if chance.random() < 0.7 else 1
        for _ in range(chance.randint(1, 3)):
            made = list(values)
            for i in range(n):
                if not i & step:
                    a, b = values[i], values[i | step]
                    made[i], made[i | step] = self._binary("add", a, b), self._binary("sub", a, b)
            if chance.random() < 0.4:
                made = [self._binary("mul", v, self._constant()) for v in made]
            values, step = made, max(1, step // 2) if step > 1 else n // 2
        for i, v in enumerate(values):
            self.scalars.append(v)
            self._store(v, i)

    def _binary(self, op: str, a: str, b: str) -> str:
        if op != "sub" and self.chance.random() < 0.15:
            a, b = b, a
        return self._new(f"{'f' if self.floating else ''}{op} {self.kind} {a}, {b}")

    def _constant(self) -> str:
        number = self.chance.randint(2, 7)
        return f"{number}.0" if self.floating else str(number)

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
                return self._constant()
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
