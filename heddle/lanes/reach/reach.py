"""How far a function reaches from each pointer that it is given: what an array must have to be passed to it.

Addresses are a base and a sum of terms. Each term has a least and a greatest value once the integers of a call are
known: through arithmetic, branches that were taken on the way, and loops that count up to something known. What depends
on numbers in memory has none, and neither has a pointer that is handed on to somebody else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from heddle.lanes.dependence.addresses import Address
from heddle.lanes.ir import BITS, Function, Module, Statement, split_commas, typed
from heddle.lanes.reach.flow import Flow
from heddle.lanes.reach.spans import IntegerRange, NeverError, UnboundedError, join, signed
from heddle.lanes.reach.values import Values

OTHERS = {"half": 2, "bfloat": 2, "x86_fp80": 16, "fp128": 16}  # bytes
_ENDS = re.compile(r"(?:br|ret|switch|unreachable)\b")
_QUIET = re.compile(r"@llvm\.(?:assume|lifetime|dbg|experimental\.noalias|invariant|prefetch)")
_LANES = re.compile(r"@llvm\.(?:masked\.(?:load|store|gather|scatter)|experimental\.vp\.strided|vp\.(?:load|store))\.")
_MOVES = re.compile(r"call void @llvm\.(memcpy|memmove|memset)\.\S*\((.*)\)")


@dataclass
class PointerAccess:
    block: str
    at: Address
    length: str | int  # bytes, or the value that says how many
    statement: Statement


@dataclass
class Pointer:
    """What is known about an argument before any call."""

    kinds: set[str] = field(default_factory=set)  # of the numbers behind it
    written: bool = False
    aligned: set[tuple[int, int]] = field(default_factory=set)  # (address + second) is a multiple of the first
    accesses: list[PointerAccess] = field(default_factory=list)
    leaves: bool = False  # it goes where nobody looks
    lanes: bool = False  # LLVM touches some lanes of a vector there, which are those that its scalar code touched


class Reach:
    """Of one function; `scalar`: of the code that it was made from."""

    def __init__(self, function: Function, module: Module, scalar: Reach | None = None) -> None:
        self.scalar = scalar
        self.flow = Flow(function, module)
        self.function, self.types, self.addresses = function, function.types, self.flow.addresses
        self.pointers = {a: Pointer() for a in function.arguments if self.types[a] == "ptr"}
        for block in function.blocks:
            for s in block.statements:
                self._note(block.label, s)
        self.needed = lru_cache(maxsize=256)(self._needed)

    def _note(self, block: str, s: Statement) -> None:
        moved = _MOVES.search(s.text)
        if s.memory or moved:
            if moved:
                first, second, length = split_commas(moved[2])[:3]
                places = [(typed(first)[1], True), *[(typed(second)[1], False)] * (moved[1] != "memset")]
                many: str | int = typed(length)[1]
            else:
                places, many = [(s.pointer, s.op == "store")], self._bytes(s.type)
                if s.type == "ptr" or not many:  # what lies behind a pointer that it keeps or reads is nobody's array
                    self._leave(s.lanes[0] if s.op == "store" and many else s.pointer)
            for place, writes in places:
                access = PointerAccess(block, self.addresses.address(place), many, s)
                for pointer in self._roots(place):
                    if self._walks(access.at.base, pointer):
                        self._add(pointer, access, writes)
                    else:
                        pointer.leaves = True
        elif not _understood(s, self.types):
            pointers = s.op in ("getelementptr", "insertelement", "shufflevector")  # several in a vector
            lanes = self.scalar is not None and (pointers or bool(_LANES.search(s.text)))
            for used in s.uses:
                if self.types.get(used) == "ptr":
                    for pointer in self._roots(used):
                        pointer.lanes |= lanes
                        pointer.leaves |= not lanes
                        pointer.written |= lanes and "store" in s.text

    def _bytes(self, kind: str) -> int:
        """Of a value in memory; 0 where that is not known."""
        m = re.fullmatch(r"<(\d+) x (\w+)>", kind)
        count, each = (int(m[1]), m[2]) if m else (1, kind)
        if bits := re.fullmatch(r"i(\d+)", each):
            return -(-count * int(bits[1]) // 8)
        size = OTHERS.get(each) or (self.addresses.layout.size(each) or (0, 0))[0]
        return count * size

    def _add(self, pointer: Pointer, access: PointerAccess, writes: bool) -> None:
        pointer.accesses.append(access)
        pointer.written |= writes
        s, at = access.statement, access.at
        if s.memory:
            pointer.kinds.add(re.sub(r"<\d+ x (.*)>", r"\1", s.type))
            if s.align > 1 and all(c % s.align == 0 for _, c in at.terms):
                pointer.aligned.add((s.align, at.offset % s.align))

    def _roots(self, value: str) -> list[Pointer]:
        """The arguments that a pointer may point into: all of them where that cannot be told."""
        found = []
        for base in self.addresses.objects(value):
            s = self.flow.defs.get(base)
            if s is not None and s.op in ("getelementptr", "select", "phi"):  # too far back, or into a structure
                return list(self.pointers.values())
            if base in self.pointers:
                found.append(self.pointers[base])
        return found

    def _leave(self, value: str) -> None:
        for pointer in self._roots(value):
            pointer.leaves = True

    def _walks(self, base: str, pointer: Pointer) -> bool:
        """Whether a pointer is that argument, or goes along it with a loop that counts."""
        seen = set()
        while base not in self.pointers and base not in seen and (found := self.flow.counter(base)) is not None:
            seen.add(base)
            base = self.addresses.address(found[0]).base
        return self.pointers.get(base) is pointer

    # What a call needs

    def _needed(self, integers: tuple[int, ...]) -> tuple[IntegerRange | None, ...]:
        """Bytes from each pointer, given the integers among the arguments; None where they cannot be told."""
        names = [a for a in self.function.arguments if self.types[a] in BITS and self.types[a][0] == "i"]
        given = {n: signed(v, BITS[self.types[n]]) for n, v in zip(names, integers, strict=True)}
        values = {block: Values(self.flow, given, self.flow.facts(block)) for block in self.flow.blocks}
        kept = {block: found for block, found in values.items() if found.reachable()}
        spans = [None if p.leaves else self._reached(p, kept) for p in self.pointers.values()]
        if self.scalar is None or not any(p.lanes for p in self.pointers.values()):
            return tuple(spans)
        others = self.scalar.needed(integers)
        pairs = zip(self.pointers.values(), spans, others, strict=True)
        return tuple((a and b and join(a, b)) if p.lanes else a for p, a, b in pairs)

    def _reached(self, pointer: Pointer, values: dict[str, Values]) -> IntegerRange | None:
        least = most = 0
        for access in pointer.accesses:
            here = values.get(access.block)
            if here is None:
                continue
            try:
                span = here.address(access.at)
                many = access.length if isinstance(access.length, int) else here.span(access.length, "i64").most
            except NeverError:
                continue
            except (UnboundedError, RecursionError):
                return None
            if many:
                least, most = min(least, span.least), max(most, span.most + many)
        return IntegerRange(least, most)


def _understood(s: Statement, types: dict[str, str]) -> bool:
    """Whether a statement does nothing with a pointer but what is followed here."""
    if s.op in ("phi", "icmp", "select") or (s.op == "getelementptr" and types.get(s.name or "") == "ptr"):
        return True
    return s.op == "opaque" and bool(_ENDS.match(s.text) or _QUIET.search(s.text))
