"""Chains and trees of one associative operation on integers, as one reduction of their leaves."""

from __future__ import annotations

from heddle.lanes.cost import vector
from heddle.lanes.ir import BITS
from heddle.lanes.packs.builder import Builder
from heddle.lanes.packs.graph import Need, Production

REDUCTIONS = {"add": "add", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "llvm.smax": "smax",
              "llvm.smin": "smin", "llvm.umax": "umax", "llvm.umin": "umin"}  # fmt: skip


def reductions(w: Builder) -> None:
    """A chain or tree of one associative operation on integers, as one reduction of its leaves."""
    for root, s in enumerate(w.statements):
        if s.op not in REDUCTIONS or s.type not in BITS or s.type in ("float", "double", "i1") or s.name is None:
            continue
        if any(w.statements[u].op == s.op and w.statements[u].type == s.type for u in w.region.users.get(s.name, ())):
            continue  # not the last of its tree
        leaves, inner = leaves_of(w, root)
        width = 1
        while width * 2 <= len(leaves) and BITS[s.type] * width * 2 <= w.table.register:
            width *= 2
        if width < 4:
            continue
        leaves = in_order(w, leaves)
        key = f"reduce.{REDUCTIONS[s.op]} {vector(s.type, width)}"
        count = len(leaves) // width  # vectors, which are first put together lane by lane
        each = [w.vector(leaves[k * width : (k + 1) * width], s.type) for k in range(count)]
        values = tuple(v for v in each if v is not None)
        apart = w.table.operation(s, width)
        if len(values) < count or not w.table.knows(key) or apart is None:
            continue
        rest = leaves[count * width :]
        cost = w.table.get(key) + (count - 1) * apart + len(rest) * (w.table.operation(s, 1) or 1)
        item = w.scalar(s.name)[0]
        needs = (*(Need((v,)) for v in dict.fromkeys(values)), *w.needs(rest))
        w.add(Production("reduce", item, cost, needs, (root, *inner), operands=values, scalars=tuple(rest)))


def leaves_of(w: Builder, root: int) -> tuple[list[str], list[int]]:
    leaves: list[str] = []
    inner: list[int] = []
    stack = list(w.statements[root].lanes[::-1])
    while stack:
        v = stack.pop()
        i = w.region.position.get(v)
        s = w.statements[i] if i is not None else None
        alone = s is not None and v not in w.region.outside and len(w.region.users.get(v, ())) == 1
        if (
            s is not None
            and i is not None
            and alone
            and s.op == w.statements[root].op
            and s.type == w.statements[root].type
        ):
            inner.append(i)
            stack.extend(s.lanes[::-1])
        else:
            leaves.append(v)
    return leaves, inner


def in_order(w: Builder, leaves: list[str]) -> list[str]:
    """Leaves with neighbors in memory first: any order gives the same integer."""

    def first_load(v: str, depth: int = 4) -> tuple[str, int]:
        i = w.region.position.get(v)
        if i is None or depth == 0:
            return ("~", 0)
        if w.statements[i].op == "load":
            a = w.region.addresses[i]
            return (str(a.line), a.offset)
        return min((first_load(u, depth - 1) for u in w.statements[i].lanes), default=("~", 0))

    def shape(v: str) -> str:
        i = w.region.position.get(v)
        return "~" if i is None else w.statements[i].op

    return sorted(leaves, key=lambda v: (shape(v), first_load(v)))
