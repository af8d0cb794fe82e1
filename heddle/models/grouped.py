"""Products of many matrices with a block of rows each, by one kernel where PyTorch has one.

They are operators of their own, so that a dry run and a compiler see two opaque products whatever computes them: the
sizes of the blocks are data, which neither knows.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ALIGNED = 16  # bytes that rows must be a multiple of for PyTorch's kernel
KERNEL = (torch.float32, torch.bfloat16, torch.float16)  # types that it takes


def grouped(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Each block of rows, which ends where `ends` says, times the transpose of its own matrix."""
    product: Tensor = torch.ops.heddle.grouped_product(rows, weights, ends)
    return product


def _padded(x: Tensor) -> Tensor:
    """With zeros behind every dim but the first, so that the kernel takes it: a loop would wait for the device."""
    unit = ALIGNED // x.element_size()
    missing = [-size % unit for size in x.shape[1:]]
    return F.pad(x, [each for size in reversed(missing) for each in (0, size)]) if any(missing) else x


def _sizes(ends: Tensor) -> list[int]:
    sizes: list[int] = torch.diff(ends, prepend=ends.new_zeros(1)).tolist()
    return sizes


@torch.library.custom_op("heddle::grouped_product", mutates_args=())
def _product(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    if rows.dtype in KERNEL:
        made = torch._grouped_mm(_padded(rows), _padded(weights).transpose(1, 2), ends)
        return made[:, : weights.shape[1]].contiguous()
    blocks = zip(rows.split(_sizes(ends)), weights.unbind(), strict=True)
    return torch.cat([block @ weight.t() for block, weight in blocks])


@torch.library.custom_op("heddle::grouped_outer", mutates_args=())
def _outer(left: Tensor, right: Tensor, ends: Tensor) -> Tensor:
    """For each block of rows, the transpose of the left ones times the right ones: a gradient of each matrix."""
    if left.dtype in KERNEL:
        made = torch._grouped_mm(_padded(left).t(), _padded(right), ends)
        return made[:, : left.shape[1], : right.shape[1]].contiguous()
    sizes = _sizes(ends)
    return torch.stack([one.t() @ two for one, two in zip(left.split(sizes), right.split(sizes), strict=True)])


@_product.register_fake
def _(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:  # noqa: ARG001
    return rows.new_empty(rows.shape[0], weights.shape[1])


@_outer.register_fake
def _(left: Tensor, right: Tensor, ends: Tensor) -> Tensor:
    return left.new_empty(ends.shape[0], left.shape[1], right.shape[1])


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
    rows, weights, ends = ctx.saved_tensors
    gradient = gradient.contiguous()
    to_rows = _product(gradient, weights.transpose(1, 2), ends)
    return to_rows, _outer(gradient, rows, ends) if ctx.needs_input_grad[1] else None, None


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


torch.library.register_autograd("heddle::grouped_product", _backward, setup_context=_keep)
