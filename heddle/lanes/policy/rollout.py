"""Decisions one after another, from the stores upwards: every item that is asked for gets one of its productions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heddle.lanes.packs import Graph, Need
from heddle.lanes.policy.network import Features

LOOK_AGAIN = 3  # rounds of decisions after which the network sees what was decided


@dataclass
class State:
    """What is decided, and what that asks for."""

    graph: Graph
    chosen: list[int] = field(default_factory=list)
    has: set[int] = field(default_factory=set)
    stored: set[int] = field(default_factory=set)

    def take(self, n: int) -> None:
        if n not in self.has:
            self.has.add(n)
            self.chosen.append(n)
            if self.graph.productions[n].gives < 0:
                self.stored.update(self.graph.productions[n].members)

    def asked(self) -> list[Need]:
        """Needs that nothing meets yet."""
        needs = dict.fromkeys(need for n in self.chosen for need in self.graph.productions[n].needs)
        needs |= dict.fromkeys(Need((item,)) for item in self.graph.required)
        return [need for need in needs if not self.has.intersection(self.graph.makes(need))]

    def marked(self, f: Features) -> Features:
        """The features with this state in them."""
        items, productions = f.items.copy(), f.productions.copy()
        for need in self.asked():
            items[list(need.items), -3] = 1
        for n in self.chosen:
            productions[n, -1] = 1
            p = self.graph.productions[n]
            if p.gives >= 0:
                items[p.gives, -2] = 1
                items[p.gives, -1] = p.native
        return Features(items, productions, f.gives, f.need_of, f.need_item)


def roll(
    graph: Graph,
    f: Features,
    score: Callable[[Features], np.ndarray[Any, Any]],
    banned: frozenset[int] = frozenset(),
    noise: np.random.Generator | None = None,
    first: np.ndarray[Any, Any] | None = None,
) -> tuple[State, list[State]]:
    """Decide everything. Also the states at which the network looked.

    Illegal productions are never considered: a store that is done already, an item without a way to be made.
    """
    state = State(graph)
    seen = []
    rounds = 0
    value = first
    while True:
        store = next((i for i in graph.stores if i not in state.stored), None)
        asked = state.asked() if store is None else []
        if store is None and not asked:
            return state, seen
        if value is None or (store is None and rounds % LOOK_AGAIN == 0):
            seen.append(State(graph, list(state.chosen), set(state.has), set(state.stored)))
            value = score(state.marked(f))
        shaken = value if noise is None else value + noise.gumbel(size=value.shape) * 0.5
        if store is not None:
            for i, ways in graph.stores.items():
                if i not in state.stored:
                    open_ways = [
                        n
                        for n in ways
                        if n not in banned and not state.stored.intersection(graph.productions[n].members)
                    ]
                    state.take(max(open_ways, key=lambda n: (shaken[n], -n)))
            continue
        rounds += 1
        for need in asked:
            ways = graph.makes(need)
            if not state.has.intersection(ways):
                kept = [n for n in ways if n not in banned] or ways
                state.take(max(kept, key=lambda n: (shaken[n], -n)))
