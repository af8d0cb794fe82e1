"""A module as `torch.export` sees it: operators in order, what each one holds, and what it makes for whom.

The graph is a functional one (no operator changes a tensor in place), so any split of it computes the same. What
depends on neither inputs nor parameters is a *constant*: its value is computed once for each stage that needs it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
# They check what was so when the graph was captured; inputs are checked as a whole instead.
CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size", "sym_constrain_range")


@dataclass(frozen=True, eq=False)
class Program:
    """One captured module."""

    module: nn.Module  # as it was captured, with the loss where there is one
    exported: ExportedProgram
    training: bool

    @cached_property
    def inputs(self) -> list[fx.Node]:
        """What the caller gives, as flat tensors."""
        kinds = {spec.arg.name: spec.kind for spec in self.exported.graph_signature.input_specs}
        found = [node for node in self.exported.graph.nodes if node.op == "placeholder"]
        return [node for node in found if kinds[node.name] is InputKind.USER_INPUT]

    @cached_property
    def state(self) -> dict[str, str]:
        """Parameters, buffers and tensors written into the code: node name to name in the module.

        A tensor that has several names goes by the first, so that what is tied stays tied.
        """
        first: dict[int, str] = {}
        found = {}
        for spec in self.exported.graph_signature.input_specs:
            if spec.kind in STATE:
                assert spec.target is not None
                found[spec.arg.name] = first.setdefault(id(self.tensor(spec.target)), spec.target)
        return found

    def tensor(self, name: str) -> Tensor:
        """A parameter, buffer or constant by its name in the module."""
        if name in self.exported.constants:
            return self.exported.constants[name]
        path, _, last = name.rpartition(".")
        return getattr(self.module.get_submodule(path), last)

    @cached_property
    def mutated(self) -> dict[str, str]:
        """Buffers that a call changes: the node of the new value to the buffer's name."""
        specs = self.exported.graph_signature.output_specs
        first = {spec.target: self.state[spec.arg.name] for spec in self._states()}
        return {
            spec.arg.name: first.get(spec.target, spec.target)
            for spec in specs
            if spec.kind is OutputKind.BUFFER_MUTATION and spec.target is not None
        }

    def _states(self) -> list[Any]:
        return [spec for spec in self.exported.graph_signature.input_specs if spec.kind in STATE]

    @cached_property
    def outputs(self) -> list[Any]:
        """What a call returns, flat: nodes, and values that are no tensors."""
        specs = self.exported.graph_signature.output_specs
        (end,) = (node for node in self.exported.graph.nodes if node.op == "output")
        return [
            value
            for spec, value in zip(specs, end.args[0], strict=True)
            if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        ]

    def restore(self, outputs: list[Any]) -> Any:
        """Flat outputs in the shape the module gives them in."""
        return pytree.tree_unflatten(outputs, self._out_spec)

    @cached_property
    def _out_spec(self) -> Any:
        return self.exported.call_spec.out_spec  # PyTorch makes a class of its own each time it is asked for this

    @cached_property
    def calls(self) -> list[fx.Node]:
        """Everything that is computed, in order."""
        return [
            node
            for node in self.exported.graph.nodes
            if node.op == "call_function" and getattr(node.target, "_opname", "") not in CHECKS
        ]

    @cached_property
    def constants(self) -> set[fx.Node]:
        """Calls whose value is the same every time."""
        changed = set(self.mutated.values())
        kinds = {spec.arg.name: spec.kind for spec in self._states()}
        known = {
            node
            for node in self.exported.graph.nodes
            if node.op == "get_attr"
            or (
                node.name in self.state
                and kinds[node.name] is not InputKind.PARAMETER
                and self.state[node.name] not in changed
            )
        }
        found = set()
        for node in self.calls:
            if not is_random(node) and all(before in known for before in node.all_input_nodes):
                known.add(node)
                found.add(node)
        return found

    @cached_property
    def operators(self) -> list[fx.Node]:
        """What has to be computed at every call, in order."""
        return [node for node in self.calls if node not in self.constants]

    @cached_property
    def places(self) -> dict[fx.Node, int]:
        """The number of each operator."""
        return {node: number for number, node in enumerate(self.operators)}

    def held(self, node: fx.Node) -> set[fx.Node]:
        """State and constants that an operator reads."""
        return {
            before
            for before in node.all_input_nodes
            if before.name in self.state or before in self.constants or before.op == "get_attr"
        }

    def users(self, node: fx.Node) -> list[fx.Node]:
        """Operators that read what this one makes."""
        return [after for after in node.users if after in self.places]

    def where(self, node: fx.Node) -> str:
        """The place in the module that an operator comes from."""
        stack = node.meta.get("nn_module_stack")
        path = list(stack.values())[-1][0] if stack else ""
        return f"{path}.{node.name}" if path else node.name

    @cached_property
    def differentiable(self) -> set[fx.Node]:
        """Nodes whose value may have a gradient."""
        found: set[fx.Node] = set()
        if not self.training:
            return found
        for node in self.exported.graph.nodes:
            name = self.state.get(node.name)
            if name is not None:
                if self.tensor(name).requires_grad:
                    found.add(node)
            elif node in self.places and any(before in found for before in node.all_input_nodes):
                tensors = list(tensors_of(node.meta.get("val")))
                if len(tensors) != 1 or carries_gradient(tensors[0]):
                    found.add(node)
        return found


def tensors_of(value: Any) -> Iterator[Tensor]:
    """All tensors in what a node returns."""
    return (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor))


def bytes_of(node: fx.Node) -> int:
    """Bytes of what a node returns."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(node.meta.get("val")))


def is_part(node: fx.Node) -> bool:
    """One of several outputs of an operator."""
    return node.target is operator.getitem


def is_view(node: fx.Node) -> bool:
    """Whether an operator gives its input's memory in another shape, and computes nothing."""
    returns = getattr(getattr(node.target, "_schema", None), "returns", ())
    if getattr(node.target, "_opname", "") in ("reshape", "_unsafe_view", "contiguous", "flatten"):
        return True  # they copy at times, and are then as cheap as any copy; the time is measured anyway
    return any(value.alias_info is not None for value in returns)


def carries_gradient(tensor: Tensor) -> bool:
    """Whether a tensor's kind of numbers can have gradients: places and masks cannot."""
    return tensor.is_floating_point() or tensor.is_complex()


def is_random(node: fx.Node) -> bool:
    if is_part(node):
        return False
    tags = getattr(node.target, "tags", ())
    return not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in tags
