"""Chosen productions in an order in which each finds what it needs and memory is touched as before; or the cycle."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from heddle.lanes.packs import Graph


class Cycle(Exception):  # noqa: N818
    """These productions wait for each other."""

    def __init__(self, productions: list[int]) -> None:
        self.productions = productions
        super().__init__(str(productions))


@dataclass(frozen=True)
class Packing:
    """Productions in order, and for each of their needs the production that meets it."""

    order: tuple[int, ...]
    sources: dict[tuple[int, int], int]  # (production, which need) → production


def arrange(graph: Graph, chosen: list[int]) -> Packing:
    """Put chosen productions in order.

    Raises:
        Cycle: if there is none.
    """
    has = set(chosen)
    sources: dict[tuple[int, int], int] = {}
    after: dict[int, set[int]] = {n: set() for n in chosen}
    for n in chosen:
        for k, need in enumerate(graph.productions[n].needs):
            source = next(p for p in graph.makes(need) if p in has)
            sources[n, k] = source
            if not graph.productions[n].late:
                after[source].add(n)
    region = graph.region
    touches: dict[int, list[int]] = {}  # statement that touches memory → productions that do it
    for n in chosen:
        p = graph.productions[n]
        if p.kind in ("scalar", "load", "store"):
            for m in p.members:
                if region.statements[m].memory:
                    touches.setdefault(m, []).append(n)
    for m, doers in touches.items():
        left = region.before[m]
        while left:
            bit = left & -left
            left ^= bit
            earlier = bit.bit_length() - 1
            if not region.statements[earlier].memory:
                continue
            for a in touches.get(earlier, ()):
                for b in doers:
                    if a == b:
                        raise Cycle([a])
                    after[a].add(b)
    waits = dict.fromkeys(chosen, 0)
    for followers in after.values():
        for b in followers:
            waits[b] += 1
    # Near to where statements were: what is needed late is made late, which keeps few values alive.
    place = {n: max(graph.productions[n].members, default=-1) for n in chosen}
    ready = [(place[n], n) for n in chosen if not waits[n]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        at, n = heapq.heappop(ready)
        order.append(n)
        for b in after[n]:
            waits[b] -= 1
            if not waits[b]:
                heapq.heappush(ready, (max(place[b], at if place[b] < 0 else -1), b))
    if len(order) < len(chosen):
        raise Cycle(_cycle(after, [n for n in chosen if waits[n]]))
    return Packing(tuple(order), sources)


def _cycle(after: dict[int, set[int]], stuck: list[int]) -> list[int]:
    """One cycle among productions that wait."""
    before: dict[int, int] = {}
    left = set(stuck)
    for a in stuck:
        for b in after[a]:
            if b in left:
                before[b] = a
    path, seen = [stuck[0]], {stuck[0]: 0}
    while True:
        earlier = before[path[-1]]
        if earlier in seen:
            return path[seen[earlier] :]
        seen[earlier] = len(path)
        path.append(earlier)
