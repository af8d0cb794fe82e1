"""Initial weights: a pure function of the seed, the parameter's global name and the place in it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from heddle.models.lora import A, Adapters, B
from heddle.models.random import fill_normal
from heddle.models.transformer import Dropout, Transformer
from heddle.spec.model import ModelSpec

STD = 0.02  # GPT-2's, and Megatron's default
INTO_STREAM = ("attention.out.weight", "mlp.down.weight", "mlp.experts.down", "mlp.shared.down.weight")


def initial_std(spec: ModelSpec, name: str) -> float:
    """Spread of a weight: what feeds the residual stream is damped by its depth, as in GPT-2."""
    return STD / math.sqrt(2 * spec.layers) if name.endswith(INTO_STREAM) else STD


def materialize(
    model: nn.Module,
    device: torch.device,
    dtype: torch.dtype,
    others: Mapping[nn.Parameter, nn.Parameter] | None = None,
) -> None:
    """Give a model that was built on the meta device memory on a real one, without any value yet.

    What two modules share they still share afterwards, and notes on a parameter stay with it. `others` have theirs
    already.
    """
    made = dict(others or {})
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if parameter not in made:
                kept = dtype if parameter.is_floating_point() else parameter.dtype
                empty = torch.empty_like(parameter, device=device, dtype=kept)
                made[parameter] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
                made[parameter].__dict__.update(parameter.__dict__)
            module._parameters[name] = made[parameter]
        if isinstance(module, Dropout | Adapters):
            module.reset(device)


@torch.no_grad()
def initialize(model: Transformer, seed: int) -> None:
    """Give every parameter of a model, or of a chunk of one, its initial value in place."""
    spec = model.spec
    for name, parameter in model.named_parameters():
        initialize_parameter(parameter, name, spec, seed, parameter.shape, (0,) * parameter.dim())


@torch.no_grad()
def initialize_parameter(
    target: Tensor, name: str, spec: ModelSpec, seed: int, shape: torch.Size, offset: tuple[int, ...]
) -> None:
    """Fill `target`, the box at `offset` of a parameter of global `shape`, with its part of the initial value."""
    if isinstance(target, FakeTensor):
        return  # a dry run: it has a shape, and no memory to fill
    if "norm" in name.split(".")[-2]:
        target.fill_(1.0 if name.endswith("weight") and spec.norm_weight != "offset" else 0.0)
    elif name.endswith(("bias", "sinks", B)):  # what adapters add begins with nothing
        target.zero_()
    elif name.endswith(A):
        fill_normal(target, name, seed, (3 * shape[-1]) ** -0.5, shape, offset)  # as wide as PEFT's uniform numbers
    else:
        fill_normal(target, name, seed, initial_std(spec, name), shape, offset)
