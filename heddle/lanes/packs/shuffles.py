"""Vectors out of vectors that exist, and scalars out of them."""

from __future__ import annotations

from heddle.lanes.cost import is_constant, vector
from heddle.lanes.packs.graph import Item, Need, Production
from heddle.lanes.packs.workshop import Workshop

PAIRS = 4  # shuffles of two vectors that are thought of for each vector, of each width of theirs


def shuffles(w: Workshop) -> None:
    graph = w.graph
    native = [n for n in range(len(graph.items)) if any(graph.productions[p].native for p in graph.makers[n])]
    holders: dict[tuple[str, str], list[int]] = {}
    for n in native:
        for lane in dict.fromkeys(graph.items[n].lanes):
            holders.setdefault((graph.items[n].type, lane), []).append(n)
    for n in range(len(graph.items)):
        item = graph.items[n]
        if len(item.lanes) > 1 and not any(is_constant(v) or v.startswith("%!") for v in item.lanes):
            shuffles_to(w, n, item, holders)


def shuffles_to(w: Workshop, n: int, item: Item, holders: dict[tuple[str, str], list[int]]) -> None:
    graph, width = w.graph, len(item.lanes)
    wanted = {lane: 1 << k for k, lane in enumerate(dict.fromkeys(item.lanes))}
    every = (1 << len(wanted)) - 1
    near: dict[int, int] = {}  # vector → which of the lanes it has, as bits
    for lane, bit in wanted.items():
        for u in holders.get((item.type, lane), ()):
            near[u] = near.get(u, 0) | bit
    near.pop(n, None)
    whole: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    by_size: dict[int, list[tuple[int, int]]] = {}
    for u, has in near.items():
        source = graph.items[u].lanes
        if has == every:
            mask = tuple(map(source.index, item.lanes))
            cost = w.table.shuffle(item.type, max(len(source), width), mask)
            whole.setdefault(cost, []).append((u, mask))
        else:
            by_size.setdefault(len(source), []).append((u, has))
    for cost, ways in whole.items():
        needs = (Need(tuple(u for u, _ in ways), native=True),)
        w.add(Production("shuffle", n, cost, needs, masks=tuple(m for _, m in ways)))
    for partial in by_size.values():
        partial.sort(key=lambda one: -one[1].bit_count())
    for size in (width // 2, width, 2 * width, 4 * width):  # every third byte of 24, say, lies in two vectors of 16
        pairs(w, n, item, by_size.get(size, []), every)
    patches(w, n, item, [u for u, _ in by_size.get(width, [])])


def pairs(w: Workshop, n: int, item: Item, sources: list[tuple[int, int]], every: int) -> None:
    """Two vectors of one width that together hold all lanes."""
    found = 0
    for i, (a, here) in enumerate(sources[:8]):
        for b, there in sources[i + 1 : 12]:
            if here | there != every:
                continue
            one, two = w.graph.items[a].lanes, w.graph.items[b].lanes
            mask = tuple(place(v, k, one, two) for k, v in enumerate(item.lanes))
            if mask == tuple(range(2 * len(one))):
                continue  # two halves, which are put together anyway
            both = (Need((a,), native=True), Need((b,), native=True))
            cost = w.table.shuffle(item.type, len(one), mask)
            w.add(Production("shuffle2", n, cost, both, masks=(mask,), operands=(a, b)))
            found += 1
            if found == PAIRS:
                return


def place(value: str, lane: int, one: tuple[str, ...], two: tuple[str, ...]) -> int:
    """Where a shuffle of two vectors takes a value from: its own lane if it can, else from the first that has it."""
    if lane < len(one) and one[lane] == value:
        return lane
    if lane < len(one) and two[lane] == value:
        return lane + len(one)
    return one.index(value) if value in one else len(one) + two.index(value)


def patches(w: Workshop, n: int, item: Item, same: list[int]) -> None:
    """Most lanes lie in place in another vector: insert the others into it."""
    t, width = vector(item.type, len(item.lanes)), len(item.lanes)
    found = []
    for u in same[:12]:
        other = [k for k, v in enumerate(w.graph.items[u].lanes) if v != item.lanes[k]]
        if len(other) <= width // 2 and width > 2:
            found.append((sum(w.table.get(f"insert {t} {k}") for k in other), u, tuple(other)))
    for cost, u, missing in sorted(found)[:2]:
        needs = (Need((u,), native=True), *w.needs(item.lanes[k] for k in missing))
        w.add(Production("patch", n, cost, needs, masks=(missing,), operands=(u,)))


def extracts(w: Workshop) -> None:
    """A scalar out of any vector that an instruction or a load makes; grouped by what the lane costs."""
    found: dict[str, dict[int, list[int]]] = {}
    for n, item in enumerate(w.graph.items):
        if len(item.lanes) > 1 and any(w.graph.productions[p].native for p in w.graph.makers[n]):
            for k, lane in enumerate(item.lanes):
                if lane in w.region.position or lane in w.region.carried:
                    cost = w.table.get(f"extract {vector(item.type, len(item.lanes))} {k}")
                    at = found.setdefault(lane, {}).setdefault(cost, [])
                    if n not in at:
                        at.append(n)
    for name, by_cost in found.items():
        for cost, where in by_cost.items():
            w.add(Production("extract", w.scalar(name)[0], cost, (Need(tuple(where), native=True),)))
