"""A stage, operator by operator: forward, and backward through each operator by itself.

Whoever wants to know what operators take, in seconds or in FLOPs, walks a stage with a meter around each one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from heddle.capturing.program import carries_gradient, tensors_of
from heddle.capturing.split import CapturedStage

Meter = Callable[[int, bool], AbstractContextManager[Any]]  # of an operator's number, and whether it is its backward
Island = tuple[int, list[tuple[Tensor, bool]], list[Tensor]]  # number, inputs (and if their gradients add up), outputs


def walk(stage: CapturedStage, inputs: Sequence[Any], training: bool, meter: Meter) -> None:
    """Run every operator of a stage that receives nothing, with its meter on. Nothing outside is changed."""
    given = iter(inputs[number] for number in stage.inputs)
    found: dict[fx.Node, Any] = {}
    gradients: set[fx.Node] = set()
    islands: list[Island] = []
    number = 0
    with torch.set_grad_enabled(training):
        for node in stage.module.graph.nodes:
            if node.op == "placeholder":
                found[node] = next(given)
            elif node.op == "get_attr":
                found[node] = getattr(stage.module, node.target)
                if isinstance(found[node], nn.Parameter) and found[node].requires_grad:
                    gradients.add(node)
            elif node.op == "call_function":
                # An operator's inputs are leaves, so that its backward ends at them.
                leaves = {
                    before: found[before].detach().requires_grad_()
                    for before in node.all_input_nodes
                    if training and before in gradients and isinstance(found[before], Tensor)
                }
                known = {**found, **leaves}
                arguments, keywords = fx.map_arg((node.args, node.kwargs), known.__getitem__)
                with meter(number, False):
                    made = node.target(*arguments, **keywords)
                outputs = [tensor for tensor in tensors_of(made) if tensor.requires_grad]
                if outputs and leaves:
                    adds = [(leaf, before.op == "get_attr" or len(before.users) > 1) for before, leaf in leaves.items()]
                    islands.append((number, adds, outputs))
                several = any(before in gradients and before not in leaves for before in node.all_input_nodes)
                if outputs or (several and any(map(carries_gradient, tensors_of(made)))):
                    gradients.add(node)
                found[node] = pytree.tree_map_only(Tensor, torch.Tensor.detach, made)
                number += 1
        _walk_back(islands, meter)


def _walk_back(islands: list[Island], meter: Meter) -> None:
    """The numbers are of no interest: every gradient is one of ones, and those that add up are added to zeros."""
    while islands:
        number, leaves, outputs = islands.pop()
        ones = [torch.ones_like(output) for output in outputs]
        sums = [torch.zeros_like(leaf) if adds else None for leaf, adds in leaves]
        with meter(number, True):
            made = torch.autograd.grad(outputs, [leaf for leaf, _ in leaves], ones, allow_unused=True)
            for total, gradient in zip(sums, made, strict=True):
                if total is not None and gradient is not None:
                    total.add_(gradient)
