"""Decisions one after another, from the stores upwards: everything that is asked for gets one of its productions.

This is how the policy learns; when it decides, `search.c` does the same many times over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heddle.lanes.packs import Graph, Need
from heddle.lanes.policy.network import Features

LOOKS = 3  # at most so often the network sees what was decided; then its last scores hold

Scores = np.ndarray[Any, Any]


class Demands:
    """Every need of a graph by number, who meets it, and what each production asks for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        number: dict[Need, int] = {}
        self.needs: list[tuple[int, ...]] = []  # items
        self.ways: list[list[int]] = []  # productions that meet it
        self.wide: list[bool] = []
        self.asks: list[list[int]] = []  # needs of each production
        self.meets: list[list[int]] = [[] for _ in graph.productions]  # needs that each production meets
        for p in graph.productions:
            self.asks.append([number[a] if a in number else self._number(number, a) for a in p.needs])
        self.required = [self._number(number, Need((item,))) for item in graph.required]

    def _number(self, number: dict[Need, int], need: Need) -> int:
        if need not in number:
            n = number[need] = len(self.needs)
            ways = self.graph.makes(need)
            self.needs.append(need.items)
            self.ways.append(ways)
            self.wide.append(len(self.graph.items[need.items[0]].lanes) > 1)
            for p in ways:
                self.meets[p].append(n)
        return number[need]


@dataclass
class State:
    """What is decided, and what that asks for."""

    demands: Demands
    chosen: list[int] = field(default_factory=list)
    stored: set[int] = field(default_factory=set)
    met: set[int] = field(default_factory=set)
    asked: dict[int, None] = field(default_factory=dict)

    @classmethod
    def first(cls, demands: Demands) -> State:
        return cls(demands, asked=dict.fromkeys(demands.required))

    def copy(self) -> State:
        return State(self.demands, list(self.chosen), set(self.stored), set(self.met), dict(self.asked))

    def take(self, n: int) -> None:
        d = self.demands
        self.chosen.append(n)
        p = d.graph.productions[n]
        if p.gives < 0:
            self.stored.update(p.members)
        for need in d.meets[n]:
            self.met.add(need)
            self.asked.pop(need, None)
        for need in d.asks[n]:
            if need not in self.met:
                self.asked[need] = None

    def open_stores(self) -> list[int]:
        return [i for i in self.demands.graph.stores if i not in self.stored]

    def marked(self, f: Features) -> Features:
        """The features with this state in them."""
        items, productions = f.items.copy(), f.productions.copy()
        for need in self.asked:
            items[list(self.demands.needs[need]), -3] = 1
        for n in self.chosen:
            productions[n, -1] = 1
            p = self.demands.graph.productions[n]
            if p.gives >= 0:
                items[p.gives, -2] = 1
                items[p.gives, -1] = p.native
        return f.with_state(items, productions)


def roll(demands: Demands, f: Features, score: Callable[[Features], Scores]) -> tuple[State, list[State]]:
    """Decide everything: stores, then vectors, then scalars. Also the states at which the network looked.

    Only legal productions are ever considered: not a store that is done already, nor an item nobody can make.
    """
    graph = demands.graph
    state = State.first(demands)
    seen: list[State] = []

    def look() -> list[float]:
        seen.append(state.copy())
        return list(score(state.marked(f)).tolist())

    value = look()
    for i, ways in graph.stores.items():
        if i not in state.stored:
            legal = [n for n in ways if state.stored.isdisjoint(graph.productions[n].members)]
            state.take(_highest(value, legal))
    while state.asked:
        if len(seen) < LOOKS:
            value = look()
        now = [need for need in state.asked if demands.wide[need]] or list(state.asked)
        for need in now:
            if need in state.asked:
                state.take(_highest(value, demands.ways[need]))
    return state, seen


def _highest(value: list[float], ways: list[int]) -> int:
    """The first of those with the highest score."""
    most = max([value[n] for n in ways])
    return min([n for n in ways if value[n] == most])
