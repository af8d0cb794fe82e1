"""Operator graphs for device placement: the published format, and the smaller problem that solvers see.

"Efficient Algorithms for Device Placement of DNN Graph Operators" (Tarnawski, Phanishayee, Devanur, Mahajan, Nina
Paravecino, NeurIPS 2020). Operators that must share a device become one *group*: those of a color class, and a
backward operator with its forward twin. What a group order must respect are forward edges, and mirrored backward edges
of groups that have no forward part.

The output of an operator is moved once for each accelerator that makes it but is not alone in using it, or uses it but
does not make it. So an operator and its users are a *net* (a hyperedge over groups), and an accelerator pays for a net
that it holds some groups of, but not all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.graph.dag import Dag, Floats, Ints, index_nodes, position_of
from heddle.graph.document import LARGEST, LONGEST, MOST_EDGES, MOST_NODES, Document
from heddle.graph.ideals import Bools
from heddle.graph.merge import components, contract, quotient
from heddle.spec.tables import read_json

MOST_DEVICES = 1024  # of either kind: the tables of the dynamic program grow with their product


@dataclass(frozen=True, eq=False)
class OperatorGraph:
    """Operators with times on either kind of device, and what moves between them."""

    unit: ClassVar[str] = ""  # of times: a file does not say

    graph: Dag
    operators: list[Any]  # ids in the file
    names: list[str]
    accelerator: Floats  # time
    cpu: Floats  # time
    size: Floats  # bytes
    supported: Bools  # on accelerators
    backward: Bools
    colors: list[Any]  # None: no color
    move: Floats  # of each operator: time to move its output to or from an accelerator
    accelerators: int
    cpus: int
    memory: float  # bytes an accelerator

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.graph.nodes:,} operators, {len(self.graph.tails):,} edges>"

    @cached_property
    def problem(self) -> PlacementProblem:
        """The problem whose parts are contiguous: what lies between two groups of a part belongs to it."""
        return _problem(self, contiguous=True)

    @cached_property
    def loose(self) -> PlacementProblem:
        """The problem with parts of any kind. Its order may have cycles, which do not matter then."""
        return _problem(self, contiguous=False)


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Groups of operators to place."""

    order: Dag  # of groups
    group: Ints  # of each operator
    accelerator: Floats
    cpu: Floats
    size: Floats
    supported: Bools
    nets: Bools  # (nets, groups)
    cost: Floats  # (nets,)
    accelerators: int
    cpus: int
    memory: float

    @property
    def groups(self) -> int:
        return len(self.accelerator)

    def accelerator_load(self, held: Bools) -> float:
        """Time and moves of an accelerator that holds these groups."""
        count = self.nets[:, held].sum(axis=1)
        cut = (count > 0) & (count < self.nets.sum(axis=1))
        return float(self.accelerator[held].sum() + self.cost[cut].sum())


def read_graph(path: Path) -> OperatorGraph:
    """Read a file of the published format."""
    return graph_from(read_json(path, "an operator graph: nodes and edges"), path.name)


KEYS = ("nodes", "edges", "maxFPGAs", "maxCPUs", "maxSizePerFPGA")


def graph_from(content: Mapping[str, Any], what: str = "The graph") -> OperatorGraph:
    """Make an operator graph from the published format's document."""
    document = Document(content, what)
    document.need(KEYS, "An operator graph has nodes, edges and the devices' numbers.")
    nodes = document.tables("nodes", MOST_NODES, "node")
    edges = document.tables("edges", MOST_EDGES, "edge")
    if not nodes:
        raise HeddleError(f"{what} has no nodes.", "There is nothing to place.", "Give it at least one operator.")
    operators = [document.identity(node.get("id"), f"node {number}") for number, node in enumerate(nodes)]
    where = [f"node {operator}" for operator in operators]
    positions = index_nodes(operators, what)

    def column(key: str, most: float = LONGEST) -> Floats:
        return np.array(
            [document.number(node.get(key, 0), key, name, most) for node, name in zip(nodes, where, strict=True)]
        )

    def flags(key: str, default: bool) -> Bools:
        return np.array(
            [document.flag(node.get(key, default), key, name) for node, name in zip(nodes, where, strict=True)]
        )

    move = np.zeros(len(nodes))
    ends = []
    for number, edge in enumerate(edges):
        tail, head = (position_of(edge.get(key), positions, f"edge {number}", what) for key in ("sourceId", "destId"))
        ends.append((tail, head))
        move[tail] = max(move[tail], document.number(edge.get("cost", 0), "cost", f"edge {number}"))
    graph = Dag.from_edges(len(nodes), ends)
    graph.require_acyclic(operators, what)
    colors = [node.get("colorClass") for node in nodes]
    return OperatorGraph(
        graph,
        operators,
        [document.word(node.get("name", node["id"]), name) for node, name in zip(nodes, where, strict=True)],
        column("fpgaLatency"),
        column("cpuLatency"),
        column("size", LARGEST),
        flags("supportedOnFpga", True),
        flags("isBackwardNode", False),
        [
            color if color is None else document.identity(color, f"the color of {name}")
            for color, name in zip(colors, where, strict=True)
        ],
        move,
        document.whole("maxFPGAs", 0, MOST_DEVICES),
        document.whole("maxCPUs", 0, MOST_DEVICES),
        document.number(content["maxSizePerFPGA"], "maxSizePerFPGA", "the devices", LARGEST),
    )


def _problem(graph: OperatorGraph, contiguous: bool) -> PlacementProblem:
    """Merge what must or may as well stay together, and check that every group fits somewhere."""
    classes: dict[Any, list[int]] = {}
    for operator, color in enumerate(graph.colors):
        if color is not None:
            classes.setdefault(color, []).append(operator)
    group = components(graph.graph.nodes, classes.values())
    # A group without forward operators stands where its twin would: its edges are turned round.
    forward = np.zeros(int(group.max()) + 1, dtype=np.bool_)
    forward[group[~graph.backward]] = True
    tails, heads = graph.graph.tails, graph.graph.heads
    ahead = ~graph.backward[tails] & ~graph.backward[heads]
    mirrored = graph.backward[tails] & graph.backward[heads] & ~(forward[group[tails]] & forward[group[heads]])
    order = Dag(
        graph.graph.nodes,
        np.concatenate([tails[ahead], heads[mirrored]]),
        np.concatenate([heads[ahead], tails[mirrored]]),
    )
    close = contract if contiguous else _as_they_are
    groups, group = close(order, group)
    groups, group = close(order, _absorb(graph, groups, group)[group])
    problem = _build(graph, groups, group)
    _check(graph, problem)
    return problem


def _as_they_are(order: Dag, group: Ints) -> tuple[Dag, Ints]:
    return quotient(order, group), group


def _absorb(graph: OperatorGraph, order: Dag, group: Ints) -> Ints:
    """Groups that cost nothing and have a single neighbor belong to it: apart, they could only add a move.

    That they could leave memory to others elsewhere counts only if memory is short at all.
    """
    weightless = (graph.size == 0) | (graph.size.sum() <= graph.memory)
    free = np.ones(order.nodes, dtype=np.bool_)
    np.logical_and.at(free, group, (graph.accelerator == 0) & (graph.cpu == 0) & weightless & graph.supported)
    neighbors = [set(b) | set(a) for b, a in zip(order.predecessors, order.successors, strict=True)]
    used: list[set[int]] = [set() for _ in range(order.nodes)]
    for tail, head in zip(group[graph.graph.tails].tolist(), group[graph.graph.heads].tolist(), strict=True):
        if tail != head:
            used[tail].add(head)
            used[head].add(tail)
    pairs = [
        (next(iter(neighbors[node])), node)
        for node in range(order.nodes)
        if free[node] and len(neighbors[node]) == 1 and used[node] <= neighbors[node]
    ]
    return components(order.nodes, pairs)


def _build(graph: OperatorGraph, order: Dag, group: Ints) -> PlacementProblem:
    count = order.nodes

    def total(values: Floats) -> Floats:
        return np.bincount(group, values, minlength=count).astype(np.float64)

    supported = np.ones(count, dtype=np.bool_)
    np.logical_and.at(supported, group, graph.supported)
    reach: dict[int, set[int]] = {}
    for tail, head in zip(graph.graph.tails.tolist(), group[graph.graph.heads].tolist(), strict=True):
        reach.setdefault(tail, {int(group[tail])}).add(head)
    costs: dict[frozenset[int], float] = {}
    for tail, members in reach.items():
        if len(members) > 1 and graph.move[tail] > 0:
            net = frozenset(members)
            costs[net] = costs.get(net, 0.0) + float(graph.move[tail])
    nets = np.zeros((len(costs), count), dtype=np.bool_)
    for number, net in enumerate(costs):
        nets[number, list(net)] = True
    return PlacementProblem(
        order,
        group,
        total(graph.accelerator),
        total(graph.cpu),
        total(graph.size),
        supported,
        nets,
        np.array(list(costs.values())),
        graph.accelerators,
        graph.cpus,
        graph.memory,
    )


def _check(graph: OperatorGraph, problem: PlacementProblem) -> None:
    counts = (problem.accelerators, problem.cpus)
    if not all(0 <= count <= MOST_DEVICES for count in counts) or not any(counts):
        raise HeddleError(
            f"There are {problem.accelerators} accelerators and {problem.cpus} CPUs.",
            f"Operators need at least one device, and at most {MOST_DEVICES:,} of each kind.",
            "Try --devices 2.",
        )
    if not problem.memory >= 0:
        raise HeddleError(
            f"Accelerator memory must be 0 or more, got {problem.memory / GIB:g} GiB.",
            "Operators are placed where they fit.",
            "Try --memory-gib 16.",
        )
    if problem.cpus:
        return
    for reason, bad in (("does not run on accelerators", ~problem.supported), ("", problem.size > problem.memory)):
        for place in np.flatnonzero(bad)[:1]:
            members = np.flatnonzero(problem.group == place)
            first = int(members[graph.size[members].argmax()])
            others = f" and {len(members) - 1} that must share its device" if len(members) > 1 else ""
            needs = f"{problem.size[place] / GIB:.3g} GiB"
            raise HeddleError(
                f"Operator {graph.names[first]} (node {graph.operators[first]}){others} fits no device.",
                f"It {reason or f'needs {needs}, and an accelerator has {problem.memory / GIB:.3g} GiB'}; "
                "there is no CPU.",
                "Give a CPU (--cpus 1)." if reason else f"Give --memory-gib {problem.size[place] / GIB:.3g} or a CPU.",
            )


def document_of(graph: OperatorGraph) -> dict[str, Any]:
    """The published format's document of a graph: what `graph_from` reads."""
    return {
        "maxFPGAs": graph.accelerators,
        "maxCPUs": graph.cpus,
        "maxSizePerFPGA": graph.memory,
        "nodes": [
            {
                "id": operator,
                "name": graph.names[number],
                "fpgaLatency": float(graph.accelerator[number]),
                "cpuLatency": float(graph.cpu[number]),
                "size": float(graph.size[number]),
                "supportedOnFpga": int(graph.supported[number]),
                "isBackwardNode": int(graph.backward[number]),
                "colorClass": graph.colors[number],
            }
            for number, operator in enumerate(graph.operators)
        ],
        "edges": [
            {"sourceId": graph.operators[tail], "destId": graph.operators[head], "cost": float(graph.move[tail])}
            for tail, head in zip(graph.graph.tails.tolist(), graph.graph.heads.tolist(), strict=True)
        ],
    }
