"""Productions that are chosen: what is used of them, what they cost, a greedy start, and how to polish one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from heddle.lanes.choose.schedule import Packing
from heddle.lanes.packs import Graph
from heddle.lanes.search import flat


@dataclass
class Solution:
    """What was chosen, and how good that is known to be."""

    packing: Packing
    cost: int
    bound: float
    seconds: float
    method: str
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        return 0.0 if self.cost <= 0 else max(0.0, (self.cost - self.bound) / self.cost)


def scalar_choice(graph: Graph) -> list[int]:
    """Every statement as it is: what is needed of them."""
    return [n for n, p in enumerate(graph.productions) if p.kind in ("scalar", "carry", "leave")]


def used(graph: Graph, chosen: list[int]) -> list[int]:
    """The chosen productions that something asks for, from the stores upwards."""
    has = set(chosen)
    keep: set[int] = set()
    stack = [n for n in chosen if graph.productions[n].gives < 0]
    for item in graph.required:
        stack += [p for p in graph.makers[item] if p in has][:1]
    while stack:
        n = stack.pop()
        if n in keep:
            continue
        keep.add(n)
        for need in graph.productions[n].needs:
            made = [p for p in graph.makes(need) if p in has]
            if not any(p in keep for p in made):
                stack += made[:1]
    return sorted(keep)


def cost_of(graph: Graph, chosen: list[int]) -> int:
    return sum(graph.productions[n].cost for n in chosen)


def greedy(graph: Graph) -> list[int]:
    """A start: the widest stores first, each as vectors where that is cheaper than as scalars, given what is there."""
    have: dict[int, int] = {}  # item → production
    native: set[int] = set()
    chosen: list[int] = []

    estimate = estimates(graph)

    def cheapest(item: int) -> int:
        return min(graph.makers[item], key=lambda n: (estimate[n], n))

    def take(n: int) -> None:
        chosen.append(n)
        p = graph.productions[n]
        if p.gives >= 0:
            have[p.gives] = n
            if p.native:
                native.add(p.gives)
        for need in p.needs:
            if any(i in have and (not need.native or i in native) for i in need.items):
                continue
            if need.native:
                item = min(need.items, key=lambda i: min((estimate[m] for m in graph.natives[i]), default=1e9))
                take(min(graph.natives[item], key=lambda m: estimate[m]))
            else:
                take(cheapest(need.items[0]))

    done: set[int] = set()
    scalar_of = {m: ways[0] for m, ways in graph.stores.items()}
    windows = sorted(
        {n for ways in graph.stores.values() for n in ways if graph.productions[n].kind == "store"},
        key=lambda n: (-len(graph.productions[n].members), n),
    )
    for n in windows:
        members = graph.productions[n].members
        if any(m in done for m in members):
            continue
        if estimate[n] < sum(estimate[scalar_of[m]] for m in members):
            take(n)
            done.update(members)
    for m, n in scalar_of.items():
        if m not in done:
            take(n)
    for item in graph.required:
        if item not in have:
            take(cheapest(item))
    return used(graph, chosen)


def estimates(graph: Graph) -> list[float]:
    """What each production costs with all it needs, where what several read is shared between them."""
    return list(flat(graph).estimates.tolist())
