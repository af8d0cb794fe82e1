"""Where every operator goes, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from heddle.graph.dag import Ints
from heddle.planning.placement.heuristics import loads_of
from heddle.planning.placement.operator_graph import OperatorGraph, PlacementProblem


@dataclass(frozen=True)
class PlacedDevice:
    """What one device got."""

    kind: Literal["accelerator", "cpu"]
    load: float
    memory: float  # bytes
    operators: list[Any]  # ids, in a topological order


@dataclass(frozen=True)
class Placement:
    """Where every operator goes."""

    objective: Literal["throughput", "latency"]
    method: str
    value: float
    lower_bound: float
    optimal: bool
    contiguous: bool  # devices form a pipeline: no edge leads back
    among: Literal["pipelines", "all"]  # what was searched, and what bound and optimum are about
    seconds: float
    devices: list[PlacedDevice]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        proof = "optimal" if self.optimal else f"at best {self.lower_bound:.4g}"
        return f"<Placement: {self.objective} {self.value:.4g} ({proof}) on {len(self.devices)} devices>"


def devices_of(graph: OperatorGraph, problem: PlacementProblem, assignment: Ints) -> list[PlacedDevice]:
    """What each device got."""
    loads = loads_of(problem, assignment)
    device = assignment[problem.group]
    operators: list[list[Any]] = [[] for _ in loads]
    for operator in graph.graph.order:
        operators[int(device[operator])].append(graph.operators[operator])
    held = np.bincount(device, graph.size, minlength=len(loads))
    return [
        PlacedDevice("accelerator" if m < problem.accelerators else "cpu", float(load), float(held[m]), operators[m])
        for m, load in enumerate(loads)
    ]
