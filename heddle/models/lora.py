"""Low-rank adapters beside linear layers (arXiv 2106.09685), for one device.

Queries, keys and values have an adapter each, although one product makes all three: their outputs are put together in
the order of its rows. What travels between A and B is `rank` numbers wide; who spreads a layer over devices says how
(`exchange`), and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.models import nf4, random
from heddle.models.transformer import Attention, Layer, Microbatch, Transformer
from heddle.spec.tune import ADAPTER, TARGETS, Lora, Tune, adapter_shapes

A, B = "lora_a", "lora_b"


class AdapterExchange:
    """How what A makes gets to B: on one device it is there."""

    def __call__(self, x: Tensor) -> Tensor:
        """To B's side, and its gradient back to A's."""
        return x

    def keys(self, keys: Tensor) -> Tensor:
        """Those of the tokens that A sees, given those of the layer's activations."""
        return keys


class LoraPair(nn.Module):
    """One adapter: A [rank, inputs] and B [outputs, rank]."""

    def __init__(self, rank: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.lora_a = nn.Parameter(torch.empty(rank, inputs))
        self.lora_b = nn.Parameter(torch.empty(outputs, rank))


class Adapters(nn.Module):
    """The adapters beside one linear layer, by target."""

    site: Tensor

    def __init__(self, sizes: Mapping[str, tuple[int, int]], lora: Lora, name: str, rows: QkvRows | None) -> None:
        """`rows` says where the outputs of queries, keys and values go; None where there is one adapter for all."""
        super().__init__()
        self.pairs = nn.ModuleDict({target: LoraPair(lora.rank, *size) for target, size in sizes.items()})
        self.scale, self.p, self.rows = lora.scale, lora.dropout, rows
        self.number = random.site(f"{name}.{ADAPTER}")
        self.exchange = AdapterExchange()
        self.first = 0  # which of the layer's inputs is the first one here
        self.keys: Tensor | None = None  # of the tokens, for dropout
        self.reset()

    @property
    def by_target(self) -> dict[str, LoraPair]:
        """The adapters of all targets."""
        return cast(dict[str, LoraPair], dict(self.pairs.items()))

    def reset(self, device: torch.device | None = None) -> None:
        """Put the site on the device that computes."""
        self.register_buffer("site", torch.tensor(self.number, dtype=torch.int32, device=device), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.p and self.keys is not None:
            x = random.dropout(x, self.p, self.site + self.first, self.exchange.keys(self.keys))
        pairs = self.by_target
        downs: list[Tensor] = [pair.lora_a for pair in pairs.values()]
        made = self.exchange(F.linear(x, downs[0] if len(downs) == 1 else torch.cat(downs)))
        parts = made.chunk(len(pairs), dim=1)
        ups = {target: F.linear(part, pair.lora_b) for (target, pair), part in zip(pairs.items(), parts, strict=True)}
        return (next(iter(ups.values())) if self.rows is None else self.rows.joined(ups)) * self.scale


class QkvRows:
    """The order of the rows that make queries, keys and values: group by group, a key and a value after its queries."""

    def __init__(self, group: int, head_size: int) -> None:
        self.sizes = {"q": group * head_size, "k": head_size, "v": head_size}

    def joined(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Outputs [tokens, …] by target as those of the one product; zeros for those that have no adapter."""
        some, values = next(iter(parts.items()))
        groups, tokens = values.shape[1] // self.sizes[some], len(values)
        made = [
            parts[target].view(tokens, groups, size) if target in parts else values.new_zeros(tokens, groups, size)
            for target, size in self.sizes.items()
        ]
        return torch.cat(made, dim=2).flatten(1)


class AdaptedLinear(nn.Linear):
    """A linear layer with adapters beside it. Its own weight keeps its name."""

    def __init__(self, linear: nn.Linear, adapters: Adapters) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias, self.adapters = linear.weight, linear.bias, adapters

    def forward(self, x: Tensor) -> Tensor:
        return nf4.linear(x, self.weight, self.bias) + self.adapters(x)


class QuantizedLinear(nn.Linear):
    """A frozen linear layer in four bits, without adapters."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return nf4.linear(x, self.weight, self.bias)


def adapt(model: Transformer, tune: Tune) -> None:
    """Put adapters beside the linear layers of a model, or of a chunk of one, and freeze everything else."""
    lora = tune.adapters
    for index, layer in model.layers.items():
        assert isinstance(layer, Layer)
        for place, sizes in adapter_shapes(model.spec, lora, int(index)).items():
            owner, name = layer.get_submodule(place.split(".")[0]), place.split(".")[1]
            linear = getattr(owner, name)
            rows = QkvRows(owner.group, owner.head_size) if isinstance(owner, Attention) and name == "qkv" else None
            setattr(owner, name, AdaptedLinear(linear, Adapters(sizes, lora, f"layers.{index}.{place}", rows)))
        if tune.base == "nf4":
            quantize_linears(layer)
        if lora.dropout:
            note_keys(layer)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(learns(name, tune))


def quantize_linears(layer: Layer) -> None:
    """Keep the matrices of a layer in four bits, those without adapters, too."""
    for place in dict.fromkeys(TARGETS.values()):
        owner, name = layer.get_submodule(place.split(".")[0]), place.split(".")[1]
        linear = getattr(owner, name, None)
        if isinstance(linear, nn.Linear):
            linear.weight = nf4.quantized_like(linear.weight)
            setattr(owner, name, linear if isinstance(linear, AdaptedLinear) else QuantizedLinear(linear))


def learns(name: str, tune: Tune | None) -> bool:
    """Whether a parameter of the whole model does."""
    if tune is None or f".{ADAPTER}." in name:
        return True
    first = name.split(".")[0]
    return first in tune.also or ("norm" in tune.also and "norm" in name.split(".")[-2])


def note_keys(layer: Layer) -> None:
    """Let a layer's adapters know the tokens of each microbatch, also where the layer is computed once more."""
    forward, found = layer.forward, [module for module in layer.modules() if isinstance(module, Adapters)]

    def noted(x: Tensor, batch: Microbatch) -> Tensor:
        for each in found:
            each.keys = batch.keys
        return forward(x, batch)

    layer.forward = noted  # type: ignore[method-assign]


def delta(pairs: Mapping[str, tuple[Tensor, Tensor]], scale: float, rows: QkvRows | None) -> Tensor:
    """What adapters add to a weight [outputs, inputs], given (A, B) of each target."""
    parts = {target: (b @ a).T for target, (a, b) in pairs.items()}  # as outputs for every input
    whole = next(iter(parts.values())) if rows is None else rows.joined(parts)
    return whole.T * scale
