"""What may be packed together: regions without side effects, and who waits for whom."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

from heddle.lanes.dependence.addresses import Address, Addresses
from heddle.lanes.dependence.carried import Carried, carried, way_out
from heddle.lanes.dependence.loops import loops, only_before
from heddle.lanes.dependence.standing import Standing, standing
from heddle.lanes.ir import BasicBlock, Function, Module, Statement

LARGEST = 480  # statements that are looked at together; longer stretches are cut, after a store where there is one


@dataclass
class Region:
    """A stretch of a block in which only plain loads and stores touch memory, and nothing can end the program."""

    function: Function
    block: BasicBlock
    start: int
    statements: list[Statement]
    addresses: dict[int, Address]  # of loads and stores, by position in the region
    before: list[int]  # for each statement, as bits, those that must come earlier: directly
    outside: frozenset[str]  # values that are read beyond the region
    steady: frozenset[str] = frozenset()  # values from before the loop around it: their vectors are made …
    preheader: str = ""  # … at the end of this block
    carried: dict[str, Carried] = field(default_factory=dict)  # phis of a loop that is this block alone
    leaving: frozenset[str] = frozenset()  # values of that loop that are read only behind it, …
    way_out: str = ""  # … in or beyond this block
    required: frozenset[str] = frozenset()  # of those read beyond the region, what must be there as scalars
    standing: Standing = field(default_factory=Standing)  # loads of the block before, to be had as vectors

    @cached_property
    def position(self) -> dict[str, int]:
        return {s.name: i for i, s in enumerate(self.statements) if s.name}

    @cached_property
    def closure(self) -> list[int]:
        """For each statement, as bits, all those that must come earlier."""
        every: list[int] = []
        for direct in self.before:
            reach, left = direct, direct
            while left:
                bit = left & -left
                reach |= every[bit.bit_length() - 1]
                left ^= bit
            every.append(reach)
        return every

    @cached_property
    def shape(self) -> Hashable:
        """What regions share that differ only in names."""
        number: dict[str, int] = {}

        def named(value: str) -> int | str:
            return number.setdefault(value, len(number)) if value[:1] == "%" else value

        statements = tuple(
            (s.signature, s.flags, s.align, tuple(map(named, (*s.lanes, *s.uses))), named(s.name or "%"))
            for s in self.statements
        )
        lines: dict[object, int] = {}
        places = tuple((i, lines.setdefault(a.line, len(lines)), a.offset) for i, a in self.addresses.items())
        carried = tuple((named(v), named(c.first), named(c.following)) for v, c in self.carried.items())
        groups = (self.required, self.leaving, self.steady, self.outside)
        marks = tuple(frozenset(n for v, n in number.items() if v in group) for group in groups)
        return statements, places, carried, marks, tuple(self.before)

    def independent(self, members: list[int]) -> bool:
        bits = earlier = 0
        for m in members:
            bits |= 1 << m
            earlier |= self.closure[m]
        return not bits & earlier

    @cached_property
    def users(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, s in enumerate(self.statements):
            for used in s.uses:
                found.setdefault(used, []).append(i)
        return found


def regions(function: Function, module: Module, smallest: int = 4) -> list[Region]:
    """All stretches worth looking at: at least two statements could be packed."""
    addresses = Addresses(function, module)
    readers: dict[str, set[tuple[str, int]]] = {}
    for block in function.blocks:
        for s in block.statements:
            for used in s.uses:
                readers.setdefault(used, set()).add((block.label, s.index))
    found = []
    around = loops(function)
    home = {s.name: b.label for b in function.blocks for s in b.statements if s.name}
    branches = {b.label for b in function.blocks if b.statements[-1].text.startswith(("br ", "switch "))}
    blocks, before = {b.label: b for b in function.blocks}, only_before(function)
    for block in function.blocks:
        inside = around.innermost.get(block.label)
        for start, stretch in _stretches(block):
            if sum(s.packable for s in stretch) < smallest:
                continue
            last = start + len(stretch)
            outside = frozenset(
                s.name
                for s in stretch
                if s.name and any(label != block.label or not start <= i < last for label, i in readers.get(s.name, ()))
            )
            made = _region(function, block, start, stretch, addresses, outside)
            if inside is not None and around.preheader.get(block.label) in branches:
                made.preheader = around.preheader[block.label]
                read_here = {used for s in stretch for used in s.uses}
                made.steady = frozenset(v for v in read_here if home.get(v) not in inside)
                made.standing = standing(blocks[made.preheader], addresses)
                if inside == {block.label}:
                    _carry(made, readers)
            elif block.label in before and not any(s.op == "store" or not s.pure for s in block.statements[:start]):
                made.standing = standing(blocks[before[block.label]], addresses)
            found.append(made)
    return found


def _carry(region: Region, readers: dict[str, set[tuple[str, int]]]) -> None:
    """What goes round a loop of one block, and out of it, may do so in vectors."""
    block = region.block
    inside = range(region.start, region.start + len(region.statements))
    region.way_out = way_out(block)
    if not region.way_out:
        return
    region.carried = carried(block, region.preheader, region.function.types, readers, inside)
    round_it = {s.index for s in block.statements if s.name in region.carried}

    def behind(value: str) -> list[bool]:
        """Of each reader beyond the region and its phis, whether it lies behind the loop."""
        beyond = [at for at, i in readers.get(value, ()) if at != block.label or not (i in inside or i in round_it)]
        return [at != block.label for at in beyond]

    region.leaving = frozenset(v for v in (*region.outside, *region.carried) if (found := behind(v)) and all(found))
    region.required = frozenset(v for v in region.outside if not all(behind(v)))


def _stretches(block: BasicBlock) -> list[tuple[int, list[Statement]]]:
    found: list[tuple[int, list[Statement]]] = []
    current: list[Statement] = []
    start = 0
    for i, s in enumerate([*block.statements[:-1], None]):
        if s is not None and (s.pure or s.memory):
            if not current:
                start = i
            current.append(s)
            if len(current) < LARGEST and not (len(current) >= LARGEST * 3 // 4 and s.op == "store"):
                continue
        if current:
            found.append((start, current))
            current = []
    return found


def _region(
    function: Function,
    block: BasicBlock,
    start: int,
    stretch: list[Statement],
    addresses: Addresses,
    outside: frozenset[str],
) -> Region:
    position = {s.name: i for i, s in enumerate(stretch) if s.name}
    before, memory, where = [], list[int](), {}
    for i, s in enumerate(stretch):
        bits = 0
        for used in s.uses:
            if used in position:
                bits |= 1 << position[used]
        if s.memory:
            where[i] = addresses.address(s.pointer)
            for j in memory:
                if "store" in (s.op, stretch[j].op) and addresses.may_alias(stretch[j], s):
                    bits |= 1 << j
            memory.append(i)
        before.append(bits)
    return Region(function, block, start, stretch, where, before, outside, required=outside)
