"""Convolutions: products over windows; one channel at a time where each has weights of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from heddle.tiles.lower.epilogue import finish
from heddle.tiles.lower.facts import named
from heddle.tiles.lower.groups import Group
from heddle.tiles.lower.lowering import Lowering
from heddle.tiles.operators.product import ProductOperator, packed_constant
from heddle.tiles.operators.windows import Taps, Window, WindowsOperator
from heddle.tiles.values import View

aten = torch.ops.aten


def convolution(lower: Lowering, node: fx.Node, group: Group | None = None, chain: list[fx.Node] | None = None) -> bool:
    """conv2d: a product over windows; one channel at a time where each has its own weights."""
    geometry = conv_geometry(lower, node)
    assert geometry is not None
    source, weight, bias, window, depthwise = geometry
    value = node.meta["val"]
    count, channels, height, width = value.shape
    natural = torch.empty(tuple(value.shape), device="meta").to(memory_format=torch.channels_last)
    rows = count * height * width
    added = None if bias is None else lower.view(bias)
    epilogue = finish(lower, node, natural, rows, channels, added, (), group, chain or [])
    if epilogue is None:
        return False
    name = lower.name(group.last if group else node)
    image = channels_last(lower, name, lower.view(source))
    if depthwise:
        taps = Taps.of(image, window, height, width, 0.0)
        weights = lower.constant(weight.reshape(channels, -1).t().contiguous())
        lower.operators.append(
            WindowsOperator(name, lower.tiling, "depthwise", image, taps, weights, epilogue.output, epilogue.recipe,
                            epilogue.operands)
        )  # fmt: skip
        return True
    depth = image.shape[1]
    vectors = lower.target.panel_vectors(channels, depth * weight[0, 0].numel())
    plain = window == Window((1, 1), (1, 1), (0, 0), (1, 1))
    matrix = image.then(lambda each: each.permute(0, 2, 3, 1)).reshaped((rows, depth)) if plain else None
    original = lower.facts.argument(node.args[1])
    key = (original.data_ptr(), tuple(weight.shape), vectors, node.name)
    if key not in lower.weights:
        flat = weight.permute(2, 3, 1, 0).reshape(-1, channels)
        lower.weights[key] = (original, packed_constant(flat, vectors, lower.target.lanes))
    table = None if matrix is not None else Taps.of(image, window, height, width, 0.0)
    lower.operators.append(
        ProductOperator(
            name,
            lower.target,
            lower.tiling,
            matrix or image,
            lower.weights[key][1],
            epilogue.output,
            depth,
            vectors,
            epilogue.recipe,
            epilogue.operands,
            table,
        )
    )
    return True


def conv_geometry(lower: Lowering, node: fx.Node) -> tuple[Any, Tensor, Tensor | None, Window, bool] | None:
    """Image, weights, bias and window of a convolution that is one of ours; None otherwise."""
    given = named(node, "input", "weight", "bias", "stride", "padding", "dilation", "groups")
    source, weight = lower.facts.resolve(node.args[0]), lower.facts.argument(node.args[1])  # type: ignore[arg-type]
    bias = lower.facts.argument(given.get("bias"))
    if not isinstance(weight, Tensor) or isinstance(bias, fx.Node) or node.meta["val"].dim() != 4:
        return None
    groups = given.get("groups", 1)
    channels = source.meta["val"].shape[1]
    depthwise = groups > 1 and groups == channels == weight.shape[0]
    if groups != 1 and not depthwise:
        return None
    if node in lower.facts.scaled:
        scale, shift = lower.facts.scaled[node]
        weight = weight * scale.reshape(-1, 1, 1, 1)
        bias = shift if bias is None else bias * scale + shift
    stride, padding, dilation = (
        tuple(given.get(key, default))
        for key, default in (("stride", (1, 1)), ("padding", (0, 0)), ("dilation", (1, 1)))
    )
    two = [each * 2 if len(each) == 1 else each for each in (stride, padding, dilation)]
    added = padded(lower, source)
    if added is not None:
        source, top, left = added
        two[1] = (two[1][0] + top, two[1][1] + left)
    return source, weight, bias, Window(tuple(weight.shape[2:]), *two), depthwise  # type: ignore[arg-type]


def padded(lower: Lowering, node: fx.Node) -> tuple[fx.Node, int, int] | None:
    """What a padding with zeros pads, and by how much above and to the left, where only convolutions read it."""
    if getattr(node, "target", None) not in (aten.pad.default, aten.constant_pad_nd.default):
        return None
    sides = list(node.args[1]) + [0] * (4 - len(node.args[1]))  # type: ignore[arg-type]
    plain = node.target is aten.constant_pad_nd.default or len(node.args) < 3 or node.args[2] == "constant"
    value = node.args[-1] if isinstance(node.args[-1], int | float) else node.kwargs.get("value") or 0
    readers = lower.facts.users.get(node, [])
    if not plain or value or len(sides) != 4 or min(sides) < 0 or node in lower.facts.returned:
        return None
    if any(lower.kinds.get(each) != "convolution" for each in readers):
        return None
    return lower.facts.resolve(node.args[0]), sides[2], sides[0]  # type: ignore[arg-type]


def channels_last(lower: Lowering, name: str, image: View) -> View:
    """An image with channels next to each other, copied where they are not."""
    if image.strides[1] == 1 or image.shape[1] == 1:
        return image
    like = torch.empty(image.shape, device="meta").to(memory_format=torch.channels_last)
    return lower.copy(f"{name}.image", image, like)
