"""A GPU's kernels where there is none: what they keep for their backward, for tensors that hold no numbers.

A dry run of a plan for GPUs on a machine without one would count what the CPU's kernels keep. Only one of those that
Heddle's models use differs: PyTorch has a fused RMSNorm for GPUs, and several kernels in its place for CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.runtime.tiers.host import Host


@contextmanager
def gpu_kernels() -> Iterator[None]:
    """Inside, an RMSNorm takes and keeps the memory that it does on a GPU. Its values mean nothing.

    And what comes back from the host comes back ahead of its backward, as beside a GPU.
    """

    def rms_norm(x: Tensor, _shape: Sequence[int], weight: Tensor, _epsilon: float | None = None) -> Tensor:
        normed: Tensor = _RmsNorm.apply(x, weight)
        return normed

    def hides(_tier: Host, _device: torch.device) -> bool:
        return True

    with patch.object(F, "rms_norm", rms_norm), patch.object(Host, "hides", hides):
        yield


class _RmsNorm(torch.autograd.Function):
    """aten::_fused_rms_norm and its backward: keeps the input, and one fp32 number per row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, x.new_empty(x.shape[:-1], dtype=torch.float32), weight)
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, *_gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, _, weight = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)
