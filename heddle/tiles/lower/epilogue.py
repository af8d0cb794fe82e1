"""What follows a product, done while its sums are in registers: a bias, and the group behind it where that can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx

from heddle.tiles.kernels.recipe import IDENTITY, Recipe, references
from heddle.tiles.lower.groups import FusedNodes, Looked, reduces
from heddle.tiles.lower.lowering import Lowering
from heddle.tiles.values import View


@dataclass
class Epilogue:
    """What is done with the sums, and where the result goes, all as matrices of rows × columns."""

    output: View
    recipe: Recipe = IDENTITY
    operands: list[View] = field(default_factory=list)


def attach(lower: Lowering, group: FusedNodes) -> tuple[fx.Node, list[fx.Node]] | None:
    """The product that a group may be the epilogue of, and the views between the two."""
    recipe, operands = group.recipe(lower.facts)
    if reduces(recipe) or group.shape != tuple(group.last.meta["val"].shape):
        return None
    found = []
    for each in operands:
        if isinstance(each, Looked | Tensor):
            continue
        chain: list[fx.Node] = []
        node = each
        while lower.kinds.get(node) == "view" and _alone(lower, node, chain, group):
            chain.append(node)
            node = lower.facts.resolve(node.args[0])
        ours = lower.kinds.get(node) in ("product", "convolution") and _alone(lower, node, chain, group)
        if ours and node.meta["val"].numel() == group.last.meta["val"].numel():
            found.append((node, chain[::-1]))
    return max(found, key=lambda pair: lower.facts.place[pair[0]], default=None)


def _alone(lower: Lowering, node: fx.Node, chain: list[fx.Node], group: FusedNodes) -> bool:
    """Whether nobody but the group reads a node, by way of the chain."""
    allowed = [chain[-1]] if chain else group.nodes
    return node not in lower.facts.returned and all(user in allowed for user in lower.facts.users[node])


def finish(
    lower: Lowering,
    node: fx.Node,
    natural: Tensor,
    rows: int,
    columns: int,
    bias: View | None,
    batch: Sequence[int],
    group: FusedNodes | None,
    chain: list[fx.Node],
) -> Epilogue | None:
    """How the sums become the value of a product, or of the group behind it; None where the group cannot follow."""
    first = chain[-1] if chain else node
    meta = natural
    for each in chain:
        meta = each.target(meta, *each.args[1:], **each.kwargs)  # type: ignore[operator]
    if meta.untyped_storage()._cdata != natural.untyped_storage()._cdata:
        return None
    shape, strides = tuple(meta.shape), meta.stride()
    order = sorted(range(meta.dim()), key=lambda dim: (-strides[dim], shape[dim] != 1))
    wanted = (*batch, rows, columns)

    def matrix(view: View) -> View | None:
        try:
            return view.then(lambda each: each.expand(shape).permute(order).view(wanted))
        except RuntimeError:
            return None

    operands, recipe = [], IDENTITY
    if bias is not None:
        operands.append(bias.then(lambda each: each.expand(wanted)))
        recipe = (("load", 0), ("load", 1), ("add", 0, 1))
    last = node
    if group is not None:
        if tuple(group.shape) != shape:
            return None
        after, values = group.recipe(lower.facts, first)
        given = [lower._operand(each) for each in values[1:]]
        views = [matrix(each) if isinstance(each, View) and each.dtype == torch.float32 else None for each in given]
        if any(each is None for each in views):
            return None
        recipe = _joined(recipe, after, len(operands))
        operands += [each for each in views if each is not None]
        last = group.last
    result = lower.allocate(last, meta)
    output = matrix(result)
    if output is None or output.strides[-1] != 1:
        return None
    lower.views[last] = result
    return Epilogue(output, recipe, operands)


def _joined(before: Recipe, after: Recipe, shift: int) -> Recipe:
    """One recipe behind another: the second's operand 0 is the first's result."""
    found, place = list(before), {}
    for number, instruction in enumerate(after):
        if instruction == ("load", 0):
            place[number] = len(before) - 1
            continue
        name, *rest = instruction
        values = [place[each] for each in rest] if references(instruction) else rest
        if name == "load":
            values = [rest[0] + shift]
        place[number] = len(found)
        found.append((name, *values))
    return tuple(found[: place[len(after) - 1] + 1])
