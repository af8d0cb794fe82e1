"""A placement for people, and in the published output format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from heddle.format import size
from heddle.planning.placement.operator_graph import OperatorGraph
from heddle.planning.placement.result import Placement


def published(placement: Placement) -> dict[str, Any]:
    """The output format of the published programs."""

    def of(kind: str) -> list[dict[str, Any]]:
        return [{"load": d.load, "nodes": d.operators} for d in placement.devices if d.kind == kind]

    value = "maxLoad" if placement.objective == "throughput" else "latency"
    return {value: placement.value, "fpgas": of("accelerator"), "cpus": of("cpu")}


def draw(graph: OperatorGraph, placement: Placement, width: int = 100) -> list[str]:
    """Loads as bars, the operators of each device, and the edges between devices."""
    longest = max((device.load for device in placement.devices), default=0.0) or 1.0
    room = max(10, min(40, width - 54))
    unit = f" {graph.unit}" if graph.unit else ""
    names = dict(zip(graph.operators, graph.names, strict=True))
    lines, held, number = [], [], {"accelerator": 0, "cpu": 0}
    where = {}
    for place, device in enumerate(placement.devices):
        name = f"{device.kind} {number[device.kind]}"
        number[device.kind] += 1
        bar = "█" * round(room * device.load / longest)
        count = len(device.operators)
        holds = f"{count} operator{'s' * (count != 1)}, {size(device.memory, 2)}"
        lines.append(f"{name:<14} {bar:<{room}} {device.load:>10.4f}{unit}  {holds}")
        held.append(f"{name:<14} {in_short([names[operator] for operator in device.operators]) or 'nothing'}")
        where.update(dict.fromkeys(device.operators, place))
    crossing = [
        (tail, head)
        for tail, head in zip(graph.graph.tails.tolist(), graph.graph.heads.tolist(), strict=True)
        if where[graph.operators[tail]] != where[graph.operators[head]]
    ]
    moved = {tail for tail, _ in crossing}
    what = "maximum load" if placement.objective == "throughput" else "latency"
    proof = "optimal" if placement.optimal else f"at best {placement.lower_bound:.4f}{unit}"
    if placement.optimal and placement.among == "pipelines":
        proof += " among pipelines"
    times = f"milliseconds per {'microbatch' if graph.backward.any() else 'batch'}" if unit else "the file's own unit"
    lines += [
        "",
        f"{what:<13} {placement.value:.4f}{unit} ({proof})",
        f"cut           {len(crossing)} of {len(graph.graph.tails)} edges, {len(moved)} outputs moved",
        f"method        {placement.method}, {placement.seconds:.2f} s",
        f"times         in {times}",
    ]
    return [*lines, *(f"note          {note}" for note in placement.notes), "", *held]


SHOWN = 12  # parts that are listed for a device; -o writes all of them


def in_short(names: Sequence[str]) -> str:
    """Operators by the modules that they belong to: 'embed, layers.0–3, norm'."""
    parts = list(dict.fromkeys(_module_of(name) for name in names))
    runs: list[tuple[str, list[int]]] = []  # a stem, and the numbers that stand behind it
    for part in parts:
        stem, number = re.fullmatch(r"(.*?)(\d*)", part, flags=re.DOTALL).groups()  # type: ignore[union-attr]
        if number and runs and runs[-1][0] == stem and runs[-1][1][-1:] == [int(number) - 1]:
            runs[-1][1].append(int(number))
        else:
            runs.append((stem, [int(number)] if number else []))
    words = [f"{stem}{n[0]}–{n[-1]}" if len(n) > 1 else f"{stem}{n[0] if n else ''}" for stem, n in runs]
    more = len(words) - SHOWN
    return ", ".join(words if more <= 1 else [*words[: SHOWN - 1], f"and {more + 1} more parts"])


def _module_of(name: str) -> str:
    """The layer of an operator, 'layers.0' of 'layers.0.mlp.linear'; an operator that is in none stands for itself."""
    layer = re.match(r"(?:[^.\d][^.]*\.)*\d{1,9}(?=\.)", name)
    return layer[0] if layer else name.rpartition(".")[0] or name
