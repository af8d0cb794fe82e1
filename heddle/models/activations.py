"""What MLPs and experts do between their products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.spec.model import LayerSpec

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": partial(F.gelu, approximate="tanh"),
    "gelu-exact": F.gelu,
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "silu": F.silu,
}
GATES = {"swiglu": "silu", "geglu": "gelu", "geglu-exact": "gelu-exact", "reglu": "relu"}


def gated(spec: LayerSpec) -> Callable[[Tensor, Tensor], Tensor]:
    """What a gated MLP makes of its gate and its other half."""
    if spec.activation == "clamped-swiglu":
        return partial(clamped_swiglu, limit=spec.gate_limit, alpha=spec.gate_alpha)
    return partial(_gated, ACTIVATIONS[GATES[spec.activation]])


def _gated(activate: Callable[[Tensor], Tensor], gate: Tensor, up: Tensor) -> Tensor:
    return activate(gate) * up


def clamped_swiglu(gate: Tensor, up: Tensor, limit: float, alpha: float) -> Tensor:
    """That of GPT-OSS: both halves bounded, and one added to the second (arXiv 2508.10925 §2.1)."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * (gate * torch.sigmoid(gate * alpha))
