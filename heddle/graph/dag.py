"""A directed graph as two integer arrays: edge e leads from tails[e] to heads[e]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import HeddleError, nearest, shorten

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Dag:
    """Nodes 0 … nodes-1. Parallel edges are allowed; weights live in arrays of whoever needs them."""

    nodes: int
    tails: Ints
    heads: Ints

    @staticmethod
    def from_edges(nodes: int, edges: Sequence[tuple[int, int]]) -> Dag:
        """Make a graph from pairs (tail, head)."""
        pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
        return Dag(nodes, pairs[:, 0].copy(), pairs[:, 1].copy())

    @property
    def reverse(self) -> Dag:
        """Every edge turned round: its down-sets are the up-sets of this graph."""
        return Dag(self.nodes, self.heads, self.tails)

    @cached_property
    def successors(self) -> list[list[int]]:
        """For each node the nodes its edges lead to, each once, ascending."""
        return _neighbors(self.nodes, self.tails, self.heads)

    @cached_property
    def predecessors(self) -> list[list[int]]:
        """For each node the nodes whose edges lead to it, each once, ascending."""
        return _neighbors(self.nodes, self.heads, self.tails)

    @cached_property
    def order(self) -> list[int]:
        """A topological order; shorter than `nodes` where the graph has a cycle."""
        waiting = [len(before) for before in self.predecessors]
        ready = [node for node in range(self.nodes) if not waiting[node]]
        for node in ready:  # grows while it is read
            for after in self.successors[node]:
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
        return ready

    def cycle(self) -> list[int]:
        """Some cycle, its first node repeated at the end; empty where there is none."""
        stuck = set(range(self.nodes)) - set(self.order)
        if not stuck:
            return []
        # Every stuck node has a stuck predecessor, so walking back must come round.
        walk, seen = [min(stuck)], {min(stuck): 0}
        while True:
            before = next(node for node in self.predecessors[walk[-1]] if node in stuck)
            if before in seen:
                return [before, *reversed(walk[seen[before] :])]
            seen[before] = len(walk)
            walk.append(before)

    def require_acyclic(self, names: Sequence[Any], what: str) -> None:
        """Refuse a graph with a cycle, and show the cycle."""
        if found := self.cycle():
            shown = [str(names[node]) for node in found]
            if len(shown) > 12:
                shown = [*shown[:6], "…", *shown[-5:]]
            raise HeddleError(
                f"{what} has a cycle: {' → '.join(shown)}.",
                "Work can only be split along a graph without cycles.",
                "Remove one of these edges.",
            )


def _neighbors(nodes: int, source: Ints, target: Ints) -> list[list[int]]:
    lists: list[set[int]] = [set() for _ in range(nodes)]
    for u, v in zip(source.tolist(), target.tolist(), strict=True):
        lists[u].add(v)
    return [sorted(found) for found in lists]


def index_nodes(identities: Sequence[Any], what: str) -> dict[Any, int]:
    """Positions of nodes by their id; an id that comes twice is refused."""
    positions = {identity: position for position, identity in enumerate(identities)}
    if len(positions) < len(identities):
        twice = next(identity for position, identity in enumerate(identities) if positions[identity] != position)
        raise HeddleError(
            f"{what} has two nodes with the id {twice}.", "Edges name nodes by their id.", "Rename one of them."
        )
    return positions


def position_of(identity: Any, positions: dict[Any, int], edge: str, what: str) -> int:
    """Where the node of an edge stands; an unknown one is refused with the nearest that exists."""
    if type(identity) in (str, int) and identity in positions:
        return positions[identity]
    known = [str(name) for name in positions]
    hint = nearest(str(identity), known) if len(known) <= 20 else f"Ids run from {known[0]} to {known[-1]}."
    raise HeddleError(
        f"{what}: {edge} names the node {shorten(identity)}, which does not exist.",
        "Both ends of an edge must be nodes.",
        hint,
    )
