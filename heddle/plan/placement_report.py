"""A placement for people, and in the published output format."""

from __future__ import annotations

from typing import Any

from heddle.plan.placement_graph import OperatorGraph
from heddle.plan.placement_result import Placement
from heddle.units import size


def published(placement: Placement) -> dict[str, Any]:
    """The output format of the published programs."""

    def of(kind: str) -> list[dict[str, Any]]:
        return [{"load": d.load, "nodes": d.operators} for d in placement.devices if d.kind == kind]

    value = "maxLoad" if placement.objective == "throughput" else "latency"
    return {value: placement.value, "fpgas": of("accelerator"), "cpus": of("cpu")}


def draw(graph: OperatorGraph, placement: Placement, width: int = 100) -> list[str]:
    """Loads as bars, with what each device holds, and the edges between devices."""
    longest = max((device.load for device in placement.devices), default=0.0) or 1.0
    room = max(10, min(40, width - 50))
    lines, number = [], {"accelerator": 0, "cpu": 0}
    where = {}
    for place, device in enumerate(placement.devices):
        name = f"{device.kind} {number[device.kind]}"
        number[device.kind] += 1
        bar = "█" * round(room * device.load / longest)
        count = len(device.operators)
        held = f"{count} operator{'s' * (count != 1)}, {size(device.memory, 2)}"
        lines.append(f"{name:<14} {bar:<{room}} {device.load:>10.4f}  {held}")
        where.update(dict.fromkeys(device.operators, place))
    crossing = [
        (tail, head)
        for tail, head in zip(graph.graph.tails.tolist(), graph.graph.heads.tolist(), strict=True)
        if where[graph.operators[tail]] != where[graph.operators[head]]
    ]
    moved = {tail for tail, _ in crossing}
    what = "maximum load" if placement.objective == "throughput" else "latency"
    proof = "optimal" if placement.optimal else f"at best {placement.lower_bound:.4f}"
    if placement.optimal and placement.among == "pipelines":
        proof += " among pipelines"
    lines += [
        "",
        f"{what:<13} {placement.value:.4f} ({proof})",
        f"cut           {len(crossing)} of {len(graph.graph.tails)} edges, {len(moved)} outputs moved",
        f"method        {placement.method}, {placement.seconds:.2f} s",
    ]
    return lines + [f"note          {note}" for note in placement.notes]
