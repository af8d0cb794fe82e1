"""A plain second look at a pipeline: everything is recomputed from the workload's document, with no shared code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def evaluate(
    document: Mapping[str, Any], stages: Sequence[Mapping[str, Any]], devices: int, memory: float
) -> tuple[float, list[float]]:
    """The pace of the slowest stage, and each stage's bytes; ValueError where the stages are no plan.

    Args:
        document: the workload as it stands in its file.
        stages: in model order, each with "layers", "data", "tensor" and "options" (the ids, in the layers' order).
        devices: how many there are.
        memory: bytes of each.
    """
    nodes = {node["id"]: node for node in document["nodes"]}
    where: dict[Any, int] = {}
    for number, stage in enumerate(stages):
        for layer in stage["layers"]:
            if layer in where or layer not in nodes:
                raise ValueError(f"layer {layer} comes twice or from nowhere")
            where[layer] = number
    if len(where) != len(nodes):
        raise ValueError(f"{len(nodes) - len(where)} layers are missing")
    if any(where[edge["sourceId"]] > where[edge["destId"]] for edge in document["edges"]):
        raise ValueError("an edge leads back")
    if sum(stage["data"] * stage["tensor"] for stage in stages) > devices:
        raise ValueError("more devices than there are")
    batch = document["mbsInBatch"]
    if sum(stage["data"] for stage in stages) > batch or any(batch % stage["data"] for stage in stages):
        raise ValueError("the microbatches cannot be dealt out")
    paces, held = [], []
    for number, stage in enumerate(stages):
        d, tensor = stage["data"], str(stage["tensor"])
        in_flight = math.ceil(sum(later["data"] for later in stages[number:]) / d)
        chosen = {}
        for layer, name in zip(stage["layers"], stage["options"], strict=True):
            chosen[layer] = next(option for option in nodes[layer]["TMPCs"][tensor] if option["id"] == name)
        held.append(sum(o["memoryUsageA"] * in_flight + o["memoryUsageB"] for o in chosen.values()))
        if held[-1] > memory * (1 + 1e-9):
            raise ValueError(f"stage {number} needs {held[-1]:.0f} of {memory:.0f} bytes")
        moved = 0.0
        for edge in document["edges"]:
            tail, head = edge["sourceId"], edge["destId"]
            if head in chosen and tail not in chosen:
                moved += 2 * (edge["communicationCost"] + (chosen[head].get("syncTimeFw") or {}).get(str(tail), 0))
            if tail in chosen and head not in chosen:
                moved += 2 * (edge["communicationCost"] + (chosen[tail].get("syncTimeBw") or {}).get(str(head), 0))
        reduced = sum(4 * (d - 1) / d * option["parameterSize"] / batch for option in chosen.values())
        compute = sum(option["timePerSample"] for option in chosen.values()) / d
        paces.append(compute + (moved / d + reduced) / document["bandwidth"])
    return max(paces), held
