"""Down-sets ("ideals") of a DAG: the sets that hold every predecessor of what they hold.

A contiguous split of a graph into stages is a chain of ideals, so whoever searches for one searches over ideals. All
are found level by level, by size, with a few array operations a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from heddle.graph.dag import Dag, Floats, Ints
from heddle.graph.deadline import check

Bools = NDArray[np.bool_]


class TooManyIdeals(Exception):  # noqa: N818 - it is an answer, not a mistake of the user
    """There are more ideals than the caller wants to see."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"more than {limit:,} ideals")


@dataclass(frozen=True, eq=False)
class Ideals:
    """Ideals as bitsets, from the empty set to the whole, ordered by size."""

    nodes: int
    words: NDArray[np.uint64]  # (count, words): node v is bit v % 64 of word v // 64

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def members(self) -> Bools:
        """(count, nodes): who is in."""
        octets = self.words.view(np.uint8).reshape(len(self.words), -1)
        return np.unpackbits(octets, axis=1, count=self.nodes, bitorder="little").view(np.bool_)

    @cached_property
    def dense(self) -> Floats:
        """The members as 0.0 and 1.0: sums over sets are then matrix products."""
        return self.members.astype(np.float64)

    @cached_property
    def sizes(self) -> Ints:
        return np.asarray(self.members.sum(axis=1), dtype=np.int64)

    def total(self, weights: Floats) -> Floats:
        """The weight of every ideal; weights (nodes,) or (nodes, several)."""
        return self.dense @ weights

    def difference(self, outer: int, inner: int) -> list[int]:
        """Nodes of one ideal that another one lacks."""
        return [int(node) for node in np.flatnonzero(self.members[outer] & ~self.members[inner])]


def pack(members: Bools) -> NDArray[np.uint64]:
    """Rows of booleans to rows of 64-bit words."""
    count, nodes = members.shape
    words = max(1, -(-nodes // 64))
    octets = np.zeros((count, words * 8), dtype=np.uint8)
    packed = np.packbits(members, axis=1, bitorder="little")
    octets[:, : packed.shape[1]] = packed
    return octets.view(np.uint64)


def enumerate_ideals(graph: Dag, limit: int = 1_000_000, deadline: float = np.inf) -> Ideals:
    """All ideals of an acyclic graph.

    Raises:
        TooManyIdeals: there are more than `limit`.
        OutOfTime: the deadline passed before all were found.
    """
    nodes = graph.nodes
    leads = np.zeros((nodes, nodes), dtype=np.int16)  # leads[u, v]: v waits for u
    leads[graph.tails, graph.heads] = 1
    # A set is known by the sum of its members' random numbers: 64 bits, so that two sets never meet in practice.
    marks = np.random.default_rng(0).integers(0, 2**64, nodes, dtype=np.uint64)

    members = np.zeros((1, nodes), dtype=np.bool_)
    missing = leads.sum(axis=0, dtype=np.int16)[None]  # (ideals, nodes): predecessors that are not in yet
    marked = np.zeros(1, dtype=np.uint64)
    levels, count = [pack(members)], 1
    for _ in range(nodes):
        check(deadline)
        parent, node = np.nonzero((missing == 0) & ~members)
        marked, first = np.unique(marked[parent] + marks[node], return_index=True)
        parent, node = parent[first], node[first]
        count += len(first)
        if count > limit:
            raise TooManyIdeals(limit)
        members = members[parent]
        members[np.arange(len(node)), node] = True
        missing = missing[parent] - leads[node]
        levels.append(pack(members))
    return Ideals(nodes, np.concatenate(levels))


def linear_extension(graph: Dag) -> list[int]:
    """A topological order that goes deep first: it finishes a branch before it begins the next one.

    Few edges then cross any cut of the order, which is what makes it a good line to split along.
    """
    waiting = [len(before) for before in graph.predecessors]
    stack = [node for node in reversed(range(graph.nodes)) if not waiting[node]]
    order = []
    while stack:
        node = stack.pop()
        order.append(node)
        for after in reversed(graph.successors[node]):
            waiting[after] -= 1
            if not waiting[after]:
                stack.append(after)
    return order


def chain(nodes: int, order: Sequence[int], sizes: Sequence[int] | None = None) -> Ideals:
    """The ideals of one linear extension: its prefixes, or those of the given sizes, ascending from 0 to all."""
    place = np.empty(nodes, dtype=np.int64)
    place[np.array(order, dtype=np.int64)] = np.arange(nodes)
    ends = np.arange(nodes + 1) if sizes is None else np.asarray(sizes)
    return Ideals(nodes, pack(place[None, :] < ends[:, None]))
