"""Operators that may as well share a device, because apart they could hardly do better.

The exact search goes over the ideals of a graph, and small side branches multiply those. An operator that takes no time
(a view) is fused where that cannot cost anything; those that take little only as far as the search needs it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from heddle.capturing.program import Program, bytes_of, is_part
from heddle.graph.dag import Dag, Floats, Ints
from heddle.graph.ideals import TooManyIdeals, enumerate_ideals
from heddle.graph.merge import components, contract

IDEALS = 20_000  # the exact search takes a second or so for these
SHARES = (0.0, 1e-4, 1e-3, 3e-3, 1e-2)  # of all time: what counts as little, from one try to the next
SMALL = 0.01  # of a tensor: so much more to move is no reason to keep operators apart


def fused(program: Program, seconds: Floats, size: Floats) -> Ints:
    """For each operator the group it belongs to."""
    order = Dag.from_edges(
        len(program.operators),
        [(program.places[node], program.places[after]) for node in program.operators for after in program.users(node)],
    )
    group = components(order.nodes, _must(program))
    for share in SHARES:
        group = _fuse(program, order, group, seconds, size, share)
        groups, _ = contract(order, group)
        try:
            enumerate_ideals(groups, IDEALS)
            break
        except TooManyIdeals:
            continue
    return group


def _must(program: Program) -> Iterator[list[int]]:
    """Outputs of one operator, and what reads or writes a buffer that changes."""
    places = program.places
    buffers: dict[str, list[int]] = {}
    for number, node in enumerate(program.operators):
        if is_part(node):
            yield [places[node.all_input_nodes[0]], number]
        elif number and not program.users(node) and not any(other in places for other in node.all_input_nodes):
            yield [number - 1, number]  # a counter beside a buffer: it moves nothing, and may be anywhere
        names = {program.state.get(held.name, "") for held in program.held(node)} & set(program.mutated.values())
        names |= {program.mutated[node.name]} if node.name in program.mutated else set()
        for name in names:
            buffers.setdefault(name, []).append(number)
    yield from buffers.values()


def _fuse(program: Program, order: Dag, group: Ints, seconds: Floats, size: Floats, share: float) -> Ints:
    """Give small groups to a neighbor, as long as no cut becomes dearer by that."""
    out = np.array([bytes_of(node) for node in program.operators], dtype=np.float64)
    little, light = share * seconds.sum(), share * size.sum()
    for _ in range(20):  # a chain of small ones is fused link by link
        groups, group = contract(order, group)
        takes = np.bincount(group, seconds, minlength=groups.nodes)
        holds = np.bincount(group, size, minlength=groups.nodes)
        small = (takes <= little) & (holds <= light)
        enters, leaves, users = _traffic(order, group, out)
        taken: set[int] = set()
        pairs = []
        for g in np.flatnonzero(small).tolist():
            before, after = groups.predecessors[g], groups.successors[g]
            joined = -1
            if len(before) == 1 and leaves[g] <= enters[g] * (1 if users[before[0]] == {g} else SMALL):
                joined = before[0]
            elif (len(after) == 1 and (enters[g] <= leaves[g] or not before)) or (not before and after):
                joined = after[0]
            if joined >= 0 and not {g, joined} & taken:
                taken |= {g, joined}
                pairs.append((joined, g))
        if not pairs:
            break
        group = components(groups.nodes, pairs)[group]
    return group


def _traffic(order: Dag, group: Ints, out: Floats) -> tuple[Floats, Floats, list[set[int]]]:
    """Bytes that enter and leave each group, every tensor once, and the groups that each one feeds."""
    count = int(group.max()) + 1
    enters, leaves = np.zeros(count), np.zeros(count)
    users: list[set[int]] = [set() for _ in range(count)]
    for tail, after in enumerate(order.successors):
        fed = {int(group[head]) for head in after} - {int(group[tail])}
        users[group[tail]] |= fed
        leaves[group[tail]] += out[tail] * bool(fed)
        for g in fed:
            enters[g] += out[tail]
    return enters, leaves, users
