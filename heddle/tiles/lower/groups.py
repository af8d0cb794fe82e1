"""Which operators become one: element-wise chains with the norms and softmaxes among them, and what follows a product.

A group grows from its last operator backwards: it takes in what nobody else reads. So no path leaves a group and comes
back, and groups can be run in any order that their operands allow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from heddle.tiles.kernels.recipe import REDUCTIONS, Recipe
from heddle.tiles.lower.facts import NORMS, Facts
from heddle.tiles.lower.pointwise import ALONG_ROWS, POINTWISE, REDUCTION_TARGETS, Writer, reduced

FUSED = ("pointwise", "comparison", "row", "lookup")
MOST = 12  # operands

aten = torch.ops.aten


@dataclass(frozen=True)
class Looked:
    """A look-up as an operand."""

    node: fx.Node


@dataclass
class FusedNodes:
    """Some nodes, of which only the last one's value leaves."""

    last: fx.Node
    shape: tuple[int, ...]  # over which it is computed
    nodes: list[fx.Node] = field(default_factory=list)
    product: fx.Node | None = None  # whose epilogue it is

    def recipe(self, facts: Facts, first: fx.Node | None = None) -> tuple[Recipe, list[Any]]:
        """The instructions, and the operands they load: nodes, known tensors, look-ups. `first` is operand 0."""
        writer = Writer()
        operands: list[Any] = [] if first is None else [first]
        places: dict[fx.Node, int] = {}

        def load(value: Any) -> int:
            for number, each in enumerate(operands):
                if each is value or (isinstance(each, Looked) and each == value):
                    return writer("load", number)
            operands.append(value)
            return writer("load", len(operands) - 1)

        def place(value: Any) -> Any:
            if isinstance(value, fx.Node):
                value = facts.resolve(value)
                if value in places:
                    return places[value]
                value = facts.known.get(value, value)
            if isinstance(value, Tensor):
                return writer.const(value.item()) if value.numel() == 1 else load(value)
            if isinstance(value, fx.Node):
                return load(value)
            return writer.const(value) if isinstance(value, int | float) else value

        for node in self.nodes:
            if node in facts.affine:
                scale, shift = (load(each) for each in facts.affine[node])
                places[node] = writer("add", writer("mul", place(node.args[0]), scale), shift)
            else:
                places[node] = _instructions(node, writer, place, load)
        return writer.ending(places[self.last]), operands


def _instructions(node: fx.Node, writer: Writer, place: Callable[[Any], Any], load: Callable[[Any], int]) -> int:
    """One operator's."""
    if node.target is aten.embedding.default:
        return load(Looked(node))
    if node.target is aten._to_copy.default:  # truths to numbers
        return int(place(node.args[0]))
    count = _source_shape(node)[-1] if node.args and isinstance(node.args[0], fx.Node) and _source_shape(node) else 1
    if node.target in REDUCTION_TARGETS:
        return reduced(writer, REDUCTION_TARGETS[node.target], place(node.args[0]), count)
    if node.target in NORMS:
        x, _, *rest = node.args
        tensors = 2 if node.target is aten.layer_norm.default else 1
        given = [place(each) for each in rest[:tensors]] + [None] * (tensors - len(rest[:tensors]))
        otherwise = 1e-5 if tensors == 2 else torch.finfo(torch.float32).eps
        epsilon = rest[tensors] if len(rest) > tensors and rest[tensors] is not None else otherwise
        return ALONG_ROWS[node.target](writer, place(x), *given, epsilon=epsilon, count=count)
    if node.target in ALONG_ROWS:
        return ALONG_ROWS[node.target](writer, place(node.args[0]))
    keywords = dict(node.kwargs)
    return POINTWISE[node.target](writer, *(place(each) for each in node.args), **keywords)


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _source_shape(node: fx.Node) -> tuple[int, ...]:
    value = node.args[0].meta.get("val")  # type: ignore[union-attr]
    return tuple(getattr(value, "shape", ()))


def _works_over(node: fx.Node, kind: str) -> tuple[int, ...]:
    """The shape that a node's loop has."""
    return _source_shape(node) if kind == "row" else _shape(node)


def find_groups(facts: Facts, kinds: dict[fx.Node, str]) -> tuple[list[FusedNodes], set[fx.Node]]:
    """All groups, and the nodes that are inside one but are not its last."""
    taken: set[fx.Node] = set()
    groups = []
    for node in reversed(facts.order):
        if kinds[node] not in FUSED or node in taken:
            continue
        group = _grow(facts, kinds, node, taken)
        taken.update(group.nodes)
        groups.append(group)
    inside = {node for group in groups for node in group.nodes if node is not group.last}
    return groups[::-1], inside


def _grow(facts: Facts, kinds: dict[fx.Node, str], last: fx.Node, taken: set[fx.Node]) -> FusedNodes:
    shape = _works_over(last, kinds[last])
    members = {last}
    reduces = kinds[last] == "row"
    operands = _operands(facts, members)
    changed = True
    while changed:
        changed = False
        for node in operands:
            if node in members or kinds.get(node) not in FUSED or node in taken or node in facts.returned:
                continue
            if not all(user in members for user in facts.users[node]):
                continue
            over, gives = _works_over(node, kinds[node]), _shape(node)
            grows = not reduces and shape[-1:] == (1,) and over[:-1] == shape[:-1] and gives == shape
            if not grows and not (_same_rows(over, shape) and _same_rows(gives, shape)):
                continue
            if kinds[node] == "row" and not grows and over != shape:
                continue
            wider = _operands(facts, members | {node})
            if len(wider) > MOST:
                continue
            if grows and over != shape:
                shape = over
            reduces |= kinds[node] == "row"
            members.add(node)
            operands, changed = wider, True
            break
    return FusedNodes(last, shape, [node for node in facts.order if node in members])


def _same_rows(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a value is a whole, or one number for each of its rows."""
    return shape == whole or (shape[:-1] == whole[:-1] and shape[-1:] == (1,) and len(shape) == len(whole))


def _operands(facts: Facts, members: set[fx.Node]) -> list[fx.Node]:
    found = [
        value
        for node in sorted(members, key=facts.place.__getitem__)
        for value in map(facts.resolve, node.all_input_nodes)
        if value not in members
    ]
    return list(dict.fromkeys(found))


def reduces(recipe: Recipe) -> bool:
    """Whether a recipe has to see whole rows."""
    return any(instruction[0] in REDUCTIONS for instruction in recipe)
