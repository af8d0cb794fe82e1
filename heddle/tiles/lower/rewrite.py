"""Operators in terms of others that have kernels: what is captured is written again before it is lowered.

What depends on weights alone, such as the kernels of a transposed convolution in another order, is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._decomp import get_decompositions

from heddle.tiles.lower.totals import totals

aten = torch.ops.aten
LONGEST = 64  # steps of a recurrent layer, or places of a dim that is turned round, that are written out


def _einsum(equation: str, tensors: Sequence[Tensor], **_: Any) -> Any:
    """One or two tensors without ellipses or diagonals: what both have and the result, too, is a batch of products."""
    sides, arrow, result = equation.replace(" ", "").partition("->")
    names = sides.split(",")
    plain = arrow and "." not in equation and all(len({*each}) == len(each) for each in (*names, result))
    if not plain or len(tensors) > 2:
        return NotImplemented
    shapes = {
        name: size
        for each, tensor in zip(names, tensors, strict=True)
        for name, size in zip(each, tensor.shape, strict=True)
    }
    given = []
    for place, (each, tensor) in enumerate(zip(names, tensors, strict=True)):
        others = result + (names[1 - place] if len(names) == 2 else "")
        alone = [dim for dim, name in enumerate(each) if name not in others]
        given.append(("".join(name for name in each if name in others), tensor.sum(alone) if alone else tensor))
    if len(given) == 1:
        return given[0][1].permute([given[0][0].index(name) for name in result])
    (left, a), (right, b) = given
    batch = "".join(name for name in left if name in right and name in result)
    inner = "".join(name for name in left if name in right and name not in result)
    rows, columns = ("".join(name for name in each if name not in batch + inner) for each in (left, right))

    def turned(tensor: Tensor, names: str, *parts: str) -> Tensor:
        order = [names.index(name) for part in parts for name in part]
        return tensor.permute(order).reshape([math.prod(shapes[name] for name in part) for part in parts])

    if inner:
        made = torch.bmm(turned(a, left, batch, rows, inner), turned(b, right, batch, inner, columns))
    else:
        made = turned(a, left, batch, rows, "") * turned(b, right, batch, "", columns)
    order = batch + rows + columns
    return made.reshape([shapes[name] for name in order]).permute([order.index(name) for name in result])


def _unrolled(function: Callable[..., Any], x: Tensor, *rest: Any) -> Any:
    """A recurrent layer step by step, where there are not too many; the last argument says which dim they are."""
    return NotImplemented if x.shape[int(rest[-1])] > LONGEST else function(x, *rest)


def _rnn_cell(
    activate: Callable[[Tensor], Tensor], x: Tensor, h: Tensor, wx: Tensor, wh: Tensor, bx: Tensor | None = None,
    bh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    return activate(F.linear(x, wx, bx) + F.linear(h, wh, bh))


def _lstm_cell(
    x: Tensor, state: Sequence[Tensor], wx: Tensor, wh: Tensor, bx: Tensor | None = None, bh: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    gates = F.linear(x, wx, bx) + F.linear(state[0], wh, bh)
    into, forget, cell, out = gates.chunk(4, -1)
    after = torch.sigmoid(forget) * state[1] + torch.sigmoid(into) * torch.tanh(cell)
    return torch.sigmoid(out) * torch.tanh(after), after


def _gru_cell(
    x: Tensor, h: Tensor, wx: Tensor, wh: Tensor, bx: Tensor | None = None, bh: Tensor | None = None
) -> Tensor:
    reset, update, new = F.linear(x, wx, bx).chunk(3, -1)
    before = F.linear(h, wh, bh).chunk(3, -1)
    share = torch.sigmoid(update + before[1])
    fresh = torch.tanh(new + torch.sigmoid(reset + before[0]) * before[2])
    return (h - fresh) * share + fresh


def _flip(x: Tensor, dims: Sequence[int]) -> Any:
    if any(x.shape[dim] > LONGEST for dim in dims):
        return NotImplemented
    for dim in dims:
        x = torch.cat([x.narrow(dim, place, 1) for place in reversed(range(x.shape[dim]))], dim)
    return x


def _stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return torch.cat([each.unsqueeze(dim) for each in tensors], dim)


def _group_norm(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, _: bool = True
) -> Tensor:
    rows = x.reshape(x.shape[0], groups, -1)
    normal = F.layer_norm(rows, (rows.shape[-1],), None, None, eps).reshape(x.shape)
    return _affine(normal, weight, bias)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Each channel, which is dim 1, with its own scale and shift."""
    shape = (-1, *[1] * (x.dim() - 2))
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def _instance_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any) -> Any:
    _, _, own, _, eps, _ = rest  # statistics that were kept, whether they are the image's own, and how exact
    return _group_norm(x, x.shape[1], weight, bias, eps) if own else NotImplemented


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    _: bool = True,
) -> Any:  # fmt: skip
    if len(shape) == 1:
        return NotImplemented
    size = math.prod(shape)
    flat = [None if each is None else each.reshape(size) for each in (weight, bias)]
    return F.layer_norm(x.reshape(*x.shape[: -len(shape)], size), (size,), flat[0], flat[1], eps).reshape(x.shape)


def _softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    if dtype is not None or x.dim() < 2 or dim % x.dim() == x.dim() - 1:
        return NotImplemented
    return torch.softmax(x.transpose(dim, -1), -1).transpose(dim, -1)


def _conv_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sequence[int] = (1,), padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,), groups: int = 1, dilation: Sequence[int] = (1,),
) -> Any:  # fmt: skip
    """Every output is of one phase, its place modulo the stride, and each phase is a convolution: all are one with more
    channels, whose pixels are then put between each other.
    """
    space = x.dim() - 2
    strides, paddings, more, wide = (
        list(each) * space if len(each) == 1 else list(each) for each in (stride, padding, output_padding, dilation)
    )
    if x.dim() not in (3, 4) or any(each != 1 for each in wide):
        return NotImplemented
    sizes = weight.shape[2:]
    taps = [-(-(size + extra) // step) for size, extra, step in zip(sizes, more, strides, strict=True)]
    padded = [end for tap, step, size in zip(taps[::-1], strides[::-1], sizes[::-1], strict=True)
              for end in (0, tap * step - size)]  # fmt: skip
    inside, out = weight.shape[0] // groups, weight.shape[1]
    # groups, inside, out, then taps and phases of each dim; taps from the last to the first
    pairs = [each for pair in zip(taps, strides, strict=True) for each in pair]
    kernels = F.pad(weight, padded).reshape(groups, inside, out, *pairs)
    kernels = kernels.flip([3 + 2 * dim for dim in range(space)])
    # The channels of a phase are next to each other, so that its pixels are copied in one piece
    order = [0, *(4 + 2 * dim for dim in range(space)), 2, 1, *(3 + 2 * dim for dim in range(space))]
    phases = math.prod(strides)
    kernels = kernels.permute(order).reshape(groups * phases * out, inside, *taps)
    added = None if bias is None else bias.reshape(groups, 1, out).expand(groups, phases, out).reshape(-1)
    convolve = F.conv1d if space == 1 else F.conv2d
    made = convolve(x, kernels, added, padding=[tap - 1 for tap in taps], groups=groups)
    each = made.shape[2:]
    between = made.reshape(x.shape[0], groups, *strides, out, *each)
    turned = [0, *(2 + dim + part for dim in range(space) for part in (space + 1, 0)), 1, 2 + space]
    lengths = [a * s for a, s in zip(each, strides, strict=True)]
    whole = between.permute(turned).reshape(x.shape[0], *lengths, groups * out).movedim(-1, 1)
    for dim in range(space):
        length = (x.shape[2 + dim] - 1) * strides[dim] - 2 * paddings[dim] + sizes[dim] + more[dim]
        whole = whole.narrow(2 + dim, paddings[dim], length)
    return whole


def _bilinear(left: Tensor, right: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    out, first, second = weight.shape
    half = F.linear(left, weight.permute(0, 2, 1).reshape(out * second, first)).reshape(*left.shape[:-1], out, second)
    made = (half * right.unsqueeze(-2)).sum(-1)
    return made if bias is None else made + bias


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    if not dims:
        return NotImplemented
    for shift, dim in zip(shifts, dims, strict=True):
        cut = x.shape[dim] - shift % x.shape[dim]
        if cut != x.shape[dim]:
            x = torch.cat((x.narrow(dim, cut, x.shape[dim] - cut), x.narrow(dim, 0, cut)), dim)
    return x


def _repeated(x: Tensor, times: int, dim: int | None = None, **_: Any) -> Any:
    """Each place of a dim several times, as heads that share keys."""
    if dim is None:
        return NotImplemented
    place = dim % x.dim()
    wide = x.unsqueeze(place + 1).expand(*x.shape[: place + 1], times, *x.shape[place + 1 :])
    return wide.reshape(*x.shape[:place], x.shape[place] * times, *x.shape[place + 1 :])


def _filled(number: float, x: Tensor, size: Sequence[int], **named: Any) -> Any:
    """What takes only its type from another tensor depends on no input."""
    kind = named.get("dtype") or x.dtype
    return torch.full(tuple(size), number, dtype=kind)


def _glu(x: Tensor, dim: int = -1) -> Tensor:
    left, right = x.chunk(2, dim)
    return left * torch.sigmoid(right)


def _pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    *batch, channels, height, width = x.shape
    parts = x.reshape(*batch, channels // factor**2, factor, factor, height, width)
    count = len(batch)
    order = [*range(count + 1), count + 3, count + 1, count + 4, count + 2]
    return parts.permute(order).reshape(*batch, channels // factor**2, height * factor, width * factor)


def _max_pool1d(
    x: Tensor, size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil: bool = False,
) -> Tensor:  # fmt: skip
    step = list(stride) or list(size)
    given = ([1, *size], [1, *step], [0, *padding], [1, *dilation], ceil)
    return F.max_pool2d(x.unsqueeze(-2), *given).squeeze(-2)


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Linear above the threshold, as PyTorch's."""
    scaled = x if beta == 1 else x * beta
    soft = torch.log1p(torch.exp(-scaled.abs())) + torch.relu(scaled)
    return torch.where(scaled > threshold, x, soft if beta == 1 else soft / beta)


def _mish(x: Tensor) -> Tensor:
    return x * torch.tanh(_softplus(x))


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    negative = (torch.exp(torch.clamp(x * input_scale, max=0.0)) - 1) * alpha
    return torch.where(x > 0, x, negative) * scale


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    slope = weight if weight.numel() == 1 or x.dim() < 2 else weight.reshape(-1, *[1] * (x.dim() - 2))
    return torch.where(x > 0, x, x * slope)


def rewrites() -> dict[Any, Callable[..., Any]]:
    """For each operator, what it is in terms of others; NotImplemented where it stays."""
    theirs = [aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input]
    return {
        **totals(),
        **{target: partial(_unrolled, function) for target, function in get_decompositions(theirs).items()},
        aten.einsum.default: _einsum,
        aten.lstm_cell.default: _lstm_cell,
        aten.gru_cell.default: _gru_cell,
        aten.rnn_tanh_cell.default: partial(_rnn_cell, torch.tanh),
        aten.rnn_relu_cell.default: partial(_rnn_cell, torch.relu),
        aten.flip.default: _flip,
        aten.stack.default: _stack,
        aten.group_norm.default: _group_norm,
        aten.instance_norm.default: _instance_norm,
        aten.layer_norm.default: _layer_norm,
        aten.softmax.int: _softmax,
        aten.conv_transpose1d.default: _conv_transpose,
        aten.conv_transpose2d.input: _conv_transpose,
        aten.bilinear.default: _bilinear,
        aten.roll.default: _roll,
        aten.repeat_interleave.self_int: _repeated,
        aten.new_zeros.default: partial(_filled, 0.0),
        aten.new_ones.default: partial(_filled, 1.0),
        aten.zeros_like.default: lambda x, **_: _filled(0.0, x, x.shape),
        aten.ones_like.default: lambda x, **_: _filled(1.0, x, x.shape),
        aten.glu.default: _glu,
        aten.pixel_shuffle.default: _pixel_shuffle,
        aten.max_pool1d.default: _max_pool1d,
        aten.softplus.default: _softplus,
        aten.mish.default: _mish,
        aten.elu.default: _elu,
        aten.prelu.default: _prelu,
    }
