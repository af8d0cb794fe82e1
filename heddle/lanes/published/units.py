"""Statements, and packs of them that have become statements of a width: what they read, who reads them, their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

from heddle.lanes.cost import Table, definitions, is_constant, statement_cost, vector
from heddle.lanes.dependence import Region
from heddle.lanes.ir import BITS, MEMORY_BYTES, Statement
from heddle.lanes.packs.builder import Builder
from heddle.lanes.packs.operations import loaded

Lanes = tuple[str, ...]
Operand = tuple[str, Lanes]  # type, and values in the order of their names: which lane is which is decided later


@dataclass(frozen=True)
class Unit:
    """A statement, or statements that are packed already: in the order of their addresses, else in any."""

    members: tuple[int, ...]
    columns: tuple[Lanes, ...]  # its operands, lane by lane


class Level:
    """All units of one width."""

    def __init__(self, builder: Builder, units: Sequence[Unit]) -> None:
        self.builder, self.units = builder, list(units)
        self.region, self.table = builder.region, builder.table
        self.width = len(units[0].members) if units else 1
        self.bits = [sum(1 << m for m in u.members) for u in self.units]
        self.above = [reduce(or_, (self.region.closure[m] for m in u.members)) for u in self.units]
        self.made = {self.names(u.members): n for n, u in enumerate(self.units)}

    @classmethod
    def first(cls, region: Region, table: Table) -> Level:
        """Single statements, with which all begins."""
        can = [(m, s) for m, s in enumerate(region.statements) if s.packable]
        can = [(m, s) for m, s in can if not s.memory or s.type in MEMORY_BYTES]
        return cls(Builder(region, table), [Unit((m,), tuple((v,) for v in s.lanes)) for m, s in can])

    def statement(self, unit: Unit) -> Statement:
        """One of a unit's, which are all alike."""
        return self.region.statements[unit.members[0]]

    def names(self, members: Sequence[int]) -> Lanes:
        """The values of some statements, in the order of their names."""
        return tuple(sorted(self.region.statements[m].name or f"store {m}" for m in members))

    def operands(self, unit: Unit) -> list[Operand]:
        return [(operand_type(self.statement(unit), k), tuple(sorted(c))) for k, c in enumerate(unit.columns)]

    @cached_property
    def definitions(self) -> dict[str, Statement]:
        return definitions(self.region.function)

    @cached_property
    def readers(self) -> list[list[int | None]]:
        """Who reads each unit: other units, or None for what is never packed."""
        found: list[list[int | None]] = [[] for _ in self.units]
        if self.width > 1:  # what reads single lanes was paid for when they were packed
            for n, u in enumerate(self.units):
                for _, lanes in self.operands(u):
                    if lanes in self.made:
                        found[self.made[lanes]].append(n)
            return found
        at = {u.members[0]: n for n, u in enumerate(self.units)}
        for n, u in enumerate(self.units):
            name = self.statement(u).name or ""
            found[n] = [at.get(m) for m in self.region.users.get(name, ())]
            if name in self.region.outside:
                found[n].append(None)
        return found

    def fits(self, kind: str, width: int) -> bool:
        """Whether there is a vector of that type, and LLVM was asked about it."""
        return BITS.get(kind, 1 << 16) * width <= self.table.register and self.table.knows(
            f"insert {vector(kind, width)} 0"
        )

    def cost(self, unit: Unit) -> int | None:
        """None if it is no vector instruction, or LLVM was not asked."""
        s, width = self.statement(unit), len(unit.members)
        if width == 1:
            return statement_cost(self.table, s, self.definitions)
        if not all(self.fits(kind, width) for kind in (s.type, *(kind for kind, _ in self.operands(unit)))):
            return None
        if s.memory:
            return self.table.get(f"{s.op} {vector(s.type, width)}")
        return self.table.operation(s, width, unit.columns[-1], loaded(self.builder, list(unit.columns[0])))

    def packing(self, kind: str, halves: tuple[Lanes, Lanes]) -> int:
        """To make an operand that is no pack: lane by lane, or of halves of which one is a pack."""
        apart = {tuple(sorted(half)) for half in halves}
        if self.width > 1 and any(half in self.made for half in apart):
            return self.table.get(f"concat {vector(kind, self.width)}")
        paid = sum(self._built(kind, half) for half in apart) if self.width > 1 else 0  # when its readers were packed
        return max(0, self._built(kind, halves[0] + halves[1]) - paid)

    def _built(self, kind: str, lanes: Lanes) -> int:
        t, moving = vector(kind, len(lanes)), [k for k, v in enumerate(lanes) if not is_constant(v)]
        if self.region.steady.issuperset(lanes[k] for k in moving):
            return 0
        if len(set(lanes)) == 1:
            return self.table.get(f"first {t} 0", 0) + self.table.get(f"broadcast {t}")
        fresh = len(moving) == len(lanes)
        return sum(self.table.get(f"{'first' if fresh and not k else 'insert'} {t} {k}") for k in moving)

    def extract(self, unit: int) -> int:
        """To take a unit out of a pack: its dearer lane, or its upper half."""
        kind, width = self.statement(self.units[unit]).type, 2 * self.width
        if self.width == 1:
            return self.table.get(f"extract {vector(kind, width)} 1")
        return self.table.shuffle(kind, width, range(self.width, width))


def operand_type(s: Statement, k: int) -> str:
    if s.op == "select":
        return "i1" if k == 0 else s.type
    return s.operand_type
