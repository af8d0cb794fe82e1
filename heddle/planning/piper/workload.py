"""Piper's input: a graph of layers, each with times and memory for every tensor degree and memory option.

The format is that of the published program (Tarnawski, Narayanan, Phanishayee, "Piper: Multidimensional Planner for DNN
Parallelization", NeurIPS 2021). Its options of a layer are called TMPCs there; recomputation is one of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heddle.errors import HeddleError, shorten
from heddle.format import GIB
from heddle.graph.dag import Dag, Floats, index_nodes, position_of
from heddle.graph.document import LARGEST, LONGEST, MOST_EDGES, MOST_NODES, Document
from heddle.graph.ideals import Bools
from heddle.spec.tables import read_json

MOST_DEVICES = 16_384
MOST_MICROBATCHES = 1 << 20
MOST_NUMBERS = 1 << 27  # layers × options × microbatches in flight: a gibibyte
MOST_OPTIONS = 64  # of a layer at one degree


@dataclass(frozen=True)
class Tie:
    """What a stage saves that holds both of two layers, for they share weights."""

    layers: tuple[int, int]
    seconds: float
    bytes: float


@dataclass(frozen=True, eq=False)
class LayerOptions:
    """What the layers of a stage cost at one tensor degree. An option that a layer lacks takes infinitely long.

    The fields from `data` on are for workloads that Heddle makes itself; the published format has no words for them.
    """

    tensor: int
    names: list[list[str]]  # of each layer's options
    seconds: Floats  # (layers, options): forward and backward of one microbatch
    parameters: Floats  # (layers, options): bytes to synchronize between replicas
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
    degrees: list[LayerOptions]  # ascending tensor degree
    devices: int
    memory: float  # bytes per device
    bandwidth: float  # bytes per second
    microbatches: int  # in a batch
    core: Bools | None = None  # (layers,): the runtime's stages hold at least one of these; None: of any

    def __repr__(self) -> str:
        return f"<Workload: {self.graph.nodes:,} layers, {self.devices:,} devices of {self.memory / GIB:.4g} GiB>"

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
        return f"{name} alone needs {alone[worst] / GIB:.2f} GiB with one microbatch in flight."


def read_workload(path: Path) -> Workload:
    """Read a file of the published format."""
    return workload_from(read_json(path, "a Piper workload: nodes with TMPCs, and edges"), path.name)


KEYS = ("nodes", "edges", "bandwidth", "mbsInBatch", "maxDevices", "maxMemoryPerDevice")


def workload_from(content: Mapping[str, Any], what: str = "The workload") -> Workload:
    """Make a workload from the published format's document."""
    document = Document(content, what)
    document.need(KEYS, "A Piper workload has nodes, edges and the devices' numbers.")
    nodes = document.tables("nodes", MOST_NODES, "node")
    edges = document.tables("edges", MOST_EDGES, "edge")
    if not nodes:
        raise HeddleError(f"{what} has no nodes.", "There is nothing to plan.", "Give it at least one layer.")
    layers = [document.identity(node.get("id"), f"node {number}") for number, node in enumerate(nodes)]
    positions = index_nodes(layers, what)
    ends, moved = [], np.zeros(len(edges))
    for number, edge in enumerate(edges):
        tail, head = (position_of(edge.get(key), positions, f"edge {number}", what) for key in ("sourceId", "destId"))
        ends.append((tail, head))
        cost = edge.get("communicationCost", 0)
        moved[number] = document.number(cost, "communicationCost", f"edge {number}", LARGEST)
    graph = Dag.from_edges(len(nodes), ends)
    graph.require_acyclic(layers, what)
    offered = [_offered(document, node, layer) for node, layer in zip(nodes, layers, strict=True)]
    degrees = sorted({degree for layer in offered for degree in layer})
    if not degrees:
        raise HeddleError(
            f"{what} has no TMPCs.",
            "Every layer needs times and memory for at least one degree.",
            "Give every node 'TMPCs': {'1': [{'timePerSample': …}]}.",
        )
    workload = Workload(
        graph,
        list(layers),
        [document.word(node.get("name", layer), f"layer {layer}") for node, layer in zip(nodes, layers, strict=True)],
        [
            _options(document, layers, [options.get(degree, []) for options in offered], ends, moved, degree)
            for degree in degrees
        ],
        document.whole("maxDevices", 1, MOST_DEVICES),
        document.number(content["maxMemoryPerDevice"], "maxMemoryPerDevice", "the devices", LARGEST),
        document.number(content["bandwidth"], "bandwidth", "the devices", LARGEST),
        document.whole("mbsInBatch", 1, MOST_MICROBATCHES),
    )
    return _checked(workload)


def _checked(workload: Workload) -> Workload:
    wrong = {
        "devices": (workload.devices, MOST_DEVICES, "at least one device to plan for", "--devices 8"),
        "memory": (workload.memory, LARGEST, "some memory on each device", "--memory-gib 80"),
        "bandwidth": (workload.bandwidth, LARGEST, "a bandwidth above 0", "--bandwidth-gib 25"),
        "microbatches": (
            workload.microbatches,
            MOST_MICROBATCHES,
            "at least one microbatch in a batch",
            "--microbatches 512",
        ),
    }
    for name, (value, most, rule, example) in wrong.items():
        if not 0 < value <= most:
            raise HeddleError(
                f"{name} = {value:g} leaves nothing to plan.",
                f"There must be {rule}, and at most {most:g}.",
                f"Try {example}.",
            )
    options = max(degree.seconds.shape[1] for degree in workload.degrees)
    flights = min(workload.devices, workload.microbatches)
    if workload.graph.nodes * options * flights > MOST_NUMBERS:
        raise HeddleError(
            f"{workload.graph.nodes:,} layers with {options} options on {workload.devices:,} devices are too many.",
            f"Memory is looked up for each of up to {flights:,} microbatches in flight: more numbers than fit here.",
            f"Try --devices {max(1, MOST_NUMBERS // (workload.graph.nodes * options))}, or merge layers.",
        )
    return workload


Option = Mapping[str, Any]


def _offered(document: Document, node: Mapping[str, Any], layer: Any) -> dict[int, list[Option]]:
    """The options of a layer, by tensor degree."""
    found = {}
    where = f"layer {layer}"
    for word, options in document.table(node.get("TMPCs", {}), f"'TMPCs' of {where}").items():
        degree = int(word) if word.isascii() and word.isdecimal() and len(word) < 10 else 0
        if not 1 <= degree <= MOST_DEVICES:
            raise document.refuse(
                f"'TMPCs' of {where} has the degree {shorten(word)}.",
                f"Tensor degrees are whole numbers, from 1 to {MOST_DEVICES:,}.",
                f"Fix {where}.",
            )
        if not isinstance(options, list) or len(options) > MOST_OPTIONS:
            raise document.refuse(
                f"'TMPCs' of {where} has {shorten(options)} for degree {degree}.",
                f"It should be a list of up to {MOST_OPTIONS} options.",
                f"Fix {where}.",
            )
        found[degree] = [
            document.table(option, f"option {n} of {where} at degree {degree}") for n, option in enumerate(options)
        ]
        for number, option in enumerate(found[degree]):
            if "timePerSample" not in option:
                raise document.refuse(
                    f"Option {number} of {where} at degree {degree} has no 'timePerSample'.",
                    "A layer that takes no time would be planned for nothing.",
                    f"Give {where} its time, or leave the option out.",
                )
    return found


def _options(
    document: Document,
    layers: list[str | int],
    offered: list[list[Option]],
    ends: list[tuple[int, int]],
    moved: Floats,
    degree: int,
) -> LayerOptions:
    shape = (len(layers), max(1, max(len(options) for options in offered)))
    columns = {
        "timePerSample": np.full(shape, np.inf),
        "parameterSize": np.zeros(shape),
        "memoryUsageA": np.full(shape, np.inf),
        "memoryUsageB": np.full(shape, np.inf),
    }
    for layer, options in enumerate(offered):
        for number, option in enumerate(options):
            for key, column in columns.items():
                most = LONGEST if key == "timePerSample" else LARGEST
                column[layer, number] = document.number(option.get(key, 0), key, f"layer {layers[layer]}", most)
    # syncTimeFw is keyed by the tails of a layer's in-edges, syncTimeBw by the heads of its out-edges.
    receive, send = 2 * moved, 2 * moved  # an activation and its gradient
    for number, (tail, head) in enumerate(ends):
        source, target = str(layers[tail]), str(layers[head])
        receive[number] += 2 * _relayout(document, offered[head], "syncTimeFw", source, target)
        send[number] += 2 * _relayout(document, offered[tail], "syncTimeBw", target, source)
    return LayerOptions(
        degree,
        [
            [document.word(option.get("id", number), "an option") for number, option in enumerate(options)]
            for options in offered
        ],
        columns["timePerSample"],
        columns["parameterSize"],
        columns["memoryUsageA"],
        columns["memoryUsageB"],
        receive,
        send,
    )


def _relayout(document: Document, options: list[Option], key: str, neighbor: str, layer: str) -> float:
    """Bytes to lay an activation out anew. All options of a layer and degree must agree, as they do when published."""
    where = f"layer {layer}"
    tables = [document.table(option.get(key) or {}, f"{key} of {where}") for option in options]
    values = {document.number(table.get(neighbor, 0), key, where, LARGEST) for table in tables}
    if len(values) > 1:
        raise HeddleError(
            f"{document.what}: the options of {where} differ in {key} for {neighbor}: {sorted(values)}.",
            "The best option would then depend on where the stage ends, but Piper chooses options before that.",
            f"Give all options of one tensor degree the same {key}.",
        )
    return values.pop() if values else 0.0
