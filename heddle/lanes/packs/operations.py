"""Vector instructions: the same in every lane, two in turn, or with what leaves a lane as it is."""

from __future__ import annotations

import itertools

from heddle.lanes.cost import is_constant
from heddle.lanes.ir import COMMUTATIVE, COMMUTATIVE_INTRINSICS, MEMORY_BYTES, Statement
from heddle.lanes.packs.builder import ALTERNATING, Builder
from heddle.lanes.packs.graph import Item, Need, Production
from heddle.lanes.packs.memory import load

# What leaves a value as it is, on the right. Of floats: -0.0 + -0.0 and -0.0 - 0.0 are -0.0.
IDENTITIES = {"add": "0", "sub": "0", "mul": "1", "and": "-1", "or": "0", "xor": "0", "shl": "0", "lshr": "0",
              "ashr": "0", "fadd": "-0.000000e+00", "fsub": "0.000000e+00", "fmul": "1.000000e+00",
              "fdiv": "1.000000e+00"}  # fmt: skip


def pack(w: Builder, n: int, item: Item, members: list[int]) -> None:
    statements = [w.statements[m] for m in members]
    first, width = statements[0], len(members)
    signatures = {w.signature[m] for m in members}
    if not all(w.packable[m] for m in members):
        return
    if first.op == "load" and all(s.op == "load" for s in statements):
        load(w, n, item, members)
        return
    if len(signatures) == 1:
        for columns in arrangements(w, statements):
            cost = w.table.operation(first, width, columns[-1], loaded(w, columns[0]))
            if cost is not None:
                operation(w, "pack", n, members, columns, first, cost)
    elif len(signatures) == 2 and len({s.type for s in statements}) == 1:
        alternating(w, n, item, statements)


def with_identities(w: Builder, n: int, item: Item) -> None:
    """Lanes of which some are one operation: the others are that operation with what leaves them as they are."""
    lanes = [w.statements[i] if (i := w.region.position.get(v)) is not None else None for v in item.lanes]
    ops = [s.op for s in lanes if s is not None and s.op in IDENTITIES and s.type == item.type]
    for op in dict.fromkeys(ops) if item.type != "i1" else ():
        members = [w.region.position[s.name or ""] for s in lanes if s is not None and s.op == op]
        others = {v: s for v, s in zip(item.lanes, lanes, strict=True) if s is None or s.op != op}
        made = [v for v, s in others.items() if s is not None]
        if not others or not w.region.independent(members) or not loose(w, members, made):
            continue
        # One value as it is, beside some shifts of it; or most of them are integers. Of floats only where that leaves a
        # load: the more ways there are to make a vector, the harder it is to choose.
        few = ops.count(op) > 1 and len(others) == 1 and not made
        many = ops.count(op) > 1 and 2 * ops.count(op) >= len(lanes) and op[0] != "f"
        for k in (0, 1) if op in COMMUTATIVE else (0,):
            apart = [None if v in others else s for v, s in zip(item.lanes, lanes, strict=True)]
            left = [v if s is None else s.lanes[k] for v, s in zip(item.lanes, apart, strict=True)]
            right = [IDENTITIES[op] if s is None else s.lanes[1 - k] for s in apart]
            cost = w.table.operation(w.statements[members[0]], len(lanes), right)
            if cost is not None and (many or few or side_by_side(w, left)):
                operation(w, "pack", n, members, [left, right], w.statements[members[0]], cost)
                w.given.setdefault(n, set()).update(others)


def side_by_side(w: Builder, lanes: list[str]) -> bool:
    """Whether they are loads of neighbors, one behind the other."""
    at = [w.region.addresses.get(w.region.position.get(v, -1)) for v in lanes]
    size = MEMORY_BYTES.get(w.region.function.types.get(lanes[0], ""), 0)
    return all(
        a is not None and b is not None and a.line == b.line and b.offset - a.offset == size
        for a, b in itertools.pairwise(at)
    )


def loose(w: Builder, members: list[int], values: list[str]) -> bool:
    """Whether values that go in are not made of what comes out."""
    bits = sum(1 << m for m in members)
    return all(not w.region.closure[w.region.position[v]] & bits for v in values)


def alternating(w: Builder, n: int, item: Item, statements: list[Statement]) -> None:
    """Two opcodes in turn: both in every lane, then the right one of each. Neither is lost: others may want it."""
    ops = list(dict.fromkeys(s.op for s in statements))
    if len(ops) != 2 or not ALTERNATING.issuperset(ops):
        return
    width = len(statements)
    mask = tuple(k if s.op == ops[0] else k + width for k, s in enumerate(statements))
    for columns in arrangements(w, statements):
        halves = [everywhere(w, op, columns, statements) for op in ops]
        joint = list(dict.fromkeys([*columns[0], *columns[1]]))
        if len(joint) == width and len(joint) < len(columns[0]) + len(columns[1]):
            w.vector(joint, item.type)  # a butterfly: both sides are shuffles of one vector
        if halves[0] is not None and halves[1] is not None:
            needs = tuple(Need((h,), native=True) for h in halves if h is not None)
            cost = w.table.shuffle(item.type, width, mask)
            made = Production("alternate", n, cost, needs, masks=(mask,), operands=(halves[0], halves[1]))
            if not any(w.graph.productions[p].operands == made.operands for p in w.graph.makers[n]):
                w.add(made)


def everywhere(w: Builder, op: str, columns: list[list[str]], statements: list[Statement]) -> int | None:
    """One of two opcodes in all lanes. Where the region does the same somewhere, that lane is its value."""
    lanes, members = [], []
    model = next(s for s in statements if s.op == op)
    for k, (a, b) in enumerate(zip(*columns, strict=True)):
        name = statements[k].name if statements[k].op == op else w.done.get((op, a, b))
        if name is None:
            lanes.append(f"%!{op} {' '.join(sorted((a, b)) if op in COMMUTATIVE else (a, b))}")
        else:
            lanes.append(name)
            members.append(w.region.position[name])
    members = list(dict.fromkeys(members))
    if not w.region.independent(members):
        return None
    item = Item(model.type, tuple(lanes))
    cost = w.table.operation(model, len(lanes), columns[-1])
    if cost is None:
        return None
    n = w.item(item)
    operation(w, "pack", n, members, columns, model, cost)
    return n if w.graph.makers[n] else None


def operation(
    w: Builder, kind: str, n: int, members: list[int], columns: list[list[str]], first: Statement, cost: int
) -> None:
    operands = []
    for k, column in enumerate(columns):
        element = first.operand_type
        if first.op == "select":
            element = "i1" if k == 0 else first.type
        operand = w.vector(column, element)
        if operand is None:
            return
        operands.append(operand)
    needs = tuple(Need((o,)) for o in dict.fromkeys(operands))
    made = Production(kind, n, cost, needs, tuple(dict.fromkeys(members)), operands=tuple(operands))
    if not any(
        w.graph.productions[p].operands == made.operands
        for p in w.graph.makers[n]
        if w.graph.productions[p].kind == kind
    ):
        w.add(made)


def loaded(w: Builder, column: list[str]) -> bool:
    return all(v in w.region.position and w.statements[w.region.position[v]].op == "load" for v in column)


def arrangements(w: Builder, statements: list[Statement]) -> list[list[list[str]]]:
    """Operands by position; for operations that commute, the way to lay their operands side by side that looks best.

    More than one way would double the vectors of every level above: the room for vectors then ends before the loads.
    """
    plain = [list(column) for column in zip(*[s.lanes for s in statements], strict=True)]
    commuting = [commutes(s) for s in statements]
    if not any(commuting):
        return [plain]
    ways = [plain]
    a, b = statements[0].lanes
    for splat in (False, True):
        for left, right in ((a, b),) if all(commuting) or not commuting[0] else ((a, b), (b, a)):
            columns = [[left], [right]]
            for s, turns in zip(statements[1:], commuting[1:], strict=True):
                left, right = beside(w, left, right, s.lanes, splat) if turns else s.lanes
                columns[0].append(left)
                columns[1].append(right)
            if columns not in ways:
                ways.append(columns)
    return ways if len(ways) == 1 else [max(ways, key=lambda way: together(w, way))]


def together(w: Builder, columns: list[list[str]]) -> int:
    """How well the lanes of each operand go side by side."""
    return sum(likeness(w, a, b, True) for column in columns for a, b in itertools.pairwise(column))


def beside(w: Builder, left: str, right: str, lanes: tuple[str, ...], splat: bool) -> tuple[str, ...]:
    """The operands of an operation that commutes, turned so that they go well with those of the lane before."""
    key = left, right, lanes, splat
    if key not in w.turned:
        a, b = lanes
        straight = likeness(w, left, a, splat) + likeness(w, right, b, splat)
        crossed = likeness(w, left, b, splat) + likeness(w, right, a, splat)
        w.turned[key] = (b, a) if crossed > straight else lanes
    return w.turned[key]


def likeness(w: Builder, a: str, b: str, splat: bool, depth: int = 2) -> int:
    """How well two values go into neighboring lanes."""
    key = a, b, splat, depth
    if key not in w.alike:
        w.alike[key] = _likeness(w, a, b, splat, depth)
    return w.alike[key]


def _likeness(w: Builder, a: str, b: str, splat: bool, depth: int) -> int:
    if is_constant(a) or is_constant(b):
        return 3 if is_constant(a) and is_constant(b) else 0
    if a == b:
        return 9 if splat else 2
    i, j = w.region.position.get(a), w.region.position.get(b)
    if i is None or j is None:
        return 1 if i is None and j is None else 0
    x, y = w.statements[i], w.statements[j]
    if x.op == "load" and y.op == "load" and x.type == y.type:
        p, q = w.region.addresses[i], w.region.addresses[j]
        if p.line != q.line:
            return 1
        distance = (q.offset - p.offset) // MEMORY_BYTES.get(x.type, 1)
        return 8 if distance == 1 else 5 if distance == -1 else 4 if abs(distance) < 8 else 2
    if x.op != y.op or x.type != y.type or not x.lanes:
        return 0
    if depth == 0 or len(x.lanes) != len(y.lanes):
        return 2
    straight = sum(likeness(w, u, v, splat, depth - 1) for u, v in zip(x.lanes, y.lanes, strict=True))
    if commutes(x):
        straight = max(
            straight,
            sum(likeness(w, u, v, splat, depth - 1) for u, v in zip(x.lanes, y.lanes[::-1], strict=True)),
        )
    return 2 + straight // 2


def commutes(s: Statement) -> bool:
    return s.op in COMMUTATIVE or s.op in COMMUTATIVE_INTRINSICS
