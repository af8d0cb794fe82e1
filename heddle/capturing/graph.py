"""The operator graph of a captured program, in the shape that placement takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import fx

from heddle.capturing.fuse import fused
from heddle.capturing.program import Program, bytes_of, is_part
from heddle.capturing.times import Times
from heddle.graph.dag import Dag
from heddle.planning.placement.operator_graph import OperatorGraph


@dataclass(frozen=True, eq=False, repr=False)
class CapturedGraph(OperatorGraph):
    """An operator graph that knows the program it stands for."""

    unit: ClassVar[str] = "ms"

    program: Program
    times: Times

    def parts(self, devices: list[list[str]]) -> list[list[fx.Node]]:
        """The forward operators that devices got, in the order in which devices pass tensors on."""
        number = {name: device for device, names in enumerate(devices) for name in names}
        where = [number[node.name] for node in self.program.operators]
        used = sorted(set(where))
        rank = {device: place for place, device in enumerate(used)}
        pairs = {
            (rank[where[i]], rank[where[self.program.places[after]]])
            for i, node in enumerate(self.program.operators)
            for after in self.program.users(node)
        }
        order = Dag.from_edges(len(used), [pair for pair in sorted(pairs) if pair[0] != pair[1]]).order
        assert len(order) == len(used), "devices do not form a pipeline"
        return [[node for i, node in enumerate(self.program.operators) if where[i] == used[stage]] for stage in order]


def graph_of(program: Program, times: Times, devices: int, memory: float) -> CapturedGraph:
    """Operators with their times; backward ones beside their forward twins where the program is for training.

    The gradient of a tensor goes back the way the tensor came, and once for each device, so its time is counted on the
    edges of the tensor. A parameter that several operators read is counted for each of them.
    """
    forward = program.operators
    twins = [number for number, node in enumerate(forward) if program.training and node in program.differentiable]
    twin = {number: len(forward) + place for place, number in enumerate(twins)}
    edges = [(program.places[node], program.places[after]) for node in forward for after in program.users(node)]
    backward_edges = [(twin[head], twin[tail]) for tail, head in edges if tail in twin and head in twin]
    ends = [
        number
        for number in twins
        if not any(after in program.differentiable for after in program.users(forward[number]))
    ]
    turns = [(number, twin[number]) for number in ends]  # where the way back begins
    count = len(forward) + len(twins)
    takes = 1e3 * np.array([*times.forward, *(times.backward[number] for number in twins)])
    back = 1e3 * np.array(times.backward)
    move = np.zeros(count)
    size = np.zeros(count)
    for number, node in enumerate(forward):
        if program.users(node) and not _several(node):
            move[number] = 1e3 * (1 + (number in twin)) * times.move(bytes_of(node))
        size[number] = sum(bytes_of(held) * (1 + (held in program.differentiable)) for held in program.held(node))
    group = fused(program, takes[: len(forward)] + back, size[: len(forward)])
    colors = [int(group[number]) for number in range(len(forward))]
    return CapturedGraph(
        graph=Dag.from_edges(count, [*edges, *backward_edges, *turns]),
        operators=[*(node.name for node in forward), *(f"{forward[number].name}'" for number in twins)],
        names=[*map(program.where, forward), *(f"{program.where(forward[number])}'" for number in twins)],
        accelerator=takes,
        cpu=takes.copy(),
        size=size,
        supported=np.ones(count, dtype=np.bool_),
        backward=np.arange(count) >= len(forward),
        colors=[*colors, *(colors[number] for number in twins)],
        move=move,
        accelerators=devices,
        cpus=0,
        memory=memory,
        program=program,
        times=times,
    )


def _several(node: fx.Node) -> bool:
    return any(is_part(after) for after in node.users)
