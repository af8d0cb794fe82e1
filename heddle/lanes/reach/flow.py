"""The blocks of a function: what holds in them, which loops they are in, and what those count."""

from __future__ import annotations

import re
from typing import NamedTuple

from heddle.lanes.dependence.addresses import Addresses
from heddle.lanes.dependence.loops import LABEL
from heddle.lanes.ir import Function, Module, Statement

OPPOSITE = {
    "eq": "ne", "ne": "eq", "slt": "sge", "sge": "slt", "sgt": "sle", "sle": "sgt", "ult": "uge", "uge": "ult",
    "ugt": "ule", "ule": "ugt",
}  # fmt: skip
TURNED = {
    "slt": "sgt", "sgt": "slt", "sle": "sge", "sge": "sle", "ult": "ugt", "ugt": "ult", "ule": "uge", "uge": "ule",
}  # fmt: skip


class Fact(NamedTuple):
    """What holds where a branch was taken."""

    left: str
    predicate: str
    right: str
    kind: str

    @property
    def turned(self) -> Fact:
        """The same, seen from the other side."""
        return Fact(self.right, TURNED.get(self.predicate, self.predicate), self.left, self.kind)


class Flow:
    """Of one function."""

    def __init__(self, function: Function, module: Module) -> None:
        self.function, self.defs, self.types = function, function.definitions, function.types
        self.addresses = Addresses(function, module)
        self.arguments = frozenset(a for a in function.arguments if self.types[a] == "ptr")
        self.blocks = {b.label: b for b in function.blocks}
        self.home = {s.name: b.label for b in function.blocks for s in b.statements if s.name}
        self.follow = {b.label: re.findall(rf"label %{LABEL}", b.statements[-1].text) for b in function.blocks}
        self.before = {b: [a for a, following in self.follow.items() if b in following] for b in self.blocks}
        self.above = self._dominators()
        self._held: dict[str, list[Fact]] = {}

    def _dominators(self) -> dict[str, list[str]]:
        """The blocks through which every way to a block goes, the nearest last; itself included."""
        order = list(self.blocks)
        above = {label: set(order) for label in order}
        above[order[0]] = {order[0]}
        changed = True
        while changed:
            changed = False
            for label in order[1:]:
                some = [above[b] for b in self.before[label]]
                new = (set.intersection(*some) if some else set()) | {label}
                changed |= new != above[label]
                above[label] = new
        return {label: sorted(found, key=lambda one: len(above[one])) for label, found in above.items()}

    def facts(self, label: str) -> list[Fact]:
        """What branches on every way to a block have found to hold."""
        if label in self._held:
            return self._held[label]
        facts = self._held[label] = []
        for target in self.above[label]:
            sources = [b for b in self.before[target] if target not in self.above[b]]  # without the ends of its loop
            if len(sources) != 1:
                continue
            taken = self.condition(sources[0])
            if taken and (target == taken[1]) != (target == taken[2]):
                facts.append(holding(taken[0], target == taken[1]))
        return facts

    def condition(self, label: str) -> tuple[Statement, str, str] | None:
        m = re.match(rf"br i1 (\S+), label %{LABEL}, label %{LABEL}", self.blocks[label].statements[-1].text)
        found = self.defs.get(m[1]) if m else None
        return (found, m[2], m[3]) if m and found is not None and found.op == "icmp" else None

    def counter(self, phi: str) -> tuple[str, int] | None:
        """What a phi is at first, and how much it grows each time round its loop."""
        s = self.defs.get(phi)
        pairs = re.findall(rf"\[ (.*?), %{LABEL} \]", s.text) if s is not None and s.op == "phi" else []
        if len(pairs) != 2:
            return None
        header = self.home[phi]
        back = [header in self.above[label] for _, label in pairs]
        if sum(back) != 1:
            return None
        (first, _), (following, _) = pairs if back[1] else reversed(pairs)
        if self.types[phi] == "ptr":
            at = self.addresses.address(following)
            return (first, at.offset) if at.base == phi and not at.terms else None
        step = self.plus(following)
        return (first, step[1]) if step is not None and step[0] == phi else None

    def plus(self, value: str) -> tuple[str, int] | None:
        """A value as another one and a constant."""
        s = self.defs.get(value)
        if s is not None and s.op in ("add", "sub", "or") and re.fullmatch(r"-?\d+", s.lanes[1]):
            if s.op == "or" and "disjoint" not in s.flags:
                return None
            return s.lanes[0], int(s.lanes[1]) * (-1 if s.op == "sub" else 1)
        return None

    def loop(self, header: str) -> tuple[set[str], list[str]]:
        """The blocks of the loop that begins with one, and those of them that lead back to it."""
        ends = [b for b in self.before[header] if header in self.above[b]]
        inside, stack = {header}, list(ends)
        while stack:
            label = stack.pop()
            if label not in inside:
                inside.add(label)
                stack += self.before[label]
        return inside, ends


def holding(s: Statement, taken: bool) -> Fact:
    """What holds where a branch on a comparison was taken, or not."""
    predicate = s.predicate if taken else OPPOSITE[s.predicate]
    return Fact(s.lanes[0], predicate, s.lanes[1], s.operand_type)
