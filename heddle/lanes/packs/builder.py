"""Where items and productions are put: each vector once, and no more than can be handled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from heddle.lanes.cost import Table, is_constant, vector
from heddle.lanes.dependence import Region
from heddle.lanes.ir import BITS, COMMUTATIVE
from heddle.lanes.packs.alike import Likeness
from heddle.lanes.packs.graph import NATIVE, Graph, Item, Need, Production

T = TypeVar("T")
MOST_ITEMS = 1200  # then no new vectors are thought of; what there is still works
ALTERNATING = {"add", "sub", "fadd", "fsub", "fmul", "mul", "and", "or", "xor", "shl", "lshr", "ashr"}


class Builder:
    """A graph while it is thought of: its items by what they are, and those not yet thought about."""

    def __init__(self, region: Region, table: Table) -> None:
        self.region, self.table = region, table
        self.statements = region.statements
        self.graph = Graph(region, table)
        self.index: dict[tuple[str, tuple[str, ...]], int] = {}  # of items
        self.queue: deque[int] = deque()
        self.single: dict[str, Need | None] = {}  # of scalars; none of those without an item
        self.known: dict[tuple[str, int], bool] = {}  # whether there are vectors of a type and width
        self.whole: dict[tuple[str, str, int], int] = {}
        self.by_lane: dict[tuple[str, str, int], list[int]] = {}
        self.alike, self.splat = Likeness(region, splat=False), Likeness(region, splat=True)
        self.given: dict[int, set[str]] = {}  # lanes that go into the instruction that makes a vector as they come out
        self.apart: set[int] = set()  # vectors that could be put together lane by lane
        self.covered: set[tuple[str, tuple[int, ...]]] = set()  # loads whose windows have been thought of
        self.packable = [s.packable for s in self.statements]
        self.loaded = [s.op == "load" for s in self.statements]
        number: dict[tuple[str, ...], int] = {}  # of what must be the same in all lanes, by whom it is first equal to
        self.signature = [number.setdefault(s.signature, len(number)) for s in self.statements]
        self.users = {  # those of each value that might be packed, other than loads and stores
            v: [i for i in users if self.packable[i] and not self.statements[i].memory]
            for v, users in region.users.items()
        }
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
        need = self.single[value] if value in self.single else self._single(value)
        return () if need is None else need.items

    def _single(self, value: str) -> Need | None:
        i = self.region.position.get(value)
        need = None
        if i is not None or value in self.region.carried:
            kind = self.region.function.types[value] if i is None else self.statements[i].type
            need = Need((self.item(Item(kind or "?", (value,))),))
        self.single[value] = need
        return need

    def vector(self, lanes: Sequence[str], kind: str) -> int | None:
        """The item of a vector, thought about if new; None if it is too wide or of no known type."""
        key = kind, tuple(lanes)
        n = self.index.get(key)
        if n is None and self._known(kind, len(lanes)) and len(self.graph.items) < MOST_ITEMS:
            n = self.item(Item(*key))
            self.queue.append(n)
        return n

    def _known(self, kind: str, width: int) -> bool:
        if (kind, width) not in self.known:
            self.known[kind, width] = self._knows(kind, width)
        return self.known[kind, width]

    def _knows(self, kind: str, width: int) -> bool:
        if kind not in BITS or width < 2 or width & (width - 1) or width > 32:
            return False
        return BITS[kind] * width <= self.table.register and self.table.knows(f"insert {vector(kind, width)} 0")

    def windows(self, run: Sequence[T], kind: str, *, both_ends: bool = True) -> Iterator[tuple[T, ...]]:
        """Parts of a run that fill a vector, of every width: from its beginning, and from its end."""
        width = 2
        while width <= len(run) and width * BITS[kind] <= self.table.register:
            starts = {*range(0, len(run) - width + 1, width)}
            starts |= {*range(len(run) - width, -1, -width)} if both_ends else set()
            yield from (tuple(run[start : start + width]) for start in sorted(starts))
            width *= 2

    def price(self, what: str, kind: str, width: int) -> int:
        """What something costs that is done with a whole vector."""
        key = what, kind, width
        if key not in self.whole:
            self.whole[key] = self.table.get(f"{what} {vector(kind, width)}")
        return self.whole[key]

    def each(self, what: str, kind: str, width: int) -> list[int]:
        """What it costs to insert or extract each lane of a vector."""
        key = what, kind, width
        if key not in self.by_lane:
            t = vector(kind, width)
            self.by_lane[key] = [self.table.get(f"{what} {t} {k}") for k in range(width)]
        return self.by_lane[key]

    def held(self, n: int) -> tuple[str, ...]:
        """The lanes to be had from a vector: not what goes into it as it comes out, which it would wait for."""
        lanes, given = self.graph.items[n].lanes, self.given.get(n, ())
        return tuple("%!given" if v in given else v for v in lanes) if given else lanes

    def build(self, kind: str, lanes: Sequence[str]) -> int:
        """Lane by lane into a vector, where constants are from the start; or loaded as one."""
        if self.region.standing.together(lanes) is not None:
            return self.table.get(f"load {vector(kind, len(lanes))}")
        moving = [k for k, v in enumerate(lanes) if not is_constant(v)]
        insert = self.each("insert", kind, len(lanes))
        cost = sum([insert[k] for k in moving])
        return cost + self.each("first", kind, len(lanes))[0] - insert[0] if len(moving) == len(lanes) else cost

    def item(self, item: Item) -> int:
        if item not in self.index:
            self.index[item] = len(self.graph.items)
            self.graph.items.append(item)
            self.graph.makers.append([])
            self.graph.natives.append([])
        return self.index[item]

    def add(self, production: Production) -> int:
        graph, gives = self.graph, production.gives
        n = len(graph.productions)
        graph.productions.append(production)
        if gives >= 0:
            graph.makers[gives].append(n)
            if production.kind in NATIVE:
                graph.natives[gives].append(n)
        return n

    def needs(self, values: Iterable[str]) -> tuple[Need, ...]:
        known = self.single
        found = [known[v] if v in known else self._single(v) for v in dict.fromkeys(values)]
        return tuple([need for need in found if need is not None])
