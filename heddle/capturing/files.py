"""Stages in files, for the processes that run them.

A stage's graph goes as a list of calls: torch.fx would trace its module anew, and a trace runs what has no input.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_aggregate

from heddle.capturing.operators import custom_operators, register
from heddle.capturing.split import CapturedStage

OPERATORS = ".operators"  # beside a stage's file, and read before it: its tensors may be of a library's classes


@dataclass(frozen=True)
class Name:
    """The value of the node that is called so, or the word of torch's own."""

    name: str
    of_torch: bool = False


def save_stage(stage: CapturedStage, path: Path) -> None:
    """Write a stage with all that it holds."""
    nodes = [
        (node.op, node.name, _target(node.target), map_aggregate(node.args, _plain), map_aggregate(node.kwargs, _plain))
        for node in stage.module.graph.nodes
    ]
    kept = {field.name: getattr(stage, field.name) for field in fields(stage) if field.name != "module"}
    held = [dict(kind) for kind in (stage.module.named_parameters(), stage.module.named_buffers(recurse=False))]
    custom = custom_operators(node.target for node in stage.module.graph.nodes)
    torch.save(custom, path.with_suffix(OPERATORS))
    torch.save((nodes, *held, dict(stage.module.named_children()), kept), path)


def load_stage(path: Path, device: torch.device) -> CapturedStage:
    """Read what `save_stage` wrote, for a device, whichever it was captured on.

    The file is one that this program wrote a moment ago: it may hold code.
    """
    register(torch.load(path.with_suffix(OPERATORS), weights_only=False))
    nodes, parameters, buffers, children, kept = torch.load(path, map_location=device, weights_only=False)
    root, graph = nn.Module(), fx.Graph()
    for name, parameter in parameters.items():
        root.register_parameter(name, parameter)
    for name, buffer in buffers.items():
        root.register_buffer(name, buffer)
    for name, child in children.items():
        root.add_module(name, child)
    made: dict[str, fx.Node] = {}

    def value(item: Any) -> Any:
        if isinstance(item, torch.device):  # a capture writes down where its tensors were made
            return device
        if not isinstance(item, Name):
            return item
        return getattr(torch, item.name) if item.of_torch else made[item.name]

    for op, name, target, arguments, keywords in nodes:
        values = map_aggregate(arguments, value), map_aggregate(keywords, value)
        made[name] = graph.create_node(op, _function(target), *values, name=name)
    return CapturedStage(module=fx.GraphModule(root, graph), **kept)


def _plain(item: Any) -> Any:
    if isinstance(item, fx.Node):
        return Name(item.name)
    if isinstance(item, torch.memory_format | torch.layout):
        return Name(str(item).removeprefix("torch."), of_torch=True)
    return item


def _target(target: Any) -> Any:
    """An operator's name in torch.ops; other functions have names of their own."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, name = target._schema.name.split("::")
        return (namespace, name, target._overloadname)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return ("higher_order", target.name(), "")
    return target


def _function(target: Any) -> Any:
    if not isinstance(target, tuple):
        return target
    namespace, name, overload = target
    found = getattr(getattr(torch.ops, namespace), name)
    return getattr(found, overload) if overload else found
