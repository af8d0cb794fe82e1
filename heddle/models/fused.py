"""Rotary positions and dropout on CPUs, each in one pass over memory instead of PyTorch's many, with the same bits.

The kernels are C (`kernels/fused.c`) that `heddle lanes` packed into the lanes of vectors (`kernels/fused.ll`, by
`kernels/make.py`). They need the extra `lanes`; without it, and for
anything but float32 in a CPU's memory, PyTorch's own operations do the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heddle.errors import HeddleError
from heddle.files import read_text
from heddle.native.loaded import Loaded

POINTER, WHOLE, SMALL, REAL = "ptr", "i64", "i32", "float"


@dataclass(frozen=True)
class FusedKernels:
    """Machine code for this CPU."""

    rotate: Callable[..., None]
    dropout: Callable[..., None]


@cache
def kernels() -> FusedKernels | None:
    """The kernels, compiled when first asked for; none where llvmlite is not installed."""
    try:
        return loaded(read_text(Path(__file__).parent / "kernels" / "fused.ll", "the kernels that come with Heddle"))
    except HeddleError:
        return None


def loaded(text: str) -> FusedKernels:
    """The kernels of some IR."""
    module = Loaded(text)
    return FusedKernels(
        module.function("rotate", "void", [*[POINTER] * 7, WHOLE, REAL]),
        module.function("dropout", "void", [*[POINTER] * 4, WHOLE, WHOLE, SMALL, REAL]),
    )


def usable(x: Tensor) -> bool:
    """Whether a kernel may read a tensor's memory: real numbers on a CPU, while nobody records operations."""
    return (
        type(x) is Tensor
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and x.stride(-1) == 1
        and x.numel() > 0
        and not torch.compiler.is_compiling()
        and kernels() is not None
    )


class Rotate(torch.autograd.Function):
    """Turn [batch, heads, positions, size] by tables of [positions, size]; backwards it turns back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return turned(x, cos, sin, 1.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        cos, sin = ctx.saved_tensors
        return turned(gradient if gradient.stride(-1) == 1 else gradient.contiguous(), cos, sin, -1.0), None, None


def turned(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    made = kernels()
    assert made is not None
    out = torch.empty_like(x)
    sizes = torch.tensor([*x.shape[:3], x.shape[3] // 2])
    strides = torch.tensor([*x.stride()[:3], *out.stride()[:3]])
    made.rotate(
        out.data_ptr(), x.data_ptr(), cos.data_ptr(), sin.data_ptr(), sizes.data_ptr(), strides.data_ptr(),
        strides.data_ptr() + 24, cos.stride(0), sign,
    )  # fmt: skip
    return out


class Drop(torch.autograd.Function):
    """Keep or drop by the hash of token and feature, which is made again backwards: no mask is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tokens: Tensor, features: Tensor, threshold: int, scale: float) -> Tensor:
        ctx.save_for_backward(tokens, features)
        ctx.threshold, ctx.scale = threshold, scale
        return dropped(x, tokens, features, threshold, scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        (gradient,) = gradients
        tokens, features = ctx.saved_tensors
        made = dropped(gradient.contiguous(), tokens, features, ctx.threshold, ctx.scale)
        return made, None, None, None, None


def dropped(x: Tensor, tokens: Tensor, features: Tensor, threshold: int, scale: float) -> Tensor:
    made = kernels()
    assert made is not None
    out = torch.empty_like(x)
    made.dropout(
        out.data_ptr(), x.data_ptr(), tokens.data_ptr(), features.data_ptr(), tokens.numel(), x.shape[-1], threshold,
        scale,
    )  # fmt: skip
    return out
