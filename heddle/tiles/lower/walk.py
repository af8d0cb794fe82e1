"""The walk over the graph: each node to the operator that computes it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from heddle.capturing.program import Program
from heddle.tiles.kernels.target import Target
from heddle.tiles.lower import attention, convolutions, images, products
from heddle.tiles.lower.epilogue import attach
from heddle.tiles.lower.lowering import Lowering, Weights
from heddle.tiles.tiling import Tiling
from heddle.tiles.values import new

Result = tuple[str, Any]  # ("output", number), ("input", number) or ("constant", value)


def lower_program(
    program: Program, target: Target, tiling: Tiling, weights: Weights, bits: int = 32
) -> tuple[Lowering, list[Result]]:
    """All operators of a program, and where each of its results is. `bits` are of weights that meet a few rows."""
    lower = Lowering(program, target, tiling, weights, bits)
    _settle_kinds(lower)
    attached: dict[fx.Node, tuple[fx.Node, list[fx.Node]]] = {}
    for group in lower.groups:
        pair = attach(lower, group)
        if pair is not None and pair[0] not in {node for node, _ in attached.values()}:
            attached[group.last] = pair
    later = {node for pair in attached.values() for node in (pair[0], *pair[1])}
    for node in lower.facts.order:
        if node not in lower.inside and node not in later:
            _node(lower, node, attached)
    return lower, _results(lower)


def _settle_kinds(lower: Lowering) -> None:
    """What only looked like ours is PyTorch's."""
    for node, kind in lower.kinds.items():
        ours = {
            "product": lambda node: products.covers(lower, node),
            "convolution": lambda node: convolutions.conv_geometry(lower, node) is not None,
            "attention": attention.covers,
            "pooling": lambda node: images.geometry(node) is not None,
            "mean": lambda node: images.geometry(node) is not None,
            "upsampling": lambda node: images.blends(node) or images.repeats(node) is not None,
        }.get(kind)
        if ours is not None and not ours(node):
            lower.kinds[node] = "torch"
    for node in lower.facts.order:
        if lower.kinds[node] == "torch" and convolutions.padded(lower, node) is not None:
            lower.kinds[node] = "padding"
        if lower.kinds[node] == "attention":
            lower.kinds.update(dict.fromkeys(attention.joined(lower, node), "joined"))
    lower.destinations = {
        node: place for node, place in lower.destinations.items() if lower.kinds[place[0]] != "joined"
    }


def _node(lower: Lowering, node: fx.Node, attached: dict[fx.Node, tuple[fx.Node, list[fx.Node]]]) -> None:
    kind = lower.kinds[node]
    make = {"product": products.product, "convolution": convolutions.convolution}
    if kind in ("view", "part", "padding", "joined"):
        return  # when somebody asks for it, or never
    if node in lower.of_last:
        group = lower.of_last[node]
        if node in attached:
            source, chain = attached[node]
            if make[lower.kinds[source]](lower, source, group, chain):
                return
            make[lower.kinds[source]](lower, source)
        if kind == "comparison":
            for each in group.nodes:
                lower.torch_operator(each)
        else:
            lower.group(group)
    elif kind in make:
        make[kind](lower, node)
    elif kind == "attention":
        attention.attention(lower, node)
    elif kind in ("pooling", "mean"):
        images.pooling(lower, node)
    elif kind == "upsampling":
        images.upsampling(lower, node)
    elif kind == "cat":
        lower.cat(node)
    else:
        lower.torch_operator(node)


def _results(lower: Lowering) -> list[Result]:
    """Where each result of a call is; what is not yet in memory of its own is copied there."""
    found: list[Result] = []
    inputs = {node: number for number, node in enumerate(lower.program.inputs)}
    for node in lower.facts.outputs:
        if not isinstance(node, fx.Node):
            found.append(("constant", node))
        elif node in lower.facts.known:
            found.append(("constant", lower.facts.known[node]))
        elif node in inputs:
            found.append(("input", inputs[node]))
        else:
            if node not in lower.outputs:
                _copy_out(lower, node)
            found.append(("output", lower.outputs[node]))
    return found


def _copy_out(lower: Lowering, node: fx.Node) -> None:
    source = lower.view(node)
    value = node.meta["val"]
    like = torch.empty_strided(tuple(value.shape), dense(value), dtype=value.dtype, device="meta")
    target = new(value.shape, like=like, dtype=value.dtype)
    lower.outputs[node] = len(lower.outputs)
    target.buffer.place, target.buffer.number = "output", lower.outputs[node]
    name = lower.name(node)
    if value.dtype == torch.float32 and value.numel() and value.dim():
        lower.move(name, source, target)
    else:
        lower.operators.append(lower.fallback(name, "aten.clone.default", lambda given: given, [source], [target]))


def dense(value: Tensor) -> tuple[int, ...]:
    """The strides of a dense tensor with the order of this one."""
    return torch.empty_like(torch.empty_strided(tuple(value.shape), value.stride(), device="meta")).stride()
