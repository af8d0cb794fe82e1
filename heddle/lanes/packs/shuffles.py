"""Vectors out of vectors that exist, and scalars out of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from heddle.lanes.cost import INTO_ADDRESS, is_constant
from heddle.lanes.packs.builder import Builder
from heddle.lanes.packs.graph import Item, Need, Production
from heddle.lanes.packs.nearest import Nearest


class Holders:
    """The vectors that an instruction or a load makes, by the lanes they hold."""

    def __init__(self, w: Builder) -> None:
        self.holding: dict[tuple[str, str], int] = {}  # by type and lane: vectors, as bits
        self.first: dict[int, dict[str, int]] = {}  # where each vector has a lane first
        self.need: dict[int, Need] = {}
        for n, item in enumerate(w.graph.items):
            if w.graph.natives[n]:
                self.first[n] = {lane: k for k, lane in reversed(list(enumerate(w.held(n))))}
                self.need[n] = Need((n,), native=True)
                for lane in self.first[n]:
                    self.holding[item.type, lane] = self.holding.get((item.type, lane), 0) | 1 << n

    def whole(self, kind: str, lanes: Iterable[str]) -> Iterator[int]:
        """Vectors with all of these lanes."""
        every = -1
        for lane in lanes:
            every &= self.holding.get((kind, lane), 0)
        while every:
            bit = every & -every
            every ^= bit
            yield bit.bit_length() - 1


def put_together(w: Builder, wanted: Iterable[int]) -> None:
    """Lane by lane."""
    for n in wanted:
        if n in w.apart:
            kind, lanes = w.graph.items[n]
            w.add(Production("build", n, w.build(kind, lanes), w.needs(lanes)))


def shuffles(w: Builder, asked_for: Iterable[int]) -> None:
    wanted = [
        n
        for n in asked_for
        if len(w.graph.items[n].lanes) > 1
        and not any(is_constant(v) or v.startswith("%!") for v in w.graph.items[n].lanes)
    ]
    holders, nearest = Holders(w), Nearest(w, wanted)
    for n in wanted:
        item = w.graph.items[n]
        of_one(w, n, item, holders)
        width = len(item.lanes)
        for size in (width // 2, width, 2 * width, 4 * width):  # every third byte of 24, say, lies in two of 16
            for a, b, mask in nearest.pairs.get((n, size), ()):
                cost = w.table.shuffle(item.type, size, mask)
                both = (holders.need[a], holders.need[b])
                w.add(Production("shuffle2", n, cost, both, (), (mask,), (a, b)))
        patches(w, n, item, nearest.same.get(n, []), holders)


def asked(w: Builder) -> set[int]:
    """Items that something reads as they are. Others are at most taken apart or shuffled, for which instructions and
    loads will do: how else they could be made does not matter.
    """
    graph = w.graph
    stack = [n for ways in graph.stores.values() for n in ways]
    stack += [n for item in graph.required for n in graph.makers[item]]
    stack += [n for natives in graph.natives for n in natives]
    found: set[int] = set()
    done = set(stack)
    while stack:
        for items, native in graph.productions[stack.pop()].needs:
            for item in () if native else items:
                if item not in found:
                    found.add(item)
                    new = [n for n in graph.makers[item] if n not in done]
                    done.update(new)
                    stack += new
    return found


def of_one(w: Builder, n: int, item: Item, holders: Holders) -> None:
    """One vector that holds all lanes; grouped by what that costs."""
    found: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for u in holders.whole(item.type, item.lanes):
        if u != n:
            mask = tuple(map(holders.first[u].__getitem__, item.lanes))
            cost = w.table.shuffle(item.type, max(len(w.graph.items[u].lanes), len(item.lanes)), mask)
            found.setdefault(cost, []).append((u, mask))
    for cost, ways in found.items():
        needs = (Need(tuple([u for u, _ in ways]), native=True),)
        w.add(Production("shuffle", n, cost, needs, masks=tuple([m for _, m in ways])))


def patches(w: Builder, n: int, item: Item, same: list[tuple[int, list[int]]], holders: Holders) -> None:
    """Most lanes lie in place in another vector: insert the others into it."""
    if not same or len(item.lanes) == 2:
        return
    insert = w.each("insert", item.type, len(item.lanes))
    found = sorted([(sum([insert[k] for k in other]), u, other) for u, other in same])
    for cost, u, missing in found[:2]:
        needs = (holders.need[u], *w.needs([item.lanes[k] for k in missing]))
        w.add(Production("patch", n, cost, needs, (), (tuple(missing),), (u,)))


def extracts(w: Builder) -> None:
    """A scalar out of any vector that an instruction or a load makes; grouped by what the lane costs."""
    found: dict[str, dict[int, list[int]]] = {}
    indices = w.region.function.indices
    for n, item in enumerate(w.graph.items):
        if len(item.lanes) > 1 and w.graph.natives[n]:
            costs = w.each("extract", item.type, len(item.lanes))
            for k, lane in enumerate(w.held(n)):
                if lane in w.region.position or lane in w.region.carried:
                    cost = costs[k] + (INTO_ADDRESS if lane in indices else 0)
                    at = found.setdefault(lane, {}).setdefault(cost, [])
                    if n not in at:
                        at.append(n)
    for name, by_cost in found.items():
        for cost, where in by_cost.items():
            w.add(Production("extract", w.scalar(name)[0], cost, (Need(tuple(where), native=True),)))
