"""Vector IR for a packing: the region's statements again, in their new order."""

from __future__ import annotations

import re
from collections.abc import Sequence

from heddle.lanes.choose.schedule import Packing
from heddle.lanes.cost import is_constant, parts, vector
from heddle.lanes.emit.emitted import Again, Emitted, Phi
from heddle.lanes.ir import CASTS, COMPARES, INTRINSICS, Statement, split_commas
from heddle.lanes.packs import Graph, Production
from heddle.lanes.packs.reductions import REDUCTIONS

FLOATS = ("float", "double")


class Emitter:
    """Writes one region. Scalars keep their names, so that what reads them beyond the region need not change."""

    def __init__(self, graph: Graph, packing: Packing, prefix: str) -> None:
        self.g, self.packing, self.prefix = graph, packing, prefix
        self.s = graph.region.statements
        self.out = Emitted([], label=f"{prefix}out")
        self.lines = self.out.lines
        self.values: dict[int, str] = {}  # production → the vector it made
        self.count = 0

    def emit(self) -> Emitted:
        for n in self.packing.order:
            p = self.g.productions[n]
            self.lines = self.out.early if self._steady(p) else self.out.lines
            getattr(self, f"_{p.kind.replace(' ', '_')}")(n, p)
        self._go_round()
        return self.out

    def _go_round(self) -> None:
        """Phis, once everything has a name: those of vectors, and which scalar ones are needed no more."""
        done = [self.g.productions[n] for n in self.packing.order]
        carried = self.g.region.carried
        kept = {self.g.items[p.gives].lanes[0] for p in done if p.kind == "carry"}
        self.out.dropped = frozenset(carried.keys() - kept)
        self.lines = self.out.first
        for n in self.packing.order:
            p = self.g.productions[n]
            if p.kind == "phi":
                it = self.g.items[p.gives]
                first = self._together(it.type, [carried[v].first for v in it.lanes])
                following = self.values[self.packing.sources[n, 0]]
                self.out.phis.append(Phi(self.values[n], self._type(p.gives), it.lanes, first, following))
        for p in done:  # a scalar that is made in the loop as well is not taken out of a vector
            if p.gives >= 0 and len(self.g.items[p.gives].lanes) == 1:
                self.out.behind.pop(self.g.items[p.gives].lanes[0], None)

    def _carry(self, n: int, p: Production) -> None:
        """Stays where it is."""

    _leave = _carry

    def _phi(self, n: int, _p: Production) -> None:
        self.values[n] = f"%{self.prefix}{self.count}"
        self.count += 1

    def _extract_behind(self, n: int, p: Production) -> None:
        name = self.g.leaving[p.gives]
        self.out.behind[name] = self._taken(name, self.packing.sources[n, 0])

    def _steady(self, p: Production) -> bool:
        """Whether it puts together what is there before the loop, where it costs nothing."""
        if p.kind not in ("build", "broadcast"):
            return False
        return self.g.region.steady.issuperset(v for v in self.g.items[p.gives].lanes if not is_constant(v))

    def _new(self, text: str) -> str:
        name = f"%{self.prefix}{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        return name

    def _source(self, n: int, item: int, native: bool = False) -> str:
        """The vector that production `n` reads for an item."""
        for k, need in enumerate(self.g.productions[n].needs):
            if item in need.items and need.native == native:
                source = self.packing.sources[n, k]
                if self.g.productions[source].gives == item:
                    return self.values[source]
        raise AssertionError(f"{n} does not need {item}")

    def _type(self, item: int) -> str:
        it = self.g.items[item]
        return vector(it.type, len(it.lanes))

    def _scalar(self, _n: int, p: Production) -> None:
        self.out.lines.append(self.s[p.members[0]].text)

    def _constant(self, n: int, p: Production) -> None:
        it = self.g.items[p.gives]
        self.values[n] = "<" + ", ".join(f"{it.type} {v}" for v in it.lanes) + ">"

    def _extract(self, n: int, p: Production) -> None:
        self.out.lines.append(self._taken(self.g.items[p.gives].lanes[0], self.packing.sources[n, 0]))

    def _taken(self, name: str, made: int) -> str:
        """A scalar out of the vector that a production made."""
        source = self.g.productions[made].gives
        it = self.g.items[source]
        # Of several lanes that hold it, the cheapest.
        lane = min(
            (k for k, v in enumerate(it.lanes) if v == name),
            key=lambda k: self.g.table.get(f"extract {self._type(source)} {k}"),
        )
        return f"{name} = extractelement {self._type(source)} {self.values[made]}, i64 {lane}"

    def _build(self, n: int, p: Production) -> None:
        it = self.g.items[p.gives]
        self.values[n] = self._together(it.type, it.lanes)

    def _together(self, kind: str, lanes: Sequence[str]) -> str:
        t, value = vector(kind, len(lanes)), "poison"
        if (first := self.g.region.standing.together(lanes)) is not None:
            loaded = f"load {t}, ptr {first.pointer}, align {first.align}"
            if self.lines is self.out.first:
                return self._new(loaded)
            self.out.again.append(Again(f"%{self.prefix}{self.count}", loaded, t, tuple(lanes)))
            self.count += 1
            return self.out.again[-1].name
        if any(is_constant(v) for v in lanes):
            start = [v if is_constant(v) else "poison" for v in lanes]
            value = "<" + ", ".join(f"{kind} {v}" for v in start) + ">"
        for k, v in enumerate(lanes):
            if not is_constant(v):
                value = self._new(f"insertelement {t} {value}, {kind} {v}, i64 {k}")
        return value

    def _broadcast(self, n: int, p: Production) -> None:
        it, t = self.g.items[p.gives], self._type(p.gives)
        one = self._new(f"insertelement {t} poison, {it.type} {it.lanes[0]}, i64 0")
        self.values[n] = self._shuffled(t, one, "poison", [0] * len(it.lanes))

    def _shuffled(self, t: str, a: str, b: str, mask: list[int] | tuple[int, ...]) -> str:
        lanes = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in mask)
        return self._new(f"shufflevector {t} {a}, {t} {b}, <{len(mask)} x i32> <{lanes}>")

    def _concat(self, n: int, p: Production) -> None:
        low, high = p.operands
        t, half = self._type(low), len(self.g.items[low].lanes)
        a = self._source(n, low)
        if low == high:
            padded = self._padded(t, a, half, 2 * half)
            self.values[n] = self._shuffled(self._type(p.gives), padded, "poison", [k % half for k in range(2 * half)])
            return
        b = self._source(n, high)
        self.values[n] = self._shuffled(t, a, b, list(range(2 * half)))

    def _padded(self, t: str, value: str, width: int, wanted: int) -> str:
        return self._shuffled(t, value, "poison", [k if k < width else -1 for k in range(wanted)])

    def _shuffle(self, n: int, p: Production) -> None:
        source = self.g.productions[self.packing.sources[n, 0]].gives
        mask = p.masks[p.needs[0].items.index(source)]
        value, t = self.values[self.packing.sources[n, 0]], self._type(source)
        width, wanted = len(self.g.items[source].lanes), len(mask)
        if width < wanted:  # LLVM has no good words for growing and moving at once
            value, t = self._padded(t, value, width, wanted), self._type(p.gives)
        self.values[n] = self._shuffled(t, value, "poison", mask)

    def _shuffle2(self, n: int, p: Production) -> None:
        a, b = (self._source(n, o, native=True) for o in p.operands)
        self.values[n] = self._shuffled(self._type(p.operands[0]), a, b, p.masks[0])

    _alternate = _shuffle2

    def _patch(self, n: int, p: Production) -> None:
        it, t = self.g.items[p.gives], self._type(p.gives)
        value = self._source(n, p.operands[0], native=True)
        for k in p.masks[0]:
            value = self._new(f"insertelement {t} {value}, {it.type} {it.lanes[k]}, i64 {k}")
        self.values[n] = value

    def _load(self, n: int, p: Production) -> None:
        first = self.s[p.members[0]]
        if p.operands:
            self.values[n] = self._gathered(n, p)
            return
        if p.masks:
            t, width = self._type(p.gives), len(p.masks[0])
            name = f"llvm.masked.load.v{width}{suffix(first.type)}.p0"
            mask = ", ".join(f"i1 {'true' if on else 'false'}" for on in p.masks[0])
            self.out.declarations.add(f"declare {t} @{name}(ptr, <{width} x i1>, {t})")
            given = f"ptr align {first.align} {first.pointer}, <{width} x i1> <{mask}>, {t} poison"
            self.values[n] = self._new(f"call {t} @{name}({given})")
            return
        self.values[n] = self._new(
            f"load {self._type(p.gives)}, ptr {first.pointer}, align {first.align}{self._tag(p.members)}"
        )

    def _gathered(self, n: int, p: Production) -> str:
        first, t, width = self.s[p.members[0]], self._type(p.gives), len(p.members)
        address = self.g.region.statements[self.g.region.position[first.pointer]].text
        base = split_commas(address.partition(" getelementptr ")[2])[1]
        at = self._new(
            f"getelementptr {first.type}, {base}, {self._type(p.operands[0])} {self._source(n, p.operands[0])}"
        )
        name = f"llvm.masked.gather.v{width}{suffix(first.type)}.v{width}p0"
        every = ", ".join(["i1 true"] * width)
        self.out.declarations.add(f"declare {t} @{name}(<{width} x ptr>, <{width} x i1>, {t})")
        align = min(self.s[m].align for m in p.members)
        given = f"<{width} x ptr> align {align} {at}, <{width} x i1> <{every}>, {t} poison"
        return self._new(f"call {t} @{name}({given})")

    def _store(self, n: int, p: Production) -> None:
        first = self.s[p.members[0]]
        value = self._source(n, p.operands[0])
        self.out.lines.append(
            f"store {self._type(p.operands[0])} {value}, ptr {first.pointer}, align {first.align}{self._tag(p.members)}"
        )

    def _tag(self, members: tuple[int, ...]) -> str:
        tags = {self.s[m].metadata for m in members}
        tag = tags.pop()
        return f", !tbaa {tag}" if tag and not tags else ""

    def _pack(self, n: int, p: Production) -> None:
        self.values[n] = self._operation(n, p, self.s[p.members[0]], [self.s[m] for m in p.members])

    def _operation(self, n: int, p: Production, model: Statement, statements: list[Statement]) -> str:
        width = len(self.g.items[p.gives].lanes)
        # Only what holds in every lane may be said of all: nothing of floats that are in there as they are.
        done = {s.name for s in statements}
        others = any(v not in done and not v.startswith("%!") for v in self.g.items[p.gives].lanes)
        common = frozenset.intersection(*(s.flags for s in statements))
        flags = "" if others and model.type in FLOATS else "".join(f"{f} " for f in sorted(common))
        values = [self._source(n, o) for o in p.operands]
        kinds = [self._type(o) for o in p.operands]
        if model.op in CASTS:
            return self._new(f"{model.op} {flags}{kinds[0]} {values[0]} to {vector(model.type, width)}")
        if model.op in COMPARES:
            return self._new(f"{model.op} {flags}{model.predicate} {kinds[0]} {values[0]}, {values[1]}")
        if model.op == "select":
            each = ", ".join(f"{k} {v}" for k, v in zip(kinds, values, strict=True))
            return self._new(f"select {flags}{each}")
        if model.op in INTRINSICS:
            t = vector(model.type, width)
            name = f"{model.op}.v{width}{suffix(model.type)}"
            each = ", ".join(f"{k} {v}" for k, v in zip(kinds, values, strict=True))
            extra = [part.split()[0] for part in model.rest.split(", ")[1:]]
            self.out.declarations.add(f"declare {t} @{name}({', '.join([*kinds, *extra])})")
            return self._new(f"call {flags}{t} @{name}({each}{model.rest})")
        return self._new(f"{model.op} {flags}{kinds[0]} {', '.join(values)}")

    def _reduce(self, n: int, p: Production) -> None:
        root = self.s[p.members[0]]
        t, kind = self._type(p.operands[0]), root.type
        width, _ = parts(t)
        name = f"llvm.vector.reduce.{REDUCTIONS[root.op]}.v{width}{suffix(kind)}"
        self.out.declarations.add(f"declare {kind} @{name}({t})")
        together = self._source(n, p.operands[0])
        for operand in p.operands[1:]:
            together = self._new(self._both(root.op, t, f"v{width}{suffix(kind)}", together, self._source(n, operand)))
        call = f"call {kind} @{name}({t} {together})"
        rest = list(p.scalars)
        if not rest:
            self.out.lines.append(f"{root.name} = {call}")
            return
        value = self._new(call)
        for k, v in enumerate(rest):
            made = self._both(root.op, kind, suffix(kind), value, v)
            if k == len(rest) - 1:
                self.out.lines.append(f"{root.name} = {made}")
            else:
                value = self._new(made)

    def _both(self, op: str, kind: str, short: str, a: str, b: str) -> str:
        """An associative operation, of scalars or of vectors."""
        if op not in INTRINSICS:
            return f"{op} {kind} {a}, {b}"
        self.out.declarations.add(f"declare {kind} @{op}.{short}({kind}, {kind})")
        return f"call {kind} @{op}.{short}({kind} {a}, {kind} {b})"


def suffix(kind: str) -> str:
    return {"float": "f32", "double": "f64"}.get(kind, kind)


def emit(graph: Graph, packing: Packing, prefix: str) -> Emitted:
    """The lines of a region."""
    return Emitter(graph, packing, prefix).emit()


def fresh_prefix(text: str) -> str:
    """A start of names that neither values nor labels have: nothing need refer to the label of a first block."""
    prefix = "lane"
    while re.search(rf"(?:%|^){prefix}\d", text, re.M):
        prefix += "_"
    return prefix
