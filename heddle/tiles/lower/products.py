"""Products: of computed matrices with weights, which are packed once, and with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from heddle.tiles.lower.epilogue import Epilogue, finish
from heddle.tiles.lower.groups import FusedNodes
from heddle.tiles.lower.lowering import Lowering
from heddle.tiles.operators.narrow import NarrowProductOperator, digits, narrow_weights
from heddle.tiles.operators.product import ProductOperator, packed, packed_constant
from heddle.tiles.values import View

aten = torch.ops.aten
FEW = 4  # rows that wait for the memory of their weights; more wait for arithmetic


def product(
    lower: Lowering, node: fx.Node, group: FusedNodes | None = None, chain: list[fx.Node] | None = None
) -> bool:
    """linear, addmm, mm, bmm and matmul. Returns whether it is done: with a group it may have to be without."""
    left, right, bias = _sides(lower, node)
    shape = tuple(node.meta["val"].shape)
    columns = shape[-1]
    if isinstance(right, Tensor):
        batch: tuple[int, ...] = ()
        rows = node.meta["val"].numel() // columns
    else:
        batch, rows = shape[:-2], shape[-2]
    depth = lower.facts.argument(left).shape[-1] if isinstance(left, Tensor) else left.meta["val"].shape[-1]
    vectors = lower.target.panel_vectors(columns)
    epilogue = finish(lower, node, lower.meta(node), rows, columns, bias, batch, group, chain or [])
    if epilogue is None:
        return False
    name = lower.name(group.last if group else node)
    if isinstance(right, Tensor):
        matrix = _left(lower, name, lower.view(left), (rows, depth))
        if lower.bits < 32 and rows <= FEW:
            _narrow(lower, name, matrix, right, epilogue)
            return True
        weight = _packed_once(lower, right, vectors)
        shared: tuple[int, ...] = ()
    else:
        wide = lower.view(left).then(lambda each: each.expand(*batch, rows, depth))
        matrix = wide if wide.strides[-1] == 1 else lower.copy(name, wide)
        other = lower.view(right[0])
        if right[1]:
            other = other.then(lambda each: each.transpose(-1, -2))
        pack = packed(f"{name}.right", lower.target, other, vectors)
        lower.operators.append(pack)
        weight, shared = pack.output, _shared(other.shape[:-2], batch)
    lower.operators.append(
        ProductOperator(
            name,
            lower.target,
            lower.tiling,
            matrix,
            weight,
            epilogue.output,
            depth,
            vectors,
            epilogue.recipe,
            epilogue.operands,
            shared=shared,
        )
    )
    return True


def _sides(lower: Lowering, node: fx.Node) -> tuple[Any, Any, View | None]:
    """Left side; right side as a known matrix of depth × columns, or as (node, whether it is turned); bias."""
    facts = lower.facts
    given = [facts.argument(each) for each in node.args]
    if node.target is aten.addmm.default:
        bias, left, right = given[:3]
        turned = False
    else:
        left, right, *rest = given
        bias, turned = (rest[0] if rest else None), node.target is aten.linear.default
    added = None if bias is None else lower.view(bias)
    if isinstance(right, Tensor) and right.dim() == 2:
        return left, (right.t() if turned else right), added
    return left, (right, turned), added


def _packed_once(lower: Lowering, weight: Tensor, vectors: int) -> View:
    key = (weight.data_ptr(), tuple(weight.shape), weight.stride(), vectors)
    if key not in lower.weights:
        lower.weights[key] = (weight, packed_constant(weight, vectors, lower.target.lanes))
    return lower.weights[key][1]


def _narrow(lower: Lowering, name: str, rows: View, weight: Tensor, epilogue: Epilogue) -> None:
    key = (lower.bits, weight.data_ptr(), tuple(weight.shape), weight.stride())
    if key not in lower.weights:
        lower.weights[key] = (weight, narrow_weights(weight, lower.bits, lower.target.lanes))
    if lower.bits < 16:
        rows = _digits(lower, name, rows)
    lower.operators.append(
        NarrowProductOperator(
            name, lower.target, lower.tiling, lower.bits, rows, lower.weights[key][1], epilogue.output,
            weight.shape[0],
            epilogue.recipe, epilogue.operands,
        )
    )  # fmt: skip


def _digits(lower: Lowering, name: str, rows: View) -> View:
    """The digits of some rows, made once for all products that read them."""
    key = (rows.buffer.name, rows.offset, rows.shape, rows.strides)
    if key not in lower.digits:
        made = digits(f"{name}.digits", rows)
        lower.operators.append(made)
        lower.digits[key] = made.output
    return lower.digits[key]


def _left(lower: Lowering, name: str, view: View, shape: tuple[int, int]) -> View:
    matrix = view.as_matrix(*shape)
    if matrix is None or matrix.strides[-1] != 1:
        matrix = lower.copy(name, view).as_matrix(*shape)
    assert matrix is not None
    return matrix


def _shared(sizes: Sequence[int], batch: Sequence[int]) -> tuple[int, ...]:
    """How far the packed right side moves with each dim of the batch: not at all where it is broadcast."""
    steps: list[int] = []
    step = 1
    padded = [1] * (len(batch) - len(sizes)) + list(sizes)
    for size in reversed(padded):
        steps.insert(0, 0 if size == 1 else step)
        step *= size
    return tuple(steps)


def covers(lower: Lowering, node: fx.Node) -> bool:
    """Whether a product is one of ours."""
    tensors = list(node.all_input_nodes)
    if any(each.meta["val"].dtype != torch.float32 for each in tensors if "val" in each.meta):
        return False
    if node.kwargs or any(each.meta["val"].dim() < 2 for each in tensors[-2:] if node.target is aten.matmul.default):
        return False
    if node.target is aten.addmm.default:
        return node.args[0].meta["val"].dim() <= 2  # type: ignore[union-attr]
    if node.target is aten.linear.default and not isinstance(lower.facts.argument(node.args[1]), Tensor):
        return len(node.args) < 3 and node.args[0].meta["val"].dim() == 2  # type: ignore[union-attr]
    return node.args[0].meta["val"].dim() >= 2  # type: ignore[union-attr]
