"""Vector instructions: the same in every lane, two in turn, or with what leaves a lane as it is."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.lanes.ir import COMMUTATIVE, MEMORY_BYTES, Statement
from heddle.lanes.packs.alike import Columns, arrangement
from heddle.lanes.packs.builder import ALTERNATING, Builder
from heddle.lanes.packs.graph import Item, Need, Production
from heddle.lanes.packs.memory import load

# What leaves a value as it is, on the right. Of floats: -0.0 + -0.0 and -0.0 - 0.0 are -0.0.
IDENTITIES = {"add": "0", "sub": "0", "mul": "1", "and": "-1", "or": "0", "xor": "0", "shl": "0", "lshr": "0",
              "ashr": "0", "fadd": "-0.000000e+00", "fsub": "0.000000e+00", "fmul": "1.000000e+00",
              "fdiv": "1.000000e+00"}  # fmt: skip


def pack(w: Builder, n: int, item: Item, members: list[int], kinds: set[int]) -> None:
    """One instruction or load for statements of some kinds."""
    if not all(map(w.packable.__getitem__, members)):
        return
    if all(map(w.loaded.__getitem__, members)):
        load(w, n, item, members)
        return
    statements = [w.statements[m] for m in members]
    first = statements[0]
    if len(kinds) == 1:
        columns = arrangement(statements, w.alike, w.splat)
        cost = w.table.operation(first, len(members), columns[-1], loaded(w, columns[0]))
        if cost is not None:
            operation(w, "pack", n, members, columns, first, cost)
    elif len(kinds) == 2 and len({s.type for s in statements}) == 1:
        alternating(w, n, item, statements)


def with_identities(w: Builder, n: int, item: Item, places: Sequence[int | None]) -> None:
    """Lanes of which some are one operation: the others are that operation with what leaves them as they are."""
    lanes = [None if i is None else w.statements[i] for i in places]
    ops = [s.op for s in lanes if s is not None and s.op in IDENTITIES and s.type == item.type]
    if item.type == "i1" or not ops or ops.count(ops[0]) == len(lanes):
        return
    for op in dict.fromkeys(ops):
        members = [i for i, s in zip(places, lanes, strict=True) if i is not None and s is not None and s.op == op]
        others = {v: s for v, s in zip(item.lanes, lanes, strict=True) if s is None or s.op != op}
        made = [v for v, s in others.items() if s is not None]
        # One value as it is, beside some shifts of it; or most of them are integers. Of floats only where that leaves a
        # load: the more ways there are to make a vector, the harder it is to choose.
        few = ops.count(op) > 1 and len(others) == 1 and not made
        many = ops.count(op) > 1 and 2 * ops.count(op) >= len(lanes) and op[0] != "f"
        apart = [None if s is None or s.op != op else s.lanes for s in lanes]
        for k in (0, 1) if op in COMMUTATIVE else (0,):
            left = [v if own is None else own[k] for v, own in zip(item.lanes, apart, strict=True)]
            if not (many or few or side_by_side(w, left)):
                continue
            if not w.region.independent(members) or not loose(w, members, made):
                break
            right = [IDENTITIES[op] if own is None else own[1 - k] for own in apart]
            cost = w.table.operation(w.statements[members[0]], len(lanes), right)
            if cost is not None:
                operation(w, "pack", n, members, [left, right], w.statements[members[0]], cost)
                w.given.setdefault(n, set()).update(others)


def side_by_side(w: Builder, lanes: list[str]) -> bool:
    """Whether they are loads of neighbors, one behind the other."""
    size = MEMORY_BYTES.get(w.region.function.types.get(lanes[0], ""), 0)
    before = None
    for v in lanes:
        at = w.region.addresses.get(w.region.position.get(v, -1))
        if at is None or (before is not None and (before.line != at.line or at.offset - before.offset != size)):
            return False
        before = at
    return True


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
    columns = arrangement(statements, w.alike, w.splat)
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


def everywhere(w: Builder, op: str, columns: Columns, statements: list[Statement]) -> int | None:
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


def operation(w: Builder, kind: str, n: int, members: list[int], columns: Columns, first: Statement, cost: int) -> None:
    operands = []
    for k, column in enumerate(columns):
        element = first.operand_type
        if first.op == "select":
            element = "i1" if k == 0 else first.type
        operand = w.vector(column, element)
        if operand is None:
            return
        operands.append(operand)
    made = tuple(operands)
    for p in w.graph.makers[n]:
        if w.graph.productions[p].operands == made and w.graph.productions[p].kind == kind:
            return
    needs = tuple([Need((o,)) for o in dict.fromkeys(operands)])
    w.add(Production(kind, n, cost, needs, tuple(dict.fromkeys(members)), (), made))


def loaded(w: Builder, column: Sequence[str]) -> bool:
    position = w.region.position
    return all(v in position and w.loaded[position[v]] for v in column)
