"""Loads and stores of neighbors: windows of what is there, loads that cover others, and loads with gaps."""

from __future__ import annotations

import re

from heddle.lanes.cost import vector
from heddle.lanes.ir import BITS, MEMORY_BYTES
from heddle.lanes.packs.builder import MOST_ITEMS, Builder
from heddle.lanes.packs.graph import Item, Need, Production


def neighbors(groups: dict[object, dict[int, int]], size: int) -> list[list[int]]:
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


def windows(w: Builder, op: str) -> list[list[int]]:
    by_kind: dict[str, dict[object, dict[int, int]]] = {}
    for i, a in w.region.addresses.items():
        s = w.statements[i]
        if s.op == op and s.type in MEMORY_BYTES and s.type in BITS:
            layer, groups = 0, by_kind.setdefault(s.type, {})
            while a.offset in groups.setdefault((a.line, layer), {}):
                layer += 1  # the same place again: a later value
            groups[a.line, layer][a.offset] = i
    found: dict[tuple[int, ...], None] = {}
    for kind, groups in by_kind.items():
        for run in neighbors(groups, MEMORY_BYTES[kind]):
            found |= dict.fromkeys(window for window in w.windows(run, kind) if w.region.independent(list(window)))
    return [list(window) for window in found]


def store(w: Builder, window: list[int]) -> None:
    first = w.statements[window[0]]
    value = w.vector([w.statements[i].lanes[0] for i in window], first.type)
    if value is None:
        return
    cost = w.table.get(f"store {vector(first.type, len(window))}")
    needs = (Need((value,)), *w.needs([first.pointer]))
    n = w.add(Production("store", -1, cost, needs, tuple(window), operands=(value,)))
    for i in window:
        w.graph.stores[i].append(n)


def load(w: Builder, n: int, item: Item, members: list[int]) -> None:
    size = MEMORY_BYTES.get(item.type)
    if size is None or any(w.statements[m].op != "load" for m in members):
        return
    first = w.region.addresses[members[0]]
    for k, m in enumerate(members):
        a = w.region.addresses[m]
        if a.line != first.line or a.offset != first.offset + k * size:
            gather(w, n, item, members)
            return
    cost = w.table.get(f"load {vector(item.type, len(members))}")
    w.add(Production("load", n, cost, w.needs([w.statements[members[0]].pointer]), tuple(members)))


def gather(w: Builder, n: int, item: Item, members: list[int]) -> None:
    """Elements of one array at indices that make a vector, such as entries of a table."""
    width, size = len(members), MEMORY_BYTES[item.type]
    indexed = [_indexed(w, w.statements[m].pointer) for m in members]
    bases = {found[0] for found in indexed if found is not None}
    if width < 4 or None in indexed or len(bases) > 1:
        return
    kinds = {found[1] for found in indexed if found is not None}
    if kinds != {item.type} or size * 8 * width > w.table.register:
        return
    indices = w.vector([found[2] for found in indexed if found is not None], "i64")
    if indices is not None:
        cost = w.table.gather(item.type, width)
        needs = (Need((indices,)), *w.needs(bases))
        w.add(Production("load", n, cost, needs, tuple(members), operands=(indices,)))


def _indexed(w: Builder, pointer: str) -> tuple[str, str, str] | None:
    """Base, element and index of an address, where it is just that, and both are known before the region or in it."""
    s = w.statements[i] if (i := w.region.position.get(pointer)) is not None else None
    m = re.fullmatch(r"%\S+ = getelementptr (?:\w+ )*?(\w+), ptr (\S+), i64 (%\S+)", s.text) if s else None
    return (m[2], m[1], m[3]) if m else None


def cover(w: Builder, members: list[int], kind: str) -> None:
    """Windows of neighboring loads that hold all of these, where every element between is loaded as well."""
    size = MEMORY_BYTES.get(kind)
    key = kind, tuple(members)
    if size is None or key in w.covered:
        return
    w.covered.add(key)
    at = {w.region.addresses[i].offset: i for i in members}
    offsets = w.loads.get((w.region.addresses[members[0]].line, kind), {})
    low, high = min(at), max(at)
    width = 2
    while width * size < high - low + size:
        width *= 2
    if width * BITS[kind] <= w.table.register and high - low + size == len(at) * size:
        pass  # no gaps: windows as they are
    elif width * BITS[kind] <= w.table.register and not all(low + k * size in offsets for k in range(width)):
        with_gaps(w, [at.get(low + k * size) for k in range(width)], kind)
    for start in (low, high - (width - 1) * size):
        window = [start + k * size for k in range(width)]
        if width * BITS[kind] <= w.table.register and all(o in offsets for o in window):
            chosen = [at.get(o, offsets[o][0]) for o in window]
            if w.region.independent(chosen):
                w.vector([w.statements[i].name or "" for i in chosen], kind)
                return


def with_gaps(w: Builder, members: list[int | None], kind: str) -> None:
    """A load that touches only what the region loads: the lanes between are masked."""
    t = vector(kind, len(members))
    known = [m for m in members if m is not None]
    if members[0] is None or not w.table.knows(f"masked {t}") or not w.region.independent(known):
        return
    names = tuple(f"%!gap {k}" if m is None else w.statements[m].name or "" for k, m in enumerate(members))
    item = Item(kind, names)
    if item in w.index or len(w.graph.items) >= MOST_ITEMS:
        return
    mask = tuple(int(m is not None) for m in members)
    needs = w.needs([w.statements[members[0]].pointer])
    cost = w.table.get(f"masked {t}")
    w.add(Production("load", w.item(item), cost, needs, tuple(known), masks=(mask,)))
