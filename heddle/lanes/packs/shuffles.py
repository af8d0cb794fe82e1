"""Vectors out of vectors that exist, and scalars out of them."""

from __future__ import annotations

from collections.abc import Iterable

from heddle.lanes.cost import INTO_ADDRESS, is_constant
from heddle.lanes.packs.builder import Builder
from heddle.lanes.packs.graph import Item, Need, Production
from heddle.lanes.packs.nearest import Mask, nearest


def put_together(w: Builder, wanted: Iterable[int]) -> None:
    """Lane by lane."""
    for n in wanted:
        if n in w.apart:
            kind, lanes = w.graph.items[n]
            w.add(Production("build", n, w.build(kind, lanes), w.needs(lanes)))


def shuffles(w: Builder, asked_for: Iterable[int]) -> None:
    items = w.graph.items
    odd = {v for v in {lane for item in items for lane in item.lanes} if is_constant(v) or v.startswith("%!")}
    wanted = [n for n in asked_for if len(items[n].lanes) > 1 and odd.isdisjoint(items[n].lanes)]
    native = {n: Need((n,), native=True) for n, natives in enumerate(w.graph.natives) if natives}
    for n, (whole, pairs, same) in zip(wanted, nearest(w, wanted), strict=True):
        kind = items[n].type
        if whole:
            of_one(w, n, kind, whole)
        for size, a, b, mask in pairs:
            cost = w.table.shuffle(kind, size, mask)
            w.add(Production("shuffle2", n, cost, (native[a], native[b]), (), (mask,), (a, b)))
        if same:
            patches(w, n, items[n], same, native)


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


def of_one(w: Builder, n: int, kind: str, whole: list[tuple[int, Mask]]) -> None:
    """One vector that holds all lanes; grouped by what that costs."""
    found: dict[int, tuple[list[int], list[Mask]]] = {}
    for u, mask in whole:
        width = len(w.graph.items[u].lanes)
        cost = w.table.shuffle(kind, width if width > len(mask) else len(mask), mask)
        ways = found.get(cost) or found.setdefault(cost, ([], []))
        ways[0].append(u)
        ways[1].append(mask)
    for cost, (sources, masks) in found.items():
        w.add(Production("shuffle", n, cost, (Need(tuple(sources), native=True),), masks=tuple(masks)))


def patches(w: Builder, n: int, item: Item, same: list[tuple[int, int]], native: dict[int, Need]) -> None:
    """Most lanes lie in place in another vector: insert the others into it."""
    insert = w.each("insert", item.type, len(item.lanes))
    lacking = {u: tuple([k for k in range(len(insert)) if bits >> k & 1]) for u, bits in same}
    prices = sorted([(sum([insert[k] for k in missing]), u) for u, missing in lacking.items()])
    for cost, u in prices[:2]:
        needs = (native[u], *w.needs([item.lanes[k] for k in lacking[u]]))
        w.add(Production("patch", n, cost, needs, (), (lacking[u],), (u,)))


def extracts(w: Builder) -> None:
    """A scalar out of any vector that an instruction or a load makes; grouped by what the lane costs."""
    found: dict[str, dict[int, list[int]]] = {}
    indices, inside = w.region.function.indices, w.region.position.keys() | w.region.carried.keys()
    for n, natives in enumerate(w.graph.natives):
        if not natives:
            continue
        kind, lanes = w.graph.items[n]
        for lane, cost in zip(w.held(n), w.each("extract", kind, len(lanes)), strict=True):
            if lane in inside:
                at = found.setdefault(lane, {}).setdefault(cost + INTO_ADDRESS * (lane in indices), [])
                if n not in at[-1:]:
                    at.append(n)
    for name, by_cost in found.items():
        for cost, where in by_cost.items():
            w.add(Production("extract", w.scalar(name)[0], cost, (Need(tuple(where), native=True),)))
