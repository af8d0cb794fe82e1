"""Where items and productions are put: each vector once, and no more than can be handled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from heddle.lanes.cost import Table, vector
from heddle.lanes.dependence import Region
from heddle.lanes.ir import BITS, COMMUTATIVE
from heddle.lanes.packs.graph import Graph, Item, Need, Production

MOST_ITEMS = 1200  # then no new vectors are thought of; what there is still works
ALTERNATING = {"add", "sub", "fadd", "fsub", "fmul", "mul", "and", "or", "xor", "shl", "lshr", "ashr"}


class Workshop:
    """A graph while it is thought of: its items by what they are, and those not yet thought about."""

    def __init__(self, region: Region, table: Table) -> None:
        self.region, self.table = region, table
        self.statements = region.statements
        self.graph = Graph(region, table)
        self.index: dict[Item, int] = {}
        self.queue: list[int] = []
        self.alike: dict[tuple[str, str, bool, int], int] = {}  # how well values go side by side, once asked
        self.done = {(s.op, *s.lanes): s.name for s in self.statements if s.op in ALTERNATING and s.name}
        for (op, a, b), name in list(self.done.items()):
            if op in COMMUTATIVE:
                self.done.setdefault((op, b, a), name)
        self.loads: dict[tuple[object, str], dict[int, list[int]]] = {}
        for i, at in region.addresses.items():
            if self.statements[i].op == "load" and self.statements[i].type in BITS:
                self.loads.setdefault((at.line, self.statements[i].type), {}).setdefault(at.offset, []).append(i)

    def scalar(self, value: str) -> tuple[int, ...]:
        """The item of a scalar that the region makes or its loop carries; nothing for what is there already."""
        if value in self.region.carried:
            return (self.item(Item(self.region.function.types[value], (value,))),)
        i = self.region.position.get(value)
        return () if i is None else (self.item(Item(self.statements[i].type or "?", (value,))),)

    def vector(self, lanes: Sequence[str], kind: str) -> int | None:
        """The item of a vector, thought about if new; None if it is too wide or of no known type."""
        width = len(lanes)
        if kind not in BITS or width < 2 or width & (width - 1) or width > 32:
            return None
        if BITS[kind] * width > self.table.register or not self.table.knows(f"insert {vector(kind, width)} 0"):
            return None
        item = Item(kind, tuple(lanes))
        if item not in self.index:
            if len(self.graph.items) >= MOST_ITEMS:
                return None
            self.queue.append(self.item(item))
        return self.index[item]

    def item(self, item: Item) -> int:
        if item not in self.index:
            self.index[item] = len(self.graph.items)
            self.graph.items.append(item)
            self.graph.makers.append([])
        return self.index[item]

    def add(self, production: Production) -> int:
        n = len(self.graph.productions)
        self.graph.productions.append(production)
        if production.gives >= 0:
            self.graph.makers[production.gives].append(n)
        return n

    def needs(self, values: Iterable[str]) -> tuple[Need, ...]:
        return tuple(Need(s) for v in dict.fromkeys(values) if (s := self.scalar(v)))
