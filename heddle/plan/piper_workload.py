"""Piper's input: a graph of layers, each with times and memory for every tensor degree and memory option.

The format is that of the published program (Tarnawski, Narayanan, Phanishayee, "Piper: Multidimensional Planner for DNN
Parallelization", NeurIPS 2021). Its options of a layer are called TMPCs there; recomputation is one of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heddle.errors import HeddleError
from heddle.graph.dag import Dag, Floats, index_nodes, position_of
from heddle.graph.ideals import Bools
from heddle.spec.read import read_json


@dataclass(frozen=True)
class Tie:
    """What a stage saves that holds both of two layers, for they share weights."""

    layers: tuple[int, int]
    seconds: float
    bytes: float


@dataclass(frozen=True, eq=False)
class Options:
    """What the layers of a stage cost at one tensor degree. An option that a layer lacks takes infinitely long.

    The fields from `data` on are for workloads that Heddle makes itself; the published format has no words for them.
    """

    tensor: int
    names: list[list[str]]  # of each layer's options
    seconds: Floats  # (layers, options): forward and backward of one microbatch
    parameters: Floats  # (layers, options): bytes to synchronise between replicas
    stashed: Floats  # (layers, options): bytes held for each microbatch in flight
    fixed: Floats  # (layers, options): bytes held anyway
    receive: Floats  # (edges,): bytes where the stage has the head but not the tail of an edge
    send: Floats  # (edges,): bytes where it has the tail but not the head
    data: tuple[int, ...] | None = None  # the data degrees that this holds for; None: all
    how: str = ""  # what else a stage with these options does: "sequence, zero 1"
    peaks: Floats | None = None  # (layers,): bytes held for a moment; of a stage's layers, only the largest counts
    start: float = 0.0  # seconds that a stage takes whatever its layers are
    tie: Tie | None = None

    @property
    def available(self) -> Floats:
        """(layers,): 1.0 where the layer can be run at this degree."""
        return np.asarray(np.isfinite(self.seconds).any(axis=1), dtype=np.float64)

    @property
    def cheapest(self) -> Floats:
        """(layers,): device-seconds of each, at least."""
        least: Floats = self.tensor * self.seconds.min(axis=1)
        if self.tie is not None:
            least[self.tie.layers[1]] = max(0.0, least[self.tie.layers[1]] - self.tensor * self.tie.seconds)
        return least

    @property
    def alone(self) -> Floats:
        """(layers,): bytes of each, if it were a stage with one microbatch in flight."""
        least: Floats = (self.stashed + self.fixed).min(axis=1)
        return least if self.peaks is None else least + self.peaks


@dataclass(frozen=True, eq=False)
class Workload:
    """What Piper plans for."""

    graph: Dag
    layers: list[Any]  # their ids in the file
    names: list[str]
    degrees: list[Options]  # ascending tensor degree
    devices: int
    memory: float  # bytes a device
    bandwidth: float  # bytes a second
    microbatches: int  # in a batch
    core: Bools | None = None  # (layers,): the runtime's stages hold at least one of these; None: of any

    def replace(self, **changes: Any) -> Workload:
        """The same layers on other devices."""
        changed = dataclasses.replace(self, **{name: value for name, value in changes.items() if value is not None})
        return _checked(changed)

    def why_nothing_fits(self) -> str:
        """The reason, when there is no plan."""
        alone = np.min([options.alone for options in self.degrees], axis=0)
        worst = int(np.argmax(alone))
        if alone[worst] <= self.memory:
            return (
                f"Every layer fits alone, but no split over {self.devices} devices keeps all stages within the memory."
            )
        name = f"{self.names[worst]} (layer {self.layers[worst]})"
        return f"{name} alone needs {alone[worst] / 2**30:.2f} GiB with one microbatch in flight."


def read_workload(path: Path) -> Workload:
    """Read a file of the published format."""
    return workload_from(read_json(path, "a Piper workload: nodes with TMPCs, and edges"), path.name)


def workload_from(document: Mapping[str, Any], what: str = "The workload") -> Workload:
    """Make a workload from the published format's document."""
    for key in ("nodes", "edges", "bandwidth", "mbsInBatch", "maxDevices", "maxMemoryPerDevice"):
        if key not in document:
            raise HeddleError(f"{what} lacks '{key}'.", "A Piper workload has nodes, edges and the devices' numbers.")
    nodes, edges = document["nodes"], document["edges"]
    if not nodes:
        raise HeddleError(f"{what} has no nodes.", "There is nothing to plan.", "Give it at least one layer.")
    positions = index_nodes([node.get("id") for node in nodes], what)
    ends = []
    for number, edge in enumerate(edges):
        tail, head = (position_of(edge.get(key), positions, f"edge {number}", what) for key in ("sourceId", "destId"))
        ends.append((tail, head))
        _not_negative(edge.get("communicationCost", 0), f"edge {number}", "communicationCost", what)
    graph = Dag.from_edges(len(nodes), ends)
    layers = [node["id"] for node in nodes]
    graph.require_acyclic(layers, what)
    moved = np.array([float(edge.get("communicationCost", 0)) for edge in edges])
    degrees = sorted({int(degree) for node in nodes for degree in node.get("TMPCs", {})})
    if not degrees:
        raise HeddleError(f"{what} has no TMPCs.", "Every layer needs times and memory for at least one degree.")
    workload = Workload(
        graph,
        layers,
        [str(node.get("name", node["id"])) for node in nodes],
        [_options(nodes, edges, ends, moved, degree, what) for degree in degrees],
        int(document["maxDevices"]),
        float(document["maxMemoryPerDevice"]),
        float(document["bandwidth"]),
        int(document["mbsInBatch"]),
    )
    return _checked(workload)


def _checked(workload: Workload) -> Workload:
    wrong = {
        "devices": (workload.devices, "at least one device to plan for", "--devices 8"),
        "memory": (workload.memory, "some memory on each device", "--memory-gib 80"),
        "bandwidth": (workload.bandwidth, "a bandwidth above 0", "--bandwidth-gib 25"),
        "microbatches": (workload.microbatches, "at least one microbatch in a batch", "--microbatches 512"),
    }
    for name, (value, rule, example) in wrong.items():
        if not (value > 0 and math.isfinite(value)):
            raise HeddleError(f"{name} = {value} leaves nothing to plan.", f"There must be {rule}.", f"Try {example}.")
    return workload


def _options(
    nodes: list[dict[str, Any]],
    edges: list[dict[str, Any]],
    ends: list[tuple[int, int]],
    moved: Floats,
    degree: int,
    what: str,
) -> Options:
    offered = [node.get("TMPCs", {}).get(str(degree), []) for node in nodes]
    shape = (len(nodes), max(len(options) for options in offered))
    columns = {
        "timePerSample": np.full(shape, np.inf),
        "parameterSize": np.zeros(shape),
        "memoryUsageA": np.full(shape, np.inf),
        "memoryUsageB": np.full(shape, np.inf),
    }
    for layer, options in enumerate(offered):
        for number, option in enumerate(options):
            for key, column in columns.items():
                value = _not_negative(option.get(key, 0), f"layer {nodes[layer]['id']}", key, what)
                column[layer, number] = value
    # syncTimeFw is keyed by the tails of a layer's in-edges, syncTimeBw by the heads of its out-edges.
    receive, send = 2 * moved, 2 * moved  # an activation and its gradient
    for number, (tail, head) in enumerate(ends):
        source, target = str(edges[number]["sourceId"]), str(edges[number]["destId"])
        receive[number] += 2 * _relayout(offered[head], "syncTimeFw", source, nodes[head]["id"], what)
        send[number] += 2 * _relayout(offered[tail], "syncTimeBw", target, nodes[tail]["id"], what)
    return Options(
        degree,
        [[str(option.get("id", number)) for number, option in enumerate(options)] for options in offered],
        columns["timePerSample"],
        columns["parameterSize"],
        columns["memoryUsageA"],
        columns["memoryUsageB"],
        receive,
        send,
    )


def _relayout(options: list[dict[str, Any]], key: str, neighbour: str, layer: Any, what: str) -> float:
    """Bytes to lay an activation out anew. All options of a layer and degree must agree, as they do when published."""
    values = {_not_negative((o.get(key) or {}).get(neighbour, 0), f"layer {layer}", key, what) for o in options}
    if len(values) > 1:
        raise HeddleError(
            f"{what}: the options of layer {layer} differ in {key} for {neighbour}: {sorted(values)}.",
            "Which option is best would then depend on where the stage ends, and Piper chooses options before.",
            f"Give all options of one tensor degree the same {key}.",
        )
    return values.pop() if values else 0.0


def _not_negative(value: Any, where: str, key: str, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise HeddleError(
            f"{what}: {key} = {value!r} of {where} is no cost.", "Times and bytes are numbers, 0 or more."
        )
    return float(value)
