"""Latent attention split by heads: every rank makes the latents, and of them the queries, keys and values of its heads.

Latents are a fraction of the hidden size, so all ranks make them alike. With sequence parallelism each makes those of
its own tokens, and they are what is gathered, instead of the tokens: for DeepSeek-V3 less than a third of the numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heddle.models.self_attention import LatentAttention, Parts
from heddle.parallel.mesh import Axis
from heddle.parallel.parameter_layout import split_parameter
from heddle.parallel.tensor.linear import ColumnParallelLinear
from heddle.parallel.tensor.region import enter_region


def split_latent(attention: LatentAttention, axis: Axis, sequence: bool) -> None:
    """Heads of the products that read latents; queries that are made of tokens gather these themselves."""
    from_latents = [attention.kv_up]
    if attention.q_latent_norm is None:
        attention.q_up = ColumnParallelLinear(attention.q_up, axis, sequence)  # type: ignore[assignment]
    else:
        from_latents.append(attention.q_up)
    for linear in from_latents:
        linear.weight = split_parameter(linear.weight, 0, axis.rank, axis.size)

    def enter(parts: Parts) -> Parts:
        sizes = [part.shape[-1] for part in parts]
        return enter_region(torch.cat(parts, dim=-1), axis, sequence).split(sizes, dim=-1)

    attention.enter = enter


def latent_parameters(attention: LatentAttention) -> list[nn.Parameter | None]:
    """What makes latents, of which every rank has all."""
    norms: list[nn.Module | None] = [attention.q_latent_norm, attention.kv_latent_norm]
    own: list[Tensor | None] = [attention.down.weight, attention.down.bias]
    found = [parameter for norm in norms if norm is not None for parameter in norm.parameters()]
    return [*own, *found]  # type: ignore[list-item]
