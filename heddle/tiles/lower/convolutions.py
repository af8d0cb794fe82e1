"""Convolutions: products over windows; one channel at a time where each has weights of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from heddle.tiles.kernels.winograd import PLACES
from heddle.tiles.lower.epilogue import Epilogue, finish
from heddle.tiles.lower.facts import named
from heddle.tiles.lower.groups import FusedNodes
from heddle.tiles.lower.lowering import Lowering
from heddle.tiles.operators import border, depthwise, winograd
from heddle.tiles.operators.product import ProductOperator, packed_constant
from heddle.tiles.operators.separable import SeparableOperator, suits
from heddle.tiles.operators.windows import Taps, Window, WindowsOperator
from heddle.tiles.values import View, new

aten = torch.ops.aten


def convolution(
    lower: Lowering, node: fx.Node, group: FusedNodes | None = None, chain: list[fx.Node] | None = None
) -> bool:
    """A product over windows; one channel at a time where each has its own weights. conv1d: an image of one row."""
    geometry = conv_geometry(lower, node)
    assert geometry is not None
    source, weight, bias, window, groups = geometry
    value = node.meta["val"]
    count, channels, height, width = value.shape if value.dim() == 4 else (*value.shape[:2], 1, value.shape[2])
    natural = torch.empty((count, channels, height, width), device="meta").to(memory_format=torch.channels_last)
    natural = natural if value.dim() == 4 else natural.squeeze(2)
    rows = count * height * width
    added = None if bias is None else lower.view(bias)
    epilogue = finish(lower, node, natural, rows, channels, added, (), group, chain or [])
    if epilogue is None:
        return False
    name = lower.name(group.last if group else node)
    image = lower.view(source)
    if value.dim() == 3:
        image = image.then(lambda each: each.unsqueeze(2))
    if border.suits(image, window, groups):
        copy, image, window = border.bordered(f"{name}.image", lower.tiling, image, window, width)
        lower.operators.append(copy)
    else:
        image = channels_last(lower, name, image)
    if groups == image.shape[1] == channels and groups > 1:
        _depthwise(lower, name, image, weight, window, (height, width), epilogue)
        return True
    if winograd.suits(lower.target, window, groups, weight, (count, height, width)):
        _winograd(lower, node, name, image, weight, window, epilogue)
        return True
    _products(lower, node, name, image, weight, window, groups, epilogue)
    return True


def _depthwise(
    lower: Lowering, name: str, image: View, weight: Tensor, window: Window, size: tuple[int, int], epilogue: Epilogue
) -> None:
    """A convolution of each channel for itself: by rows of pixels, or pixel by pixel where windows are odd."""
    weights = lower.constant(weight.reshape(weight.shape[0], -1).t().contiguous())
    along, down = depthwise.lines(image, window, *size)
    done = (epilogue.output, epilogue.recipe, epilogue.operands)
    if depthwise.suits(along, down):
        made = depthwise.DepthwiseOperator(name, lower.tiling, image, along, down, weights, *done)
        lower.operators.append(made)
        return
    taps = Taps.of(image, window, *size, 0.0)
    lower.operators.append(WindowsOperator(name, lower.tiling, "depthwise", image, taps, weights, *done))


def _winograd(
    lower: Lowering, node: fx.Node, name: str, image: View, weight: Tensor, window: Window, epilogue: Epilogue
) -> None:
    """A 3 × 3 convolution in fewer multiplications."""
    height, width = node.meta["val"].shape[2:]
    outputs, inputs = weight.shape[:2]
    taps = winograd.patches(image, window, height, width)
    count = len(taps.offsets)
    vectors, block, tall, _ = winograd.patch_tile(lower.tiling, lower.target, count, inputs, outputs)
    original = lower.facts.argument(node.args[1])
    key = ("winograd", original.data_ptr(), tuple(weight.shape), vectors, node.name)
    if key not in lower.weights:
        lower.weights[key] = (original, winograd.packed_places(weight, vectors, lower.target.lanes))
    spread = new((count, PLACES * inputs))
    lower.operators.append(winograd.SpreadOperator(f"{name}.patches", image, taps, spread, tall * block))
    lower.operators.append(
        winograd.WinogradOperator(
            name, lower.target, lower.tiling, image, taps, spread, lower.weights[key][1], epilogue.output, width // 2,
            epilogue.recipe, epilogue.operands,
        )
    )  # fmt: skip


def _products(
    lower: Lowering,
    node: fx.Node,
    name: str,
    image: View,
    weight: Tensor,
    window: Window,
    groups: int,
    epilogue: Epilogue,
) -> None:
    """One product over windows for each group of channels."""
    depth, channels = image.shape[1] // groups, weight.shape[0] // groups
    rows = epilogue.output.shape[0]
    vectors = lower.target.panel_vectors(channels)
    plain = window == Window((1, 1), (1, 1), (0, 0), (1, 1))
    original = lower.facts.argument(node.args[1])
    height, width = node.meta["val"].shape[2:] if node.meta["val"].dim() == 4 else (1, node.meta["val"].shape[2])
    table = None if plain else Taps.of(image, window, height, width, 0.0)
    for group in range(groups):
        part = _channels(image, group * depth, depth)
        matrix = part.then(lambda each: each.permute(0, 2, 3, 1)).reshaped((rows, depth)) if plain else None
        if plain and matrix is None:  # rows of a piece of something larger
            table = table or Taps.of(image, window, height, width, 0.0)
        key = (original.data_ptr(), tuple(weight.shape), vectors, node.name, group)
        if key not in lower.weights:
            mine = weight[group * channels : (group + 1) * channels]
            flat = mine.permute(2, 3, 1, 0).reshape(-1, channels)
            lower.weights[key] = (original, packed_constant(flat, vectors, lower.target.lanes))
        made = ProductOperator(
            name,
            lower.target,
            lower.tiling,
            part if matrix is None else matrix,
            lower.weights[key][1],
            _channels(epilogue.output, group * channels, channels),
            depth,
            vectors,
            epilogue.recipe,
            [_channels(each, group * channels, channels) for each in epilogue.operands],
            table if matrix is None else None,
        )
        before = lower.operators[-1] if lower.operators else None
        source = lower.facts.resolve(node.args[0])  # type: ignore[arg-type]
        if isinstance(before, depthwise.DepthwiseOperator) and lower.facts.only_user(source) and suits(before, made):
            lower.operators[-1] = SeparableOperator(name, before, made)
        else:
            lower.operators.append(made)


def _channels(view: View, begin: int, count: int) -> View:
    """Some channels of an image, or columns of a matrix."""
    return view if count == view.shape[1] else view.then(lambda meta: meta.narrow(1, begin, count))


def conv_geometry(lower: Lowering, node: fx.Node) -> tuple[Any, Tensor, Tensor | None, Window, int] | None:
    """Image, weights, bias, window and groups of a convolution that is one of ours; None otherwise."""
    given = named(node, "input", "weight", "bias", "stride", "padding", "dilation", "groups")
    source, weight = lower.facts.resolve(node.args[0]), lower.facts.argument(node.args[1])  # type: ignore[arg-type]
    bias = lower.facts.argument(given.get("bias"))
    if not isinstance(weight, Tensor) or isinstance(bias, fx.Node) or source.meta["val"].dim() != weight.dim():
        return None
    groups = given.get("groups", 1)
    depthwise = groups > 1 and groups == source.meta["val"].shape[1] == weight.shape[0]
    if groups != 1 and not depthwise and weight.shape[0] // groups < lower.target.lanes // 2:
        return None  # nearly nothing of a vector would be used
    if node in lower.facts.scaled:
        scale, shift = lower.facts.scaled[node]
        weight = weight * scale.reshape(-1, *[1] * (weight.dim() - 1))
        bias = shift if bias is None else bias * scale + shift
    stride, dilation = (tuple(given.get(key, (1, 1))) for key in ("stride", "dilation"))
    padding = given.get("padding", (0, 0))
    if isinstance(padding, str):  # "same", of which an odd one goes behind, or "valid"
        steps = dilation * (weight.dim() - 2) if len(dilation) == 1 else dilation
        same = [(size - 1) * step // 2 for size, step in zip(weight.shape[2:], steps, strict=False)]
        padding = same if padding == "same" else [0] * len(same)
    padding = tuple(padding)
    two = [each * 2 if len(each) == 1 else each for each in (stride, padding, dilation)]
    if weight.dim() == 3:  # an image of one row
        weight = weight.unsqueeze(2)
        two = [(alone, each[0]) for alone, each in zip((1, 0, 1), (stride, padding, dilation), strict=True)]
        return source, weight, bias, Window(tuple(weight.shape[2:]), *two), groups  # type: ignore[arg-type]
    added = padded(lower, source)
    if added is not None:
        source, top, left = added
        two[1] = (two[1][0] + top, two[1][1] + left)
    return source, weight, bias, Window(tuple(weight.shape[2:]), *two), groups  # type: ignore[arg-type]


def padded(lower: Lowering, node: fx.Node) -> tuple[fx.Node, int, int] | None:
    """What a padding with zeros pads, and by how much above and to the left, where only convolutions read it."""
    if getattr(node, "target", None) not in (aten.pad.default, aten.constant_pad_nd.default):
        return None
    sides = list(node.args[1]) + [0] * (4 - len(node.args[1]))  # type: ignore[arg-type]
    plain = node.target is aten.constant_pad_nd.default or len(node.args) < 3 or node.args[2] == "constant"
    value = node.args[-1] if isinstance(node.args[-1], int | float) else node.kwargs.get("value") or 0
    readers = lower.facts.users.get(node, [])
    if node.meta["val"].dim() != 4:
        return None
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
