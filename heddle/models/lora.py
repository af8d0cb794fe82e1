"""Low-rank adapters beside linear layers (arXiv 2106.09685), for one device.

Queries, keys and values have an adapter each, although one product makes all three: their outputs are put together in
the order of its rows. What travels between A and B is `rank` numbers wide; who spreads a layer over devices says how
(`exchange`), and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

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
        self.on = True  # whether they add anything
        self.reset()

    @property
    def by_target(self) -> dict[str, LoraPair]:
        """The adapters of all targets."""
        return cast(dict[str, LoraPair], dict(self.pairs.items()))

    def reset(self, device: torch.device | None = None) -> None:
        """Put the site on the device that computes."""
        self.register_buffer("site", torch.tensor(self.number, dtype=torch.int32, device=device), persistent=False)

    @property
    def down(self) -> Tensor:
        """A of all targets, one below the other."""
        every: list[Tensor] = [pair.lora_a for pair in self.by_target.values()]
        return every[0] if len(every) == 1 else torch.cat(every)

    @property
    def up(self) -> Tensor:
        """B of all targets as one matrix, from what all of A makes to the outputs of the layer."""
        every = {target: pair.lora_b for target, pair in self.by_target.items()}
        return next(iter(every.values())) if self.rows is None else self.rows.side_by_side(every)

    @property
    def drops(self) -> bool:
        """Whether what they see is dropped in part."""
        return bool(self.p) and self.keys is not None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """What the layer made of x, with what its adapters make of it; scaled where it is narrow."""
        if not self.on:
            return y
        if self.p and self.keys is not None:
            x = random.dropout(x, self.p, self.site + self.first, self.exchange.keys(self.keys))
        made = self.exchange(F.linear(x, self.down)) * self.scale
        return torch.addmm(y, made, self.up.t())


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

    def apart(self, rows: Tensor) -> dict[str, Tensor]:
        """The rows of a weight [rows, …] by target."""
        parts = rows.unflatten(0, (-1, sum(self.sizes.values()))).split(list(self.sizes.values()), dim=1)
        return {target: part.flatten(0, 1) for target, part in zip(self.sizes, parts, strict=True)}

    def together(self, parts: Mapping[str, Tensor]) -> Tensor:
        """The other way."""
        grouped = [parts[target].unflatten(0, (-1, size)) for target, size in self.sizes.items()]
        return torch.cat(grouped, dim=1).flatten(0, 1)

    def side_by_side(self, ups: Mapping[str, Tensor]) -> Tensor:
        """B [outputs, rank] by target as one matrix: in each row zeros beside the numbers of its own target."""
        some, values = next(iter(ups.items()))
        groups, rank = len(values) // self.sizes[some], values.shape[1]
        places = {target: number for number, target in enumerate(ups)}
        rows = [
            F.pad(ups[target].view(groups, size, rank), (places[target] * rank, (len(ups) - 1 - places[target]) * rank))
            if target in ups
            else values.new_zeros(groups, size, len(ups) * rank)
            for target, size in self.sizes.items()
        ]
        return torch.cat(rows, dim=1).flatten(0, 1)


class _AdaptedProduct(torch.autograd.Function):
    """A frozen product and its adapters as one: wide tensors are added to where they are, and never made twice."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, scale: float
    ) -> Tensor:
        ctx.layout, ctx.scale = nf4.rows_of(weight), scale
        y = F.linear(x, nf4.numbers_of(weight, ctx.layout, x.dtype), bias)
        made = torch.mm(x, down.t()).mul_(scale)
        ctx.save_for_backward(x, weight, down, up, made)
        return y.addmm_(made, up.t())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        x, weight, down, up, made = ctx.saved_tensors
        back = torch.mm(gradient, up).mul_(ctx.scale)
        grad_up, grad_down, grad_x = torch.mm(gradient.t(), made), torch.mm(back.t(), x), None
        if ctx.needs_input_grad[0]:
            grad_x = torch.mm(gradient, nf4.numbers_of(weight, ctx.layout, gradient.dtype)).addmm_(back, down)
        return grad_x, None, None, grad_down, grad_up, None


class AdaptedLinear(nn.Linear):
    """A linear layer with adapters beside it. Its own weight keeps its name."""

    def __init__(self, linear: nn.Linear, adapters: Adapters) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias, self.adapters = linear.weight, linear.bias, adapters

    def forward(self, x: Tensor) -> Tensor:
        own = self.adapters
        if own.drops or not own.on:
            return own(x, nf4.linear(x, self.weight, self.bias))
        made: Tensor = _AdaptedProduct.apply(x, self.weight, self.bias, own.down, own.up, own.scale)
        return made


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


@contextmanager
def adapters_off(modules: Iterable[nn.Module]) -> Iterator[None]:
    """The models as they are without their adapters."""
    found = [each for module in modules for each in module.modules() if isinstance(each, Adapters)]
    for adapters in found:
        adapters.on = False
    try:
        yield
    finally:
        for adapters in found:
            adapters.on = True
