"""Pooling: windows over images, and means over whole ones. Upsampling: each pixel several times, or a blend of four."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx

from heddle.tiles.kernels.recipe import IDENTITY
from heddle.tiles.lower.convolutions import channels_last
from heddle.tiles.lower.facts import named
from heddle.tiles.lower.lowering import Lowering
from heddle.tiles.operators.rows import RowsOperator
from heddle.tiles.operators.windows import Taps, Window, WindowsOperator

aten = torch.ops.aten


def _pair(value: Any) -> tuple[int, int]:
    values = [value] if isinstance(value, int) else list(value)
    return (values[0], values[-1])


def geometry(node: fx.Node) -> tuple[str, Window, bool] | None:
    """Kind, window, and whether what lies outside counts for the mean; None for what is not ours."""
    image, value = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    if image.dim() != 4:
        return None
    height, width = image.shape[2:]
    if node.target is aten.mean.dim:
        return "mean", Window((height, width), (1, 1), (0, 0), (1, 1)), False
    if node.target is aten.adaptive_avg_pool2d.default:
        rows, columns = value.shape[2:]
        if height % rows or width % columns:
            return None
        size = (height // rows, width // columns)
        return "mean", Window(size, size, (0, 0), (1, 1)), False
    names = ["self", "kernel_size", "stride", "padding"]
    names += ["dilation", "ceil_mode"] if node.target is aten.max_pool2d.default else [
        "ceil_mode", "count_include_pad", "divisor_override"
    ]  # fmt: skip
    given = named(node, *names)
    if given.get("ceil_mode") or given.get("divisor_override"):
        return None
    size = _pair(given["kernel_size"])
    window = Window(
        size, _pair(given.get("stride") or size), _pair(given.get("padding", 0)), _pair(given.get("dilation", 1))
    )
    return ("max" if node.target is aten.max_pool2d.default else "mean"), window, given.get("count_include_pad", True)


def pooling(lower: Lowering, node: fx.Node) -> None:
    """Lower a pooling."""
    found = geometry(node)
    assert found is not None
    kind, window, counts = found
    name = lower.name(node)
    image = channels_last(lower, name, lower.view(node.args[0]))
    batch, channels = image.shape[:2]
    value = node.meta["val"]
    height, width = value.shape[2:] if value.dim() == 4 else (1, 1)
    taps = Taps.of(image, window, height, width, float("-inf") if kind == "max" else 0.0)
    shares = np.full(len(taps.offsets), 1 / taps.count, dtype=np.float32) if counts else taps.shares()
    like = torch.empty((batch, channels, height, width), device="meta").to(memory_format=torch.channels_last)
    if value.dim() == 4:
        output = lower.allocate(node, like)
        matrix = output.then(lambda meta: meta.permute(0, 2, 3, 1).view(-1, channels))
    else:
        output = lower.allocate(node, lower.meta(node))
        matrix = output
    lower.views[node] = output
    shared = lower.constant(torch.from_numpy(shares))
    lower.operators.append(WindowsOperator(name, lower.tiling, kind, image, taps, shared, matrix))


def repeats(node: fx.Node) -> tuple[int, int] | None:
    """How often an upsampling to the nearest pixel repeats rows and columns; None where it is not a whole number."""
    if node.target is not aten.upsample_nearest2d.vec:
        return None
    image, value = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    if image.dim() != 4:
        return None
    found = [large // small for small, large in zip(image.shape[2:], value.shape[2:], strict=True)]
    exact = all(
        small * times == large for small, times, large in zip(image.shape[2:], found, value.shape[2:], strict=True)
    )
    scales = node.args[2] if len(node.args) > 2 else node.kwargs.get("scale_factors")
    same = scales is None or list(scales) == found  # type: ignore[arg-type]
    return (found[0], found[1]) if exact and same else None


def blends(node: fx.Node) -> bool:
    """Whether an upsampling is bilinear."""
    return node.target is aten.upsample_bilinear2d.vec and node.args[0].meta["val"].dim() == 4  # type: ignore[union-attr]


def _between(small: int, large: int, corners: bool, factor: float | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each place of a longer line the two of a shorter one that it lies between, and how much of each it gets.

    In float32, as PyTorch counts.
    """
    places = np.arange(large, dtype=np.float32)
    if corners:
        places = places * np.float32((small - 1) / (large - 1) if large > 1 else 0)
    else:
        step = np.float32(1 / factor if factor else small / large)
        places = np.maximum(step * (places + np.float32(0.5)) - np.float32(0.5), np.float32(0))
    low = np.minimum(places.astype(np.int64), small - 1)
    share = np.clip(places - low.astype(np.float32), 0, 1)
    return np.stack([low, np.minimum(low + 1, small - 1)], 1), np.stack([1 - share, share], 1)


def _blending(lower: Lowering, node: fx.Node) -> None:
    """A bilinear upsampling: four pixels, each with its share."""
    given = named(node, "input", "output_size", "align_corners", "scale_factors")
    factors = given.get("scale_factors") or (None, None)
    name, value = lower.name(node), node.meta["val"]
    image = channels_last(lower, name, lower.view(node.args[0]))
    corners = bool(given["align_corners"])
    (rows, high), (columns, wide) = (
        _between(image.shape[dim], value.shape[dim], corners, factors[dim - 2]) for dim in (2, 3)
    )
    taps = Taps.between(image, rows, columns)
    shares = (high[:, None, :, None] * wide[None, :, None, :]).reshape(1, -1, 4).astype(np.float32)
    shared = lower.constant(torch.from_numpy(np.repeat(shares, image.shape[0], 0).reshape(-1, 4)))
    output = lower.allocate(node, lower.meta(node).to(memory_format=torch.channels_last))
    lower.views[node] = output
    matrix = output.then(lambda meta: meta.permute(0, 2, 3, 1).view(-1, image.shape[1]))
    lower.operators.append(WindowsOperator(name, lower.tiling, "blend", image, taps, shared, matrix))


def upsampling(lower: Lowering, node: fx.Node) -> None:
    """Lower an upsampling to the nearest pixel, a copy that reads each one several times, or a bilinear one."""
    if blends(node):
        _blending(lower, node)
        return
    times = repeats(node)
    assert times is not None
    name, (batch, channels, height, width) = lower.name(node), node.args[0].meta["val"].shape  # type: ignore[union-attr]
    image = channels_last(lower, name, lower.view(node.args[0]))
    shape = (batch, channels, height, times[0], width, times[1])
    wide = image.then(lambda meta: meta.unsqueeze(3).unsqueeze(5).expand(shape))
    like = torch.empty(node.meta["val"].shape, device="meta").to(memory_format=torch.channels_last)
    output = lower.allocate(node, like)
    lower.views[node] = output
    parts = output.then(lambda meta: meta.view(shape))
    lower.operators.append(RowsOperator(name, lower.tiling, shape, IDENTITY, [wide], parts))
