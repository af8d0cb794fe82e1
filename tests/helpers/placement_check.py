"""A plain second look at a placement: everything is recomputed from the graph's document, with no shared code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def evaluate(document: Mapping[str, Any], devices: Sequence[Mapping[str, Any]], memory: float) -> list[float]:
    """The load of every device; ValueError where it is no placement.

    Args:
        document: the graph as it stands in its file.
        devices: each with "kind" ("accelerator" or "cpu") and "operators" (ids).
        memory: bytes of each accelerator.
    """
    nodes = {node["id"]: node for node in document["nodes"]}
    where: dict[Any, int] = {}
    for number, device in enumerate(devices):
        for operator in device["operators"]:
            if operator in where or operator not in nodes:
                raise ValueError(f"operator {operator} comes twice or from nowhere")
            where[operator] = number
    if len(where) != len(nodes):
        raise ValueError(f"{len(nodes) - len(where)} operators are missing")
    colors: dict[Any, int] = {}
    for node in nodes.values():
        color = node.get("colorClass")
        if color is not None and colors.setdefault(color, where[node["id"]]) != where[node["id"]]:
            raise ValueError(f"color {color} is on two devices")
    loads = []
    for number, device in enumerate(devices):
        held = [nodes[operator] for operator in device["operators"]]
        if device["kind"] == "cpu":
            loads.append(sum(node["cpuLatency"] for node in held))
            continue
        if any(not node.get("supportedOnFpga", True) for node in held):
            raise ValueError(f"device {number} cannot run all it has")
        if sum(node.get("size", 0) for node in held) > memory * (1 + 1e-9):
            raise ValueError(f"device {number} is too small")
        moved: dict[Any, float] = {}
        for edge in document["edges"]:
            tail, head = where[edge["sourceId"]], where[edge["destId"]]
            if tail != head and number in (tail, head):
                moved[edge["sourceId"]] = max(moved.get(edge["sourceId"], 0.0), edge["cost"])
        loads.append(sum(node["fpgaLatency"] for node in held) + sum(moved.values()))
    return loads


def leads_back(document: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> bool:
    """Is there no order of the devices in which all forward edges lead on?"""
    backward = {node["id"] for node in document["nodes"] if node.get("isBackwardNode")}
    where = {operator: number for number, device in enumerate(devices) for operator in device["operators"]}
    feeds = {
        (where[edge["sourceId"]], where[edge["destId"]])
        for edge in document["edges"]
        if edge["sourceId"] not in backward and edge["destId"] not in backward
    }
    left = set(range(len(devices)))
    while left:
        first = [d for d in left if not any(head == d and tail in left and tail != d for tail, head in feeds)]
        if not first:
            return True
        left -= set(first)
    return False
