"""Contraction: nodes that must stay together become one node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from heddle.graph.dag import Dag, Ints


def components(nodes: int, together: Iterable[Sequence[int]]) -> Ints:
    """For each node its class, where the nodes of each given set share one; classes count up from 0."""
    root = list(range(nodes))

    def find(node: int) -> int:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for members in together:
        for other in members[1:]:
            root[find(other)] = find(members[0])
    roots = np.array([find(node) for node in range(nodes)], dtype=np.int64)
    return np.unique(roots, return_inverse=True)[1].astype(np.int64)


def contract(graph: Dag, classes: Ints) -> tuple[Dag, Ints]:
    """The graph of classes, where classes on a common cycle are merged as well; and the class of each node.

    Classes of the answer are numbered in a topological order.
    """
    merged = quotient(graph, classes)
    strong = _strong_components(merged)
    classes = strong[classes]
    return quotient(graph, classes), classes


def quotient(graph: Dag, classes: Ints) -> Dag:
    count = int(classes.max()) + 1 if len(classes) else 0
    tails, heads = classes[graph.tails], classes[graph.heads]
    between = tails != heads
    keys = np.unique(tails[between] * count + heads[between])
    return Dag(count, keys // max(count, 1), keys % max(count, 1))


def _strong_components(graph: Dag) -> Ints:
    """Tarjan's algorithm without recursion; numbered in topological order."""
    index = [-1] * graph.nodes
    low = [0] * graph.nodes
    component = [-1] * graph.nodes
    stack: list[int] = []
    visited = found = 0
    for start in range(graph.nodes):
        if index[start] >= 0:
            continue
        work = [(start, 0)]
        while work:
            node, step = work.pop()
            if step == 0:
                index[node] = low[node] = visited
                visited += 1
                stack.append(node)
            else:
                low[node] = min(low[node], low[graph.successors[node][step - 1]])
            for position in range(step, len(graph.successors[node])):
                after = graph.successors[node][position]
                if index[after] < 0:
                    work.append((node, position + 1))
                    work.append((after, 0))
                    break
                if component[after] < 0:
                    low[node] = min(low[node], index[after])
            else:
                if low[node] == index[node]:
                    while component[node] < 0:
                        component[stack.pop()] = found
                    found += 1
    # Tarjan finishes the last component of a topological order first.
    return found - 1 - np.array(component, dtype=np.int64)
