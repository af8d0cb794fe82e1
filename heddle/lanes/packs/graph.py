"""All the ways to make what a region must make: scalars, vectors, and the productions that give them.

An item is a scalar value or an ordered vector of values. A production makes an item (or does a store), has a cost, and
needs other items. Choosing productions so that every store is done and every value that is read later exists, at the
least cost, is superword packing: statement by statement as published, but with ordered packs of every width at once,
loads that are duplicated, overlap or are shuffled, alternating opcodes, broadcasts, and vectors made of halves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from heddle.lanes.cost import Table
from heddle.lanes.dependence import Region

NATIVE = frozenset(("pack", "load", "alternate", "phi"))  # productions that are an instruction or a load
LATE = frozenset(("carry", "phi"))  # … and those whose needs are there only in the next turn of the loop

# Named tuples, not dataclasses: there are tens of thousands, and a frozen dataclass takes three times as long to make.


class Item(NamedTuple):
    """A scalar (one lane) or an ordered vector. Lanes are names or literals."""

    type: str
    lanes: tuple[str, ...]


class Need(NamedTuple):
    """One of `items` must be there; made by an instruction or load, not put together, where it is to be taken apart."""

    items: tuple[int, ...]
    native: bool = False


class Production(NamedTuple):
    kind: str
    gives: int  # item, or -1
    cost: int
    needs: tuple[Need, ...] = ()
    members: tuple[int, ...] = ()  # statements of the region that it does
    masks: tuple[tuple[int, ...], ...] = ()  # lanes taken from the needed vectors
    operands: tuple[int, ...] = ()  # items, in the order of the operands
    scalars: tuple[str, ...] = ()  # what a reduction adds outside its vector

    @property
    def native(self) -> bool:
        return self.kind in NATIVE

    @property
    def late(self) -> bool:
        """Whether what it needs is there only at the end of the block: in the next turn of the loop."""
        return self.kind in LATE


@dataclass
class Graph:
    """Items, productions, and what has to come out."""

    region: Region
    table: Table
    items: list[Item] = field(default_factory=list)
    productions: list[Production] = field(default_factory=list)
    makers: list[list[int]] = field(default_factory=list)  # productions of each item
    natives: list[list[int]] = field(default_factory=list)  # those of them that are an instruction or a load
    stores: dict[int, list[int]] = field(default_factory=dict)  # productions that do each store
    required: list[int] = field(default_factory=list)  # scalars that are read beyond the region, and …
    leaving: dict[int, str] = field(default_factory=dict)  # … items that stand for values read only behind the loop
    flat: object = None  # the same as arrays, once asked for

    @cached_property
    def live(self) -> dict[int, list[int]]:
        """Statements that must be done in one way or another, with the productions that do them.

        What a store writes and what is read later is done, and so is what goes into the lanes of that. Addresses are
        not among them: those of packed loads disappear. The solver need not be told; its bound is far better for it.
        """
        region = self.region
        stack = [v for i in self.stores for v in region.statements[i].lanes]
        stack += [self.leaving.get(i, self.items[i].lanes[0]) for i in self.required]
        found: dict[int, list[int]] = {}
        round_it: set[str] = set()
        while stack:
            value = stack.pop()
            if value in region.carried and value not in round_it:
                round_it.add(value)
                stack.append(region.carried[value].following)
            i = region.position.get(value)
            if i is None or i in found:
                continue
            found[i] = []
            s = region.statements[i]
            stack += s.lanes if s.packable else () if s.op == "load" else s.uses
        for n, p in enumerate(self.productions):
            for m in p.members:
                if m in found:
                    found[m].append(n)
        return found

    def makes(self, need: Need) -> list[int]:
        """The productions any of which meets a need."""
        makers = self.natives if need.native else self.makers
        if len(need.items) == 1:
            return makers[need.items[0]]
        return [p for item in need.items for p in makers[item]]
