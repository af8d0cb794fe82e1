"""Integers between a least and a greatest value, and what arithmetic and comparisons make of them."""

from __future__ import annotations

from typing import NamedTuple

from heddle.lanes.ir import Statement


class IntegerRange(NamedTuple):
    """The least and the greatest value of an integer, read as signed."""

    least: int
    most: int

    @property
    def known(self) -> bool:
        return self.least == self.most


class UnboundedError(Exception):
    """A value that may be anything."""


class NeverError(Exception):
    """A place that no way leads to."""


def narrowed(span: IntegerRange, predicate: str, other: IntegerRange) -> IntegerRange | None:
    """What is left of a span where a comparison holds; None: nothing."""
    least, most = span
    if predicate[0] == "u":
        if span.least < 0 or other.least < 0:
            return span
        predicate = f"s{predicate[1:]}"
    if predicate == "eq":
        least, most = max(least, other.least), min(most, other.most)
    elif predicate == "ne" and other.known:
        least, most = least + (least == other.least), most - (most == other.least)
    elif predicate in ("slt", "sle"):
        most = min(most, other.most - (predicate == "slt"))
    elif predicate in ("sgt", "sge"):
        least = max(least, other.least + (predicate == "sgt"))
    return IntegerRange(least, most) if least <= most else None


def calculated(s: Statement, spans: list[IntegerRange], bits: int, into: int) -> IntegerRange:
    a, b = spans[0], spans[-1]
    corners: list[int] | None = None
    if s.op == "sext" and bits > 1:
        return a
    if s.op == "zext":
        return a if "nneg" in s.flags and a.least >= 0 else unsigned(a, bits)
    if s.op == "trunc":
        return fits(a, into)
    if s.op in ("add", "or") and (s.op == "add" or "disjoint" in s.flags):
        corners = [a.least + b.least, a.most + b.most]
    elif s.op == "sub":
        corners = [a.least - b.most, a.most - b.least]
    elif s.op == "mul":
        corners = [x * y for x in a for y in b]
    elif s.op in ("shl", "lshr", "ashr", "udiv", "sdiv", "urem") and b.known:
        corners = _by_constant(s.op, a, b.least, bits)
    elif s.op == "and" and b.known and (b.least >= 0 or -b.least & (-b.least - 1) == 0):
        # of a mask that is not negative no more is left than it has; one like -8 rounds down
        top = min(b.least, a.most) if a.least >= 0 else b.least
        corners = [a.least & b.least, a.most & b.least] if b.least < 0 or a.known else [0, top]
    elif s.op in ("and", "or", "xor") and a.known and b.known:
        corners = [{"and": a.least & b.least, "or": a.least | b.least, "xor": a.least ^ b.least}[s.op]]
    elif s.op in ("llvm.smax", "llvm.smin", "llvm.umax", "llvm.umin"):
        if s.op[5] == "u":
            a, b = unsigned(a, bits), unsigned(b, bits)
        pick = max if s.op.endswith("max") else min
        corners = [pick(a.least, b.least), pick(a.most, b.most)]
    if not corners:
        raise UnboundedError
    return fits(IntegerRange(min(corners), max(corners)), bits)


def _by_constant(op: str, a: IntegerRange, by: int, bits: int) -> list[int] | None:
    if op in ("shl", "lshr", "ashr"):
        if not 0 <= by < bits:
            return None
        if op == "shl":
            return [a.least << by, a.most << by]
        a = unsigned(a, bits) if op == "lshr" else a
        return [a.least >> by, a.most >> by]
    if by <= 0:
        return None
    if op == "sdiv":
        return [abs(x) // by * (1 if x >= 0 else -1) for x in a]
    a = unsigned(a, bits)
    if op == "udiv":
        return [a.least // by, a.most // by]
    return [a.least % by] if a.known else [0, min(by - 1, a.most)]


def join(a: IntegerRange, b: IntegerRange) -> IntegerRange:
    return IntegerRange(min(a.least, b.least), max(a.most, b.most))


def signed(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) if bits > 1 else value & 1


def unsigned(span: IntegerRange, bits: int) -> IntegerRange:
    if span.least >= 0:
        return span
    if span.most < 0:
        return IntegerRange(span.least + (1 << bits), span.most + (1 << bits))
    raise UnboundedError


def fits(span: IntegerRange, bits: int) -> IntegerRange:
    """The same in so many bits; one that is known may wrap, as it will."""
    half = 1 << bits - 1
    if -half <= span.least and span.most < half:
        return span
    if span.known:
        return IntegerRange(*[signed(span.least, bits)] * 2)
    raise UnboundedError
