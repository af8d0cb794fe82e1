"""Stages: parts of a program that pass tensors on, each a torch.fx module of its own.

A stage reads inputs of the module itself, whichever stage it is. What it makes for a later stage, or got for one, goes
to the next stage, so that a tensor may travel over several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from heddle.capturing.program import Program
from heddle.errors import HeddleError

Values = dict[fx.Node, Any]


@dataclass(frozen=True)
class Tensors:
    """What one message holds: layouts of its tensors, and which of them have gradients that come back."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    gradients: tuple[bool, ...]

    @property
    def backward(self) -> Tensors:
        """What comes back."""
        kept = [number for number, has in enumerate(self.gradients) if has]

        def pick(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(values[number] for number in kept)

        return Tensors(pick(self.names), pick(self.shapes), pick(self.strides), pick(self.dtypes), pick(self.gradients))


@dataclass(frozen=True)
class CapturedStage:
    """One part: a module from received tensors and inputs to sent tensors, outputs and new values of buffers."""

    module: fx.GraphModule
    received: Tensors
    inputs: tuple[int, ...]  # numbers of the module's inputs that it reads
    sent: Tensors
    outputs: tuple[int, ...]  # numbers of the module's outputs that it makes
    state: dict[str, str]  # name in the stage to name in the captured module
    tied: dict[str, tuple[int, ...]]  # parameters that several stages hold: name in the stage, and those stages
    updates: tuple[str, ...]  # buffers that a call changes

    def __call__(self, *tensors: Any) -> tuple[tuple[Tensor, ...], list[Any]]:
        """What is sent, and outputs. Buffers get their new values."""
        sent, outputs, updates = self.module(*tensors)
        for name, value in zip(self.updates, updates, strict=True):
            setattr(self.module, name, value.detach())  # not in place: the way back may need the old value
        return sent, outputs


def split(program: Program, parts: Sequence[Sequence[fx.Node]], values: Mapping[fx.Node, Any]) -> list[CapturedStage]:
    """Make a stage of each part; `parts` go in order and hold every operator once."""
    where = {node: number for number, part in enumerate(parts) for node in part}
    assert len(where) == len(program.operators)
    last = dict.fromkeys(where, 0)  # the last stage that reads each operator's output
    for node, stage in where.items():
        for after in program.users(node):
            assert where[after] >= stage, "an edge leads back"
            last[node] = max(last[node], where[after])
    final = len(parts) - 1
    if program.training:  # the loss starts the way back, wherever it was made
        last.update((value, final) for value in program.outputs if value in where)
    crossing = [
        [node for node in program.operators if where[node] <= stage < last[node]] for stage in range(len(parts))
    ]
    made = {
        number: final if program.training or not isinstance(value, fx.Node) else where.get(value, final)
        for number, value in enumerate(program.outputs)
    }
    holders: dict[str, set[int]] = {}
    for node, stage in where.items():
        for held in program.held(node):
            if held.name in program.state:
                holders.setdefault(program.state[held.name], set()).add(stage)
    stages = []
    for number, part in enumerate(parts):
        received = crossing[number - 1] if number else []
        sent = crossing[number]
        outputs = tuple(place for place, stage in made.items() if stage == number)
        stages.append(_stage(program, set(part), received, sent, outputs, values, holders))
    return stages


def whole(program: Program, values: Mapping[fx.Node, Any]) -> CapturedStage:
    """All of a program as one stage."""
    return split(program, [program.operators], values)[0]


def _stage(
    program: Program,
    part: set[fx.Node],
    received: list[fx.Node],
    sent: list[fx.Node],
    outputs: tuple[int, ...],
    values: Mapping[fx.Node, Any],
    holders: Mapping[str, set[int]],
) -> CapturedStage:
    results = [program.outputs[number] for number in outputs]
    read = {before for node in part for before in node.all_input_nodes}
    read |= {value for value in results if isinstance(value, fx.Node)}
    inputs = tuple(number for number, node in enumerate(program.inputs) if node in read)
    copy = _Copy(program, values, [*received, *(program.inputs[number] for number in inputs)])
    operators = [node for node in program.operators if node in part]
    for node in operators:
        copy.operator(node)
    updates = copy.updates(operators)
    copy.graph.output(
        (
            tuple(copy(node) for node in sent),
            [copy(value) if isinstance(value, fx.Node) else value for value in results],
            tuple(updates.values()),
        )
    )
    return CapturedStage(
        module=fx.GraphModule(copy.root, copy.graph),
        received=_tensors(program, received),
        inputs=inputs,
        sent=_tensors(program, sent),
        outputs=outputs,
        state=copy.state,
        tied=copy.tied(holders),
        updates=tuple(updates),
    )


class _Copy:
    """A graph of its own, with the module that holds its state, into which a part of a program is copied."""

    def __init__(self, program: Program, values: Mapping[fx.Node, Any], arguments: Sequence[fx.Node]) -> None:
        self.program, self.values = program, values
        self.graph, self.root = fx.Graph(), nn.Module()
        self.state: dict[str, str] = {}  # name here to name in the captured module
        self.copies: dict[fx.Node, Any] = {node: self.graph.placeholder(node.name) for node in arguments}

    def __call__(self, node: fx.Node) -> Any:
        """The copy of an argument or operator; what is neither is state or a constant, and held from now on."""
        if node not in self.copies:
            if node.name in self.program.state:
                self.copies[node] = self.graph.get_attr(self._state(node))
            else:
                self.copies[node] = self._constant(node)
        return self.copies[node]

    def operator(self, node: fx.Node) -> None:
        """Copy an operator, with what it reads before it."""
        for before in node.all_input_nodes:
            self(before)
        self.copies[node] = self.graph.node_copy(node, self)

    def updates(self, operators: Sequence[fx.Node]) -> dict[str, fx.Node]:
        """The buffers that these operators change, and their new values."""
        program, found = self.program, {}
        for node in operators:
            if node.name in program.mutated:
                changed = program.mutated[node.name]
                buffer = next(held for held in program.exported.graph.nodes if program.state.get(held.name) == changed)
                found[str(self(buffer).target)] = self.copies[node]
        return found

    def tied(self, holders: Mapping[str, set[int]]) -> dict[str, tuple[int, ...]]:
        """The parameters that other stages hold as well, and all of those stages."""
        parameters = dict(self.root.named_parameters(recurse=False))
        return {
            name: tuple(sorted(holders[target]))
            for name, target in self.state.items()
            if name in parameters and len(holders.get(target, ())) > 1
        }

    def _constant(self, node: fx.Node) -> Any:
        """Hold a constant; where it is several tensors, each of them, and what is no tensor stands in the graph."""
        value = self.values[node]
        leaves, spec = pytree.tree_flatten(value)
        held = []
        for number, leaf in enumerate(leaves):
            name = f"constant_{node.name}" + (f"_{number}" if leaf is not value else "")
            if isinstance(leaf, nn.Module):
                self.root.add_module(name, leaf)
            elif isinstance(leaf, Tensor):
                self.root.register_buffer(name, leaf, persistent=False)
            held.append(self.graph.get_attr(name) if isinstance(leaf, nn.Module | Tensor) else leaf)
        return pytree.tree_unflatten(held, spec)

    def _state(self, node: fx.Node) -> str:
        """Hold a parameter or buffer, under a name that no two share."""
        target = self.program.state[node.name]
        name = "state_" + target.replace(".", "_")
        while self.state.get(name, target) != target:
            name += "_"
        if name not in self.state:
            self.state[name] = target
            own, value = self.program.tensor(target), self.values[node]
            if isinstance(own, nn.Parameter):  # the same memory, with a gradient of its own
                self.root.register_parameter(name, nn.Parameter(value.detach(), own.requires_grad))
            else:
                self.root.register_buffer(name, value)
        return name


def _tensors(program: Program, nodes: list[fx.Node]) -> Tensors:
    found = [node.meta["val"] for node in nodes]
    assert all(isinstance(tensor, Tensor) for tensor in found), "what has several outputs does not leave its stage"
    return Tensors(
        tuple(node.name for node in nodes),
        tuple(tuple(tensor.shape) for tensor in found),
        tuple(layout(tensor) for tensor in found),
        tuple(tensor.dtype for tensor in found),
        tuple(node in program.differentiable for node in nodes),
    )


def constants_of(program: Program, values: Mapping[fx.Node, Any]) -> Values:
    """Values of all constants, given those of buffers."""
    found = dict(values)
    with torch.no_grad():
        for node in program.calls:
            if node in program.constants:
                arguments, keywords = fx.map_arg((node.args, node.kwargs), found.__getitem__)
                found[node] = node.target(*arguments, **keywords)  # type: ignore[operator]
    return {node: found[node] for node in program.constants}


def real_values(program: Program) -> Values:
    """What stages hold: the module's own tensors, and constants that are computed now."""
    values: Values = {}
    for node in program.exported.graph.nodes:
        if node.name in program.state:
            values[node] = program.tensor(program.state[node.name])
            if values[node].device.type == "meta" or isinstance(values[node], FakeTensor):
                raise HeddleError(
                    f"{program.state[node.name]} has no values.",
                    "The module consists of fake or meta tensors: it can be placed, but not run.",
                    "Create it with real weights, or model its times: times='modeled'.",
                )
        elif node.op == "get_attr":
            values[node] = getattr(program.exported.graph_module, node.target)
    return values | constants_of(program, values)


def fake_values(program: Program) -> Values:
    """The same without numbers."""
    return {
        node: node.meta["val"] if "val" in node.meta else getattr(program.exported.graph_module, node.target)
        for node in program.exported.graph.nodes
        if node.op in ("placeholder", "get_attr") or node in program.constants
    }


def layout(tensor: Tensor) -> tuple[int, ...]:
    """The strides a tensor travels with: its own where they leave no gaps."""
    strides, expected = tuple(tensor.stride()), 1
    for stride, size in sorted(zip(strides, tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return tuple(torch.empty(tensor.shape, device="meta").stride())
            expected *= size
    return strides
