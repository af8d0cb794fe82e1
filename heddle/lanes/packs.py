"""All the ways to make what a region must make: scalars, vectors, and the productions that give them.

An item is a scalar value or an ordered vector of values. A production makes an item (or does a store), has a cost, and
needs other items. Choosing productions so that every store is done and every value that is read later exists, at the
least cost, is superword packing: statement by statement as published, but with ordered packs of every width at once,
loads that are duplicated, overlap or are shuffled, alternating opcodes, broadcasts, and vectors made of halves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from heddle.lanes.cost import Table, definitions, is_constant, statement_cost, vector
from heddle.lanes.dependence import Region
from heddle.lanes.ir import BITS, COMMUTATIVE, COMMUTATIVE_INTRINSICS, INTRINSICS, MEMORY_BYTES, Statement

MOST_ITEMS = 1200  # then no new vectors are thought of; what there is still works
FORWARD = 3  # steps from loads towards their users, where no store leads to them
ALTERNATING = {"add", "sub", "fadd", "fsub", "fmul", "mul", "and", "or", "xor", "shl", "lshr", "ashr"}
IDENTITIES = {"add": "0", "sub": "0", "mul": "1", "and": "-1", "or": "0", "xor": "0", "shl": "0", "lshr": "0",
              "ashr": "0"}  # fmt: skip
REDUCTIONS = {"add": "add", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "llvm.smax": "smax",
              "llvm.smin": "smin", "llvm.umax": "umax", "llvm.umin": "umin"}  # fmt: skip


@dataclass(frozen=True)
class Item:
    """A scalar (one lane) or an ordered vector. Lanes are names or literals."""

    type: str
    lanes: tuple[str, ...]


@dataclass(frozen=True)
class Need:
    """One of `items` must be there; made by an instruction or load, not put together, where it is to be taken apart."""

    items: tuple[int, ...]
    native: bool = False


@dataclass(frozen=True)
class Production:
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
        return self.kind in ("pack", "load", "alternate")


@dataclass
class Graph:
    """Items, productions, and what has to come out."""

    region: Region
    table: Table
    items: list[Item] = field(default_factory=list)
    productions: list[Production] = field(default_factory=list)
    makers: list[list[int]] = field(default_factory=list)  # productions of each item
    stores: dict[int, list[int]] = field(default_factory=dict)  # productions that do each store
    required: list[int] = field(default_factory=list)  # scalars that are read beyond the region

    @cached_property
    def live(self) -> dict[int, list[int]]:
        """Statements that must be done in one way or another, with the productions that do them.

        What a store writes and what is read later is done, and so is what goes into the lanes of that. Addresses are
        not among them: those of packed loads disappear. The solver need not be told; its bound is far better for it.
        """
        region = self.region
        stack = [v for i in self.stores for v in region.statements[i].lanes]
        stack += [self.items[i].lanes[0] for i in self.required]
        found: dict[int, list[int]] = {}
        while stack:
            i = region.position.get(stack.pop())
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
        return [p for item in need.items for p in self.makers[item] if not need.native or self.productions[p].native]


class Builder:
    """Thinks of vectors from the stores upwards and from the loads downwards."""

    def __init__(self, region: Region, table: Table) -> None:
        self.r, self.t = region, table
        self.s = region.statements
        self.graph = Graph(region, table)
        self.index: dict[Item, int] = {}
        self.queue: list[int] = []
        self.done = {(s.op, *s.lanes): s.name for s in self.s if s.op in ALTERNATING and s.name}
        for (op, a, b), name in list(self.done.items()):
            if op in COMMUTATIVE:
                self.done.setdefault((op, b, a), name)
        self.loads: dict[tuple[object, str], dict[int, list[int]]] = {}
        for i, at in region.addresses.items():
            if self.s[i].op == "load" and self.s[i].type in BITS:
                self.loads.setdefault((at.line, self.s[i].type), {}).setdefault(at.offset, []).append(i)

    def build(self) -> Graph:
        self._scalars()
        for window in self._store_windows():
            self._store(window)
        self._drain()
        for window in self._load_windows():
            self.vector([self.s[i].name or "" for i in window], self.s[window[0]].type)
        self._drain()
        self._forward()
        self._reductions()
        self._drain()
        self._shuffles()
        self._extracts()
        return self.graph

    # Items and productions

    def scalar(self, value: str) -> tuple[int, ...]:
        """The item of a scalar that the region makes; nothing for what is there already."""
        i = self.r.position.get(value)
        return () if i is None else (self._item(Item(self.s[i].type or "?", (value,))),)

    def vector(self, lanes: Sequence[str], kind: str) -> int | None:
        """The item of a vector, thought about if new; None if it is too wide or of no known type."""
        width = len(lanes)
        if kind not in BITS or width < 2 or width & (width - 1) or width > 32:
            return None
        if BITS[kind] * width > self.t.register or not self.t.knows(f"insert {vector(kind, width)} 0"):
            return None
        item = Item(kind, tuple(lanes))
        if item not in self.index:
            if len(self.graph.items) >= MOST_ITEMS:
                return None
            self.queue.append(self._item(item))
        return self.index[item]

    def _item(self, item: Item) -> int:
        if item not in self.index:
            self.index[item] = len(self.graph.items)
            self.graph.items.append(item)
            self.graph.makers.append([])
        return self.index[item]

    def _add(self, production: Production) -> int:
        n = len(self.graph.productions)
        self.graph.productions.append(production)
        if production.gives >= 0:
            self.graph.makers[production.gives].append(n)
        return n

    def _needs(self, values: Iterable[str]) -> tuple[Need, ...]:
        return tuple(Need(s) for v in dict.fromkeys(values) if (s := self.scalar(v)))

    # Scalars

    def _scalars(self) -> None:
        defs = definitions(self.r.function)
        for i, s in enumerate(self.s):
            cost = statement_cost(self.t, s, defs)
            if s.op == "store":
                n = self._add(Production("scalar", -1, cost, self._needs(s.uses), (i,)))
                self.graph.stores[i] = [n]
            elif s.name:
                (item,) = self.scalar(s.name)
                self._add(Production("scalar", item, cost, self._needs(s.uses), (i,)))
                if s.name in self.r.outside:
                    self.graph.required.append(item)

    def _extracts(self) -> None:
        """A scalar out of any vector that an instruction or a load makes; grouped by what the lane costs."""
        found: dict[str, dict[int, list[int]]] = {}
        for n, item in enumerate(self.graph.items):
            if len(item.lanes) > 1 and any(self.graph.productions[p].native for p in self.graph.makers[n]):
                for k, lane in enumerate(item.lanes):
                    if lane in self.r.position:
                        cost = self.t.get(f"extract {vector(item.type, len(item.lanes))} {k}")
                        at = found.setdefault(lane, {}).setdefault(cost, [])
                        if n not in at:
                            at.append(n)
        for name, by_cost in found.items():
            for cost, where in by_cost.items():
                self._add(Production("extract", self.scalar(name)[0], cost, (Need(tuple(where), native=True),)))

    # Windows of memory

    def _runs(self, groups: dict[object, dict[int, int]], size: int) -> list[list[int]]:
        runs = []
        for offsets in groups.values():
            current: list[int] = []
            last = None
            for offset in sorted(offsets):
                if last is not None and offset != last + size:
                    runs.append(current)
                    current = []
                current.append(offsets[offset])
                last = offset
            runs.append(current)
        return [run for run in runs if len(run) > 1]

    def _windows(self, op: str) -> list[list[int]]:
        by_kind: dict[str, dict[object, dict[int, int]]] = {}
        for i, a in self.r.addresses.items():
            s = self.s[i]
            if s.op == op and s.type in MEMORY_BYTES and s.type in BITS:
                layer, groups = 0, by_kind.setdefault(s.type, {})
                while a.offset in groups.setdefault((a.line, layer), {}):
                    layer += 1  # the same place again: a later value
                groups[a.line, layer][a.offset] = i
        found: dict[tuple[int, ...], None] = {}
        for kind, groups in by_kind.items():
            for run in self._runs(groups, MEMORY_BYTES[kind]):
                width = 2
                while width <= len(run) and width * BITS[kind] <= self.t.register:
                    starts = {*range(0, len(run) - width + 1, width), *range(len(run) - width, -1, -width)}
                    for start in sorted(starts):
                        window = run[start : start + width]
                        if self.r.independent(window):
                            found[tuple(window)] = None
                    width *= 2
        return [list(w) for w in found]

    def _store_windows(self) -> list[list[int]]:
        return self._windows("store")

    def _load_windows(self) -> list[list[int]]:
        return self._windows("load")

    def _store(self, window: list[int]) -> None:
        first = self.s[window[0]]
        value = self.vector([self.s[i].lanes[0] for i in window], first.type)
        if value is None:
            return
        cost = self.t.get(f"store {vector(first.type, len(window))}")
        needs = (Need((value,)), *self._needs([first.pointer]))
        n = self._add(Production("store", -1, cost, needs, tuple(window), operands=(value,)))
        for i in window:
            self.graph.stores[i].append(n)

    # Vectors

    def _drain(self) -> None:
        while self.queue:
            self._think(self.queue.pop(0))

    def _think(self, n: int) -> None:
        item = self.graph.items[n]
        lanes, width, kind = item.lanes, len(item.lanes), item.type
        if all(is_constant(v) for v in lanes):
            self._add(Production("constant", n, 0))
            return
        t = vector(kind, width)
        if len(set(lanes)) == 1:
            cost = self.t.get(f"first {t} 0", 0) + self.t.get(f"broadcast {t}")
            cost = 0 if lanes[0] in self.r.steady else cost
            self._add(Production("broadcast", n, cost, self._needs(lanes)))
            return
        self._put_together(n, item)
        members = [self.r.position.get(v) for v in lanes]
        if all(m is not None for m in members):
            known = [m for m in members if m is not None]
            if len(set(known)) == width and self.r.independent(known):
                self._pack(n, item, known)
        self._from_distinct(item)

    def _put_together(self, n: int, item: Item) -> None:
        lanes, width, kind = item.lanes, len(item.lanes), item.type
        t = vector(kind, width)
        moving = [k for k, v in enumerate(lanes) if not is_constant(v)]
        fresh = len(moving) == width
        cost = sum(self.t.get(f"{'first' if fresh and k == moving[0] else 'insert'} {t} {k}") for k in moving)
        cost = 0 if self.r.steady.issuperset(lanes[k] for k in moving) else cost
        self._add(Production("build", n, cost, self._needs(lanes)))
        if width >= 4:
            low, high = self.vector(lanes[: width // 2], kind), self.vector(lanes[width // 2 :], kind)
            if low is not None and high is not None:
                half = vector(kind, width // 2)
                cost = 0 if low == high else self.t.get(f"concat {half}")
                if low == high:
                    mask = tuple(k % (width // 2) for k in range(width))
                    cost = self.t.shuffle(kind, width, mask)
                self._add(
                    Production(
                        "concat", n, cost, tuple(Need((i,)) for i in dict.fromkeys((low, high))), operands=(low, high)
                    )
                )

    def _from_distinct(self, item: Item) -> None:
        """Lanes that repeat, or loads in another order: think of the vector without repetition, in memory's order."""
        inside = [v for v in dict.fromkeys(item.lanes) if v in self.r.position]
        loads = [self.r.position[v] for v in inside if self.s[self.r.position[v]].op == "load"]
        if len(inside) == len({*item.lanes}) and 2 <= len(inside) < len(item.lanes):
            self.vector(inside, item.type)
        if len(loads) < 2 or len(loads) != len(inside):
            return
        by_line: dict[object, list[int]] = {}
        for i in loads:
            by_line.setdefault(self.r.addresses[i].line, []).append(i)
        for members in by_line.values():
            self._cover(members, item.type)

    def _cover(self, members: list[int], kind: str) -> None:
        """Windows of neighbouring loads that hold all of these, where every element between is loaded as well."""
        size = MEMORY_BYTES.get(kind)
        if size is None:
            return
        at = {self.r.addresses[i].offset: i for i in members}
        offsets = self.loads.get((self.r.addresses[members[0]].line, kind), {})
        low, high = min(at), max(at)
        width = 2
        while width * size < high - low + size:
            width *= 2
        if width * BITS[kind] <= self.t.register and high - low + size == len(at) * size:
            pass  # no gaps: windows as they are
        elif width * BITS[kind] <= self.t.register and not all(low + k * size in offsets for k in range(width)):
            self._with_gaps([at.get(low + k * size) for k in range(width)], kind)
        for start in (low, high - (width - 1) * size):
            window = [start + k * size for k in range(width)]
            if width * BITS[kind] <= self.t.register and all(o in offsets for o in window):
                chosen = [at.get(o, offsets[o][0]) for o in window]
                if self.r.independent(chosen):
                    self.vector([self.s[i].name or "" for i in chosen], kind)
                    return

    def _with_gaps(self, members: list[int | None], kind: str) -> None:
        """A load that touches only what the region loads: the lanes between are masked."""
        t = vector(kind, len(members))
        known = [m for m in members if m is not None]
        if members[0] is None or not self.t.knows(f"masked {t}") or not self.r.independent(known):
            return
        names = tuple(f"%!gap {k}" if m is None else self.s[m].name or "" for k, m in enumerate(members))
        item = Item(kind, names)
        if item in self.index or len(self.graph.items) >= MOST_ITEMS:
            return
        mask = tuple(int(m is not None) for m in members)
        needs = self._needs([self.s[members[0]].pointer])
        cost = self.t.get(f"masked {t}")
        self._add(Production("load", self._item(item), cost, needs, tuple(known), masks=(mask,)))

    def _pack(self, n: int, item: Item, members: list[int]) -> None:
        statements = [self.s[m] for m in members]
        first, width = statements[0], len(members)
        if not all(s.packable for s in statements):
            return
        if all(s.op == "load" for s in statements):
            self._load(n, item, members)
            return
        signatures = {signature(s) for s in statements}
        if len(signatures) == 1:
            for columns in self._columns(statements):
                cost = self.t.operation(first, width, columns[-1], self._loaded(columns[0]))
                if cost is not None:
                    self._operation("pack", n, members, columns, first, cost)
        elif len(signatures) == 2 and len({s.type for s in statements}) == 1:
            self._alternating(n, item, statements)
        if len(signatures) > 1:
            self._with_identities(n, item, statements)

    def _with_identities(self, n: int, item: Item, statements: list[Statement]) -> None:
        """Integers of which most are one operation: the others are that operation with what leaves them as they are."""
        ops = [s.op for s in statements]
        op = max(dict.fromkeys(ops), key=ops.count)
        neutral = IDENTITIES.get(op)
        model = next(s for s in statements if s.op == op)
        if neutral is None or 2 * ops.count(op) < len(ops) or item.type == "i1" or item.type not in BITS:
            return
        left = [s.lanes[0] if s.op == op else s.name or "" for s in statements]
        right = [s.lanes[1] if s.op == op else neutral for s in statements]
        cost = self.t.operation(model, len(ops), right)
        members = [self.r.position[s.name or ""] for s in statements if s.op == op]
        if cost is not None and self._loose(members, [s.name or "" for s in statements if s.op != op]):
            self._operation("pack", n, members, [left, right], model, cost)

    def _loose(self, members: list[int], values: list[str]) -> bool:
        """Whether values that go in are not made of what comes out."""
        bits = sum(1 << m for m in members)
        return all(not self.r.closure[self.r.position[v]] & bits for v in values)

    def _alternating(self, n: int, item: Item, statements: list[Statement]) -> None:
        """Two opcodes in turn: both in every lane, then the right one of each. Neither is lost: others may want it."""
        ops = list(dict.fromkeys(s.op for s in statements))
        if len(ops) != 2 or not ALTERNATING.issuperset(ops):
            return
        width = len(statements)
        mask = tuple(k if s.op == ops[0] else k + width for k, s in enumerate(statements))
        for columns in self._columns(statements):
            halves = [self._everywhere(op, columns, statements) for op in ops]
            joint = list(dict.fromkeys([*columns[0], *columns[1]]))
            if len(joint) == width and len(joint) < len(columns[0]) + len(columns[1]):
                self.vector(joint, item.type)  # a butterfly: both sides are shuffles of one vector
            if halves[0] is not None and halves[1] is not None:
                needs = tuple(Need((h,), native=True) for h in halves if h is not None)
                cost = self.t.shuffle(item.type, width, mask)
                made = Production("alternate", n, cost, needs, masks=(mask,), operands=(halves[0], halves[1]))
                if not any(self.graph.productions[p].operands == made.operands for p in self.graph.makers[n]):
                    self._add(made)

    def _everywhere(self, op: str, columns: list[list[str]], statements: list[Statement]) -> int | None:
        """One of two opcodes in all lanes. Where the region does the same somewhere, that lane is its value."""
        lanes, members = [], []
        model = next(s for s in statements if s.op == op)
        for k, (a, b) in enumerate(zip(*columns, strict=True)):
            name = statements[k].name if statements[k].op == op else self.done.get((op, a, b))
            if name is None:
                lanes.append(f"%!{op} {' '.join(sorted((a, b)) if op in COMMUTATIVE else (a, b))}")
            else:
                lanes.append(name)
                members.append(self.r.position[name])
        members = list(dict.fromkeys(members))
        if not self.r.independent(members):
            return None
        item = Item(model.type, tuple(lanes))
        cost = self.t.operation(model, len(lanes), columns[-1])
        if cost is None:
            return None
        n = self._item(item)
        self._operation("pack", n, members, columns, model, cost)
        return n if self.graph.makers[n] else None

    def _operation(
        self, kind: str, n: int, members: list[int], columns: list[list[str]], first: Statement, cost: int
    ) -> None:
        operands = []
        for k, column in enumerate(columns):
            element = first.operand_type
            if first.op == "select":
                element = "i1" if k == 0 else first.type
            operand = self.vector(column, element)
            if operand is None:
                return
            operands.append(operand)
        needs = tuple(Need((o,)) for o in dict.fromkeys(operands))
        made = Production(kind, n, cost, needs, tuple(members), operands=tuple(operands))
        if not any(
            self.graph.productions[p].operands == made.operands
            for p in self.graph.makers[n]
            if self.graph.productions[p].kind == kind
        ):
            self._add(made)

    def _loaded(self, column: list[str]) -> bool:
        return all(v in self.r.position and self.s[self.r.position[v]].op == "load" for v in column)

    def _load(self, n: int, item: Item, members: list[int]) -> None:
        size = MEMORY_BYTES.get(item.type)
        if size is None or any(self.s[m].op != "load" for m in members):
            return
        first = self.r.addresses[members[0]]
        for k, m in enumerate(members):
            a = self.r.addresses[m]
            if a.line != first.line or a.offset != first.offset + k * size:
                return
        cost = self.t.get(f"load {vector(item.type, len(members))}")
        self._add(Production("load", n, cost, self._needs([self.s[members[0]].pointer]), tuple(members)))

    def _columns(self, statements: list[Statement]) -> list[list[list[str]]]:
        """Operands by position; for operations that commute, several ways to lay their operands side by side."""
        plain = [list(column) for column in zip(*(s.lanes for s in statements), strict=True)]
        ways = [plain]
        if any(commutes(s) for s in statements):
            for splat in (False, True):
                for swapped in (False, True):
                    left: list[str] = []
                    right: list[str] = []
                    for s in statements:
                        a, b = s.lanes
                        if not left:
                            a, b = (b, a) if swapped and commutes(s) else (a, b)
                        elif commutes(s):
                            straight = self.likeness(left[-1], a, splat) + self.likeness(right[-1], b, splat)
                            crossed = self.likeness(left[-1], b, splat) + self.likeness(right[-1], a, splat)
                            a, b = (b, a) if crossed > straight else (a, b)
                        left.append(a)
                        right.append(b)
                    ways.append([left, right])
        unique: dict[tuple[tuple[str, ...], ...], list[list[str]]] = {}
        for way in ways:
            key = tuple(tuple(c) for c in way)
            if all(commutes(s) for s in statements):
                key = tuple(sorted(key))
            unique.setdefault(key, way)
        return list(unique.values())

    def likeness(self, a: str, b: str, splat: bool, depth: int = 2) -> int:
        """How well two values go into neighbouring lanes."""
        if is_constant(a) or is_constant(b):
            return 3 if is_constant(a) and is_constant(b) else 0
        if a == b:
            return 9 if splat else 2
        i, j = self.r.position.get(a), self.r.position.get(b)
        if i is None or j is None:
            return 1 if i is None and j is None else 0
        x, y = self.s[i], self.s[j]
        if x.op == "load" and y.op == "load" and x.type == y.type:
            p, q = self.r.addresses[i], self.r.addresses[j]
            if p.line != q.line:
                return 1
            distance = (q.offset - p.offset) // MEMORY_BYTES.get(x.type, 1)
            return 8 if distance == 1 else 5 if distance == -1 else 4 if abs(distance) < 8 else 2
        if x.op != y.op or x.type != y.type or not x.lanes:
            return 0
        if depth == 0 or len(x.lanes) != len(y.lanes):
            return 2
        straight = sum(self.likeness(u, v, splat, depth - 1) for u, v in zip(x.lanes, y.lanes, strict=True))
        if commutes(x):
            straight = max(
                straight,
                sum(self.likeness(u, v, splat, depth - 1) for u, v in zip(x.lanes, y.lanes[::-1], strict=True)),
            )
        return 2 + straight // 2

    def _forward(self) -> None:
        """From windows of loads to what is done with them alike, where no store asked for it."""
        level = [i for i, it in enumerate(self.graph.items) if len(it.lanes) > 1 and self._loaded(list(it.lanes))]
        for _ in range(FORWARD):
            following = []
            for n in level:
                lanes = self.graph.items[n].lanes
                for group in self._alike_users(lanes):
                    before = len(self.graph.items)
                    made = self.vector([self.s[i].name or "" for i in group], self.s[group[0]].type.split(" ")[0])
                    if made is not None and made >= before:
                        following.append(made)
            self._drain()
            level = following

    def _alike_users(self, lanes: tuple[str, ...]) -> list[list[int]]:
        users = [
            [i for i in self.r.users.get(v, ()) if self.s[i].packable and self.s[i].op not in ("store", "load")]
            for v in lanes
        ]
        found = []
        for u in users[0][:3]:
            want = signature(self.s[u])
            group = [u]
            for others in users[1:]:
                match = next((o for o in others if o not in group and signature(self.s[o]) == want), None)
                if match is None:
                    break
                group.append(match)
            if len(group) == len(lanes) and self.r.independent(group):
                found.append(group)
        return found

    def _reductions(self) -> None:
        """A chain or tree of one associative operation on integers, as one reduction of its leaves."""
        for root, s in enumerate(self.s):
            if s.op not in REDUCTIONS or s.type not in BITS or s.type in ("float", "double", "i1") or s.name is None:
                continue
            if any(self.s[u].op == s.op and self.s[u].type == s.type for u in self.r.users.get(s.name, ())):
                continue  # not the last of its tree
            leaves, inner = self._leaves(root)
            width = 1
            while width * 2 <= len(leaves) and BITS[s.type] * width * 2 <= self.t.register:
                width *= 2
            if width < 4:
                continue
            leaves = self._in_order(leaves)
            packed, rest = leaves[:width], leaves[width:]
            value = self.vector(packed, s.type)
            key = f"reduce.{REDUCTIONS[s.op]} {vector(s.type, width)}"
            if value is None or not self.t.knows(key):
                continue
            cost = self.t.get(key) + len(rest) * (self.t.operation(s, 1) or 1)
            item = self.scalar(s.name)[0]
            needs = (Need((value,)), *self._needs(rest))
            self._add(Production("reduce", item, cost, needs, (root, *inner), operands=(value,), scalars=tuple(rest)))

    def _leaves(self, root: int) -> tuple[list[str], list[int]]:
        leaves: list[str] = []
        inner: list[int] = []
        stack = list(self.s[root].lanes[::-1])
        while stack:
            v = stack.pop()
            i = self.r.position.get(v)
            s = self.s[i] if i is not None else None
            alone = s is not None and v not in self.r.outside and len(self.r.users.get(v, ())) == 1
            if s is not None and i is not None and alone and s.op == self.s[root].op and s.type == self.s[root].type:
                inner.append(i)
                stack.extend(s.lanes[::-1])
            else:
                leaves.append(v)
        return leaves, inner

    def _in_order(self, leaves: list[str]) -> list[str]:
        """Leaves with neighbours in memory first: any order gives the same integer."""

        def first_load(v: str, depth: int = 4) -> tuple[str, int]:
            i = self.r.position.get(v)
            if i is None or depth == 0:
                return ("~", 0)
            if self.s[i].op == "load":
                a = self.r.addresses[i]
                return (str(a.line), a.offset)
            return min((first_load(u, depth - 1) for u in self.s[i].lanes), default=("~", 0))

        def shape(v: str) -> str:
            i = self.r.position.get(v)
            return "~" if i is None else self.s[i].op

        return sorted(leaves, key=lambda v: (shape(v), first_load(v)))

    # Shuffles between vectors that exist

    def _shuffles(self) -> None:
        graph = self.graph
        native = [n for n in range(len(graph.items)) if any(graph.productions[p].native for p in graph.makers[n])]
        holders: dict[tuple[str, str], list[int]] = {}
        for n in native:
            for lane in dict.fromkeys(graph.items[n].lanes):
                holders.setdefault((graph.items[n].type, lane), []).append(n)
        for n in range(len(graph.items)):
            item = graph.items[n]
            if len(item.lanes) > 1 and not any(is_constant(v) or v.startswith("%!") for v in item.lanes):
                self._shuffles_to(n, item, holders)

    def _shuffles_to(self, n: int, item: Item, holders: dict[tuple[str, str], list[int]]) -> None:
        graph, wanted, width = self.graph, dict.fromkeys(item.lanes), len(item.lanes)
        near: dict[int, int] = {}
        for lane in wanted:
            for u in holders.get((item.type, lane), ()):
                if u != n:
                    near[u] = near.get(u, 0) + 1
        whole: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for u, count in near.items():
            if count == len(wanted):
                source = graph.items[u].lanes
                mask = tuple(source.index(v) for v in item.lanes)
                cost = self.t.shuffle(item.type, max(len(source), width), mask)
                whole.setdefault(cost, []).append((u, mask))
        for cost, ways in whole.items():
            needs = (Need(tuple(u for u, _ in ways), native=True),)
            self._add(Production("shuffle", n, cost, needs, masks=tuple(m for _, m in ways)))
        same = [u for u, count in near.items() if len(graph.items[u].lanes) == width and count < len(wanted)]
        same.sort(key=lambda u: -near[u])
        pairs = 0
        for i, a in enumerate(same[:8]):
            for b in same[i + 1 : 12]:
                one, two = graph.items[a].lanes, graph.items[b].lanes
                if pairs < 4 and wanted.keys() <= {*one, *two}:
                    mask = tuple(
                        k
                        if one[k] == v
                        else k + width
                        if two[k] == v
                        else one.index(v)
                        if v in one
                        else width + two.index(v)
                        for k, v in enumerate(item.lanes)
                    )
                    both = (Need((a,), native=True), Need((b,), native=True))
                    cost = self.t.shuffle(item.type, width, mask)
                    self._add(Production("shuffle2", n, cost, both, masks=(mask,), operands=(a, b)))
                    pairs += 1
        self._patches(n, item, same)

    def _patches(self, n: int, item: Item, same: list[int]) -> None:
        """Most lanes lie in place in another vector: insert the others into it."""
        t, width = vector(item.type, len(item.lanes)), len(item.lanes)
        found = []
        for u in same[:12]:
            other = [k for k, v in enumerate(self.graph.items[u].lanes) if v != item.lanes[k]]
            if len(other) <= width // 2 and width > 2:
                found.append((sum(self.t.get(f"insert {t} {k}") for k in other), u, tuple(other)))
        for cost, u, missing in sorted(found)[:2]:
            needs = (Need((u,), native=True), *self._needs(item.lanes[k] for k in missing))
            self._add(Production("patch", n, cost, needs, masks=(missing,), operands=(u,)))


def signature(s: Statement) -> tuple[str, ...]:
    return s.op, s.type, s.operand_type, s.predicate, s.rest


def commutes(s: Statement) -> bool:
    return s.op in COMMUTATIVE or s.op in COMMUTATIVE_INTRINSICS


def build(region: Region, table: Table) -> Graph:
    """Everything that could be made in a region, and what must be."""
    return Builder(region, table).build()


__all__ = ["INTRINSICS", "Graph", "Item", "Need", "Production", "build", "signature"]
