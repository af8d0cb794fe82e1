"""Addresses as linear forms, and which of them may touch the same byte."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import cached_property

from heddle.lanes.ir import BITS, MEMORY_BYTES, Function, Module, Statement, split_commas, typed

DEEPEST = 24  # steps back through the arithmetic of an address


@dataclass(frozen=True)
class Address:
    """base + Σ coefficient × term + offset, in bytes, modulo 2⁶⁴ as the hardware adds."""

    base: str
    terms: tuple[tuple[str, int], ...]
    offset: int
    exact: bool = False  # the sum itself is promised not to wrap

    @cached_property
    def line(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """What two addresses share when their distance is known."""
        return self.base, self.terms


@dataclass
class TypeSizes:
    """Sizes of types, as the data layout of 64-bit machines has them."""

    structs: dict[str, str] = field(default_factory=dict)

    def size(self, kind: str, depth: int = 0) -> tuple[int, int] | None:
        """Bytes and alignment; None if not known for certain."""
        if depth > 8:
            return None
        if kind in MEMORY_BYTES:
            return MEMORY_BYTES[kind], MEMORY_BYTES[kind]
        if m := re.fullmatch(r"\[(\d+) x (.*)\]", kind):
            inner = self.size(m[2], depth + 1)
            return None if inner is None else (int(m[1]) * inner[0], inner[1])
        body = self.structs.get(kind, kind)
        if body.startswith("{") and len(body) > 2:
            end, largest = 0, 1
            for part in split_commas(body[1:-1].strip()):
                inner = self.size(part, depth + 1)
                if inner is None:
                    return None
                end = -(-end // inner[1]) * inner[1] + inner[0]
                largest = max(largest, inner[1])
            return -(-end // largest) * largest, largest
        return None


class Addresses:
    """Pointers of one function as linear forms."""

    def __init__(self, function: Function, module: Module) -> None:
        self.function = function
        self.layout = TypeSizes(module.structures)
        self.globals = module.globals
        self.metadata = module.metadata
        self.defs = function.definitions
        self._known: dict[str, Address] = {}
        self._exact = True  # of the address that is taken apart just now
        self._rooted: dict[str, tuple[str, ...]] = {}

    def address(self, pointer: str) -> Address:
        if pointer not in self._known:
            self._exact = True
            base, terms, offset = self._pointer(pointer, 0)
            kept = tuple(sorted((t, c) for t, c in terms.items() if c % 2**64))
            self._known[pointer] = Address(base, kept, _signed(offset), self._exact)
        return self._known[pointer]

    def _pointer(self, pointer: str, depth: int) -> tuple[str, dict[str, int], int]:
        unknown = (pointer, dict[str, int](), 0)
        s = self.defs.get(pointer)
        if pointer.startswith("getelementptr"):  # a constant expression
            inside = pointer[pointer.index("(") + 1 : -1]
        elif s is not None and s.op == "getelementptr":
            inside = re.sub(r"^.*? = getelementptr ", "", s.text)
        else:
            return unknown
        if depth > DEEPEST or inside.startswith("<"):
            return unknown
        flags, inside = re.findall(r"^((?:(?:inbounds|nuw|nusw) )*)(.*)$", inside, re.S)[0]
        self._exact &= "inbounds" in flags or "nusw" in flags
        element, *rest = [p for p in split_commas(inside) if not p.startswith("!")]
        if not rest or not re.match(r"ptr (?!addrspace)", rest[0]):
            return unknown
        base, *indices = rest
        root, terms, offset = self._pointer(typed(base)[1], depth + 1)
        terms = dict(terms)
        for k, part in enumerate(indices):
            kind, index = typed(part)
            if k:
                m = re.fullmatch(r"\[\d+ x (.*)\]", element)
                if m is None:
                    return unknown  # into a structure by field: LLVM prints these as bytes
                element = m[1]
            size = self.layout.size(element)
            if size is None:
                return unknown
            if kind == "i64":
                more, constant = self._integer(index, depth + 1)
            elif re.fullmatch(r"-?\d+", index):
                more, constant = {}, int(index)
            else:
                more, constant = self._extended(index, "s", depth + 1)
            offset += size[0] * constant
            for term, c in more.items():
                terms[term] = terms.get(term, 0) + size[0] * c
        return root, terms, offset

    def _integer(self, value: str, depth: int) -> tuple[dict[str, int], int]:
        """An i64 as a sum, exact modulo 2⁶⁴ whatever its flags say."""
        if re.fullmatch(r"-?\d+", value):
            return {}, int(value)
        s = self.defs.get(value)
        whole = ({value: 1}, 0)
        if s is None or depth > DEEPEST or not s.lanes:
            return whole
        if s.op in ("zext", "sext"):
            signed = s.op == "sext" or "nneg" in s.flags
            return self._extended(s.lanes[0], "s" if signed else "z", depth + 1)
        if s.op not in ("add", "sub", "mul", "shl", "or") or (s.op == "or" and "disjoint" not in s.flags):
            return whole
        self._exact &= "nsw" in s.flags or s.op == "or"
        a, x = self._integer(s.lanes[0], depth + 1)
        b, y = self._integer(s.lanes[1], depth + 1)
        if s.op in ("add", "or", "sub"):
            sign = -1 if s.op == "sub" else 1
            return {t: a.get(t, 0) + sign * b.get(t, 0) for t in {**a, **b}}, x + sign * y
        if b:
            return whole
        if s.op == "shl" and not 0 <= y < 64:
            return whole
        factor = y if s.op == "mul" else 1 << y
        return {t: c * factor for t, c in a.items()}, x * factor

    def integer(self, value: str, kind: str) -> tuple[dict[str, int], int]:
        """An integer that goes into addresses as a sum of terms and a constant."""
        return self._integer(value, 0) if kind == "i64" else self._extended(value, "s", 0)

    def _extended(self, value: str, how: str, depth: int) -> tuple[dict[str, int], int]:
        """A narrower integer that is extended: constants come out only where its sum cannot wrap."""
        if re.fullmatch(r"-?\d+", value):
            return ({}, int(value)) if how == "s" or not value.startswith("-") else ({f"{how}:{value}": 1}, 0)
        s = self.defs.get(value)
        flag = {"s": "nsw", "z": "nuw"}[how]
        if s is not None and depth <= DEEPEST and s.op in ("add", "or") and (flag in s.flags or "disjoint" in s.flags):
            constant = s.lanes[1]
            # `or disjoint` adds without any wrap, signed or not. A negative constant read as unsigned is another one.
            if re.fullmatch(r"\d+", constant) or (how == "s" and re.fullmatch(r"-\d+", constant)):
                terms, offset = self._extended(s.lanes[0], how, depth + 1)
                return terms, offset + int(constant)
        return {f"{how}:{value}": 1}, 0

    def may_alias(self, a: Statement, b: Statement) -> bool:
        """Whether two accesses may touch the same byte."""
        x, y = self.address(a.pointer), self.address(b.pointer)
        if x.line == y.line:
            reach = _bytes(a.type), _bytes(b.type)
            if reach[0] is not None and reach[1] is not None:
                distance = _signed(y.offset - x.offset)
                return -reach[1] < distance < reach[0]
            return True
        if x.base != y.base and self.apart(x.base, y.base):
            return False
        if x.base == y.base and not self._may_meet(a, b):
            return False
        return self.types_may_alias(a.metadata, b.metadata)

    def _may_meet(self, a: Statement, b: Statement) -> bool:
        """Whether two accesses of one object may meet, by what their distance leaves over from its unknown steps.

        Rows of 40 bytes, whichever they are, hold the same column at the same rest: an element of one row is none of
        another column in any row.
        """
        x, y = self.address(a.pointer), self.address(b.pointer)
        first, second = dict(x.terms), dict(y.terms)
        step = math.gcd(*(second.get(t, 0) - first.get(t, 0) for t in {**first, **second}))
        if not (x.exact and y.exact):
            step &= -step  # whatever wraps, wraps at a power of two
        rest, reach = (y.offset - x.offset) % step, (_bytes(a.type), _bytes(b.type))
        return reach[0] is None or reach[1] is None or rest < reach[0] or rest > step - reach[1]

    def apart(self, a: str, b: str) -> bool:
        """Two bases that LLVM's rules keep apart, whatever they are chosen from."""
        return all(self._objects_apart(x, y) for x in self._objects(a) for y in self._objects(b))

    def objects(self, pointer: str) -> tuple[str, ...]:
        """What a pointer may point into."""
        return self._objects(self.address(pointer).base)

    def _objects_apart(self, a: str, b: str) -> bool:
        kinds = {self._kind(a), self._kind(b)}
        if a == b or "unknown" in kinds:
            return False
        return kinds != {"argument"} and kinds != {"argument", "global"}

    def _objects(self, base: str) -> tuple[str, ...]:
        """The objects a pointer may point into: through the phis of a loop that walks along an array, and selects."""
        if base in self._rooted:
            return self._rooted[base]
        found: dict[str, None] = {}
        stack, seen = [base], {base}
        while stack:
            b = stack.pop()
            s = self.defs.get(b)
            if s is not None and " = phi ptr " in s.text and len(seen) < DEEPEST:
                incoming = [part.partition(",")[0].strip() for part in re.findall(r"\[ (.*?, %[^\]]*) \]", s.text)]
            elif s is not None and s.op == "select" and s.type == "ptr":
                incoming = list(s.lanes[1:])
            else:
                found[b] = None
                continue
            for pointer in incoming:
                root = self.address(pointer).base
                if root not in seen:
                    seen.add(root)
                    stack.append(root)
        self._rooted[base] = tuple(found)
        return self._rooted[base]

    def _kind(self, base: str) -> str:
        if base in self.globals:
            return "global"
        if base in self.function.noalias:
            return "noalias"
        if base in self.function.arguments:
            return "argument"
        s = self.defs.get(base)
        return "alloca" if s is not None and " = alloca " in s.text else "unknown"

    def types_may_alias(self, a: str, b: str) -> bool:
        """Type-based rule for accesses to plain scalars: one type must be an ancestor of the other.

        Types of different roots, as code linked from C and C++ has them, say nothing about each other.
        """
        first, second = self._scalar_type(a), self._scalar_type(b)
        if first is None or second is None:
            return True
        one, other = self._ancestors(first), self._ancestors(second)
        if one[-1] != other[-1] or not re.fullmatch(r'!\{!"[^"]*"\}', self.metadata.get(one[-1], "")):
            return True
        return first in other or second in one

    def _scalar_type(self, tag: str) -> str | None:
        m = re.fullmatch(r"!\{(!\d+), (!\d+), i64 0\}", self.metadata.get(tag, ""))
        return m[1] if m and m[1] == m[2] else None

    def _ancestors(self, node: str) -> list[str]:
        found = [node]
        while m := re.fullmatch(r'!\{!"[^"]*", (!\d+), i64 0\}', self.metadata.get(found[-1], "")):
            if m[1] in found:
                break
            found.append(m[1])
        return found


def _signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _bytes(kind: str) -> int | None:
    if m := re.fullmatch(r"<(\d+) x (\w+)>", kind):
        bits = BITS.get(m[2])
        return None if bits is None else int(m[1]) * max(bits, 8) // 8
    return MEMORY_BYTES.get(kind, 1 if kind == "i1" else None)
