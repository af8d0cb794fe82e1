"""Thinks of vectors from the stores upwards and from the loads downwards."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.lanes.cost import Table, definitions, is_constant, statement_cost, vector
from heddle.lanes.dependence import Region
from heddle.lanes.packs.builder import ALTERNATING, Builder
from heddle.lanes.packs.graph import Graph, Item, Need, Production
from heddle.lanes.packs.memory import cover, store, windows
from heddle.lanes.packs.operations import loaded, pack, with_identities
from heddle.lanes.packs.phis import carries, leave, phi, phis
from heddle.lanes.packs.reductions import reductions
from heddle.lanes.packs.shuffles import asked, extracts, put_together, shuffles
from heddle.lanes.packs.twins import twins

FORWARD = 1  # steps from loads towards their users, where no store leads to them: what twins do not find


def build(region: Region, table: Table, seeds: Sequence[tuple[int, ...]] = ()) -> Graph:
    """Everything that could be made in a region, and what must be.

    Args:
        region: a stretch of code.
        table: what instructions cost.
        seeds: packs, statements by lane, that are to be among it.
    """
    w = Builder(region, table)
    scalars(w)
    stores = windows(w, "store")
    for window in stores:
        store(w, window)
    for seed in seeds:
        if w.statements[seed[0]].op != "store":
            w.vector([w.statements[i].name or "" for i in seed], w.statements[seed[0]].type)
        elif list(seed) not in stores:
            store(w, list(seed))
    for group in phis(w):
        w.vector(group, w.region.function.types[group[0]])
    drain(w)
    for window in windows(w, "load"):
        w.vector([w.statements[i].name or "" for i in window], w.statements[window[0]].type)
    drain(w)
    forward(w)
    for lanes in twins(w):
        w.vector(lanes, w.statements[w.region.position[lanes[0]]].type)
    drain(w)
    reductions(w)
    drain(w)
    wanted = sorted(asked(w))
    put_together(w, wanted)
    shuffles(w, wanted)
    extracts(w)
    leave(w)
    return w.graph


def scalars(w: Builder) -> None:
    defs = definitions(w.region.function)
    for i, s in enumerate(w.statements):
        cost = statement_cost(w.table, s, defs)
        if s.op == "store":
            n = w.add(Production("scalar", -1, cost, w.needs(s.uses), (i,)))
            w.graph.stores[i] = [n]
        elif s.name:
            (item,) = w.scalar(s.name)
            w.add(Production("scalar", item, cost, w.needs(s.uses), (i,)))
            if s.name in w.region.required:
                w.graph.required.append(item)
    carries(w)


def drain(w: Builder) -> None:
    while w.queue:
        expand(w, w.queue.popleft())


def expand(w: Builder, n: int) -> None:
    item = w.graph.items[n]
    kind, lanes = item
    if is_constant(lanes[0]) and all(map(is_constant, lanes)):
        w.add(Production("constant", n, 0))
        return
    width, distinct = len(lanes), len(set(lanes))
    if distinct == 1:
        cost = w.table.get(f"first {vector(kind, width)} 0", 0) + w.price("broadcast", kind, width)
        w.add(Production("broadcast", n, cost, w.needs(lanes)))
        return
    of_halves(w, n, item)
    if distinct == width and w.region.carried.keys() >= set(lanes):
        phi(w, n, item)
        return
    places = [w.region.position.get(v) for v in lanes]
    members = [m for m in places if m is not None]
    kinds = {w.signature[m] for m in members}
    if len(members) == width:
        # An integer may be made in several lanes, unless a vector without repetition could be shuffled.
        repeated = kind[0] == "i" and bool(distinct & (distinct - 1))
        if (distinct == width or repeated) and w.region.independent(members):
            pack(w, n, item, members, kinds)
        if len(kinds) == 2:
            by_kind(w, item, members)
    if len(members) < width or len(kinds) > 1:
        with_identities(w, n, item, places)
    if distinct < width or all(map(w.loaded.__getitem__, members)):
        from_distinct(w, item)


def of_halves(w: Builder, n: int, item: Item) -> None:
    lanes, width, kind = item.lanes, len(item.lanes), item.type
    w.apart.add(n)
    if width >= 4:
        low, high = w.vector(lanes[: width // 2], kind), w.vector(lanes[width // 2 :], kind)
        if low is not None and high is not None:
            if low == high:
                cost = w.table.shuffle(kind, width, tuple(k % (width // 2) for k in range(width)))
                w.add(Production("concat", n, cost, (Need((low,)),), operands=(low, low)))
            else:
                cost = w.price("concat", kind, width // 2)
                w.add(Production("concat", n, cost, (Need((low,)), Need((high,))), operands=(low, high)))


def from_distinct(w: Builder, item: Item) -> None:
    """Lanes that repeat, or loads in another order: find the vector without repetition, in memory's order."""
    distinct = dict.fromkeys(item.lanes)
    inside = [v for v in distinct if v in w.region.position]
    if len(inside) < 2:
        return
    if len(inside) == len(distinct) < len(item.lanes):
        w.vector(inside, item.type)
    loads = [w.region.position[v] for v in inside]
    if not all(map(w.loaded.__getitem__, loads)):
        return
    by_line: dict[object, list[int]] = {}
    for i in loads:
        by_line.setdefault(w.region.addresses[i].line, []).append(i)
    for members in by_line.values():
        cover(w, members, item.type)


def by_kind(w: Builder, item: Item, members: list[int]) -> None:
    """Lanes of two kinds, such as loads and sums: pack each kind alone, then shuffle them together."""
    kinds: dict[int, dict[str, None]] = {}
    for m in members:
        kinds.setdefault(w.signature[m], {})[w.statements[m].name or ""] = None
    if not ALTERNATING.issuperset([w.statements[m].op for m in members]):  # those are done both in every lane
        for lanes in kinds.values():
            w.vector(list(lanes), item.type)


def forward(w: Builder) -> None:
    """From windows of loads to what is done with them alike, where no store asked for it."""
    level = [i for i, it in enumerate(w.graph.items) if len(it.lanes) > 1 and loaded(w, it.lanes)]
    for _ in range(FORWARD):
        following = []
        for n in level:
            lanes = w.graph.items[n].lanes
            for group in alike_users(w, lanes):
                before = len(w.graph.items)
                made = w.vector([w.statements[i].name or "" for i in group], w.statements[group[0]].type.split(" ")[0])
                if made is not None and made >= before:
                    following.append(made)
        drain(w)
        level = following


def alike_users(w: Builder, lanes: tuple[str, ...]) -> list[list[int]]:
    users = [w.users.get(v, []) for v in lanes]
    found = []
    for u in users[0][:3]:
        want = w.signature[u]
        group = [u]
        for others in users[1:]:
            match = next((o for o in others if o not in group and w.signature[o] == want), None)
            if match is None:
                break
            group.append(match)
        if len(group) == len(lanes) and w.region.independent(group):
            found.append(group)
    return found
