"""What a transformer is: the numbers that fix its shape, and from them its exact parameter count."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from math import gcd
from typing import Annotated, Any, Literal

from heddle.errors import HeddleError, divisors, listing, nearest_number
from heddle.spec.ranges import Count, CountOrZero, Positive, Range, ShareBelowOne, check_ranges

Norm = Literal["layernorm", "rmsnorm"]
Activation = Literal["gelu", "swiglu"]
Positions = Literal["learned", "rotary"]
Bias = Literal["all", "qkv", "none"]

MOST_LAYERS = 100_000  # far more than any model has
PER_LAYER = ("ffn", "window")  # fields that may be one number, or one for each layer


@dataclass(frozen=True)
class RopeScaling:
    """How Llama 3.1 stretches rotary positions beyond the length it was first trained on."""

    factor: Positive
    low_frequency_factor: Positive
    high_frequency_factor: Positive
    original_sequence: Count

    def __post_init__(self) -> None:
        check_ranges(self, "model.rope_scaling")
        if self.low_frequency_factor >= self.high_frequency_factor:
            raise HeddleError(
                f"low_frequency_factor = {self.low_frequency_factor} is not below high_frequency_factor = "
                f"{self.high_frequency_factor}.",
                "Frequencies between the two are blended.",
                "Llama 3.1 has 1.0 and 4.0.",
            )


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The shape of a decoder-only transformer, GPT-2 style or Llama style.

    Fields left out follow from the others: `kv_heads` from `heads`, `head_size` from `hidden / heads`,
    `ffn` from `hidden` (4 × for gelu; for swiglu 8/3 ×, rounded up to a multiple of 64, which keeps the
    parameter count of the 4 × block).

    Layers may differ: `ffn` and `window` are one number, or one for each layer. Whoever needs to know of a layer asks
    `layer(index)`, whoever adds up over layers `shapes` and `shape_of`; nobody multiplies by `layers`.
    """

    name: str = "custom"
    layers: Annotated[int, Range("[1, 1e5]")]
    hidden: Count
    heads: Count
    vocab: Count
    sequence: Count  # the longest sequence the model takes
    kv_heads: CountOrZero = 0
    head_size: CountOrZero = 0
    ffn: CountOrZero | tuple[CountOrZero, ...] = 0
    norm: Norm = "layernorm"
    norm_epsilon: ShareBelowOne = 1e-5
    activation: Activation = "gelu"  # the tanh form, as in GPT-2 and Megatron
    positions: Positions = "learned"
    rope_theta: Annotated[float, Range("(0, 1e12]")] = 10_000.0
    rope_scaling: RopeScaling | None = None
    # sliding-window attention (Mistral 7B v0.1): how many tokens one may look at, itself included; of layers that
    # differ, 0 is one that looks at all (Qwen2, Gemma 3)
    window: CountOrZero | tuple[CountOrZero, ...] | None = None
    bias: Bias = "all"  # "qkv" is Qwen2's choice
    qk_norm: bool = False  # Qwen3 normalises every query and key head
    tied: bool = True  # the output layer shares the embedding's weight
    dropout: ShareBelowOne = 0.0  # after the embedding and on both residual branches

    def __post_init__(self) -> None:
        check_ranges(self, "model")
        self._check_layers()
        if not self.kv_heads:
            object.__setattr__(self, "kv_heads", self.heads)
        if not self.head_size:
            if self.hidden % self.heads:
                options = divisors(self.hidden)
                raise HeddleError(
                    f"heads = {self.heads} does not divide hidden = {self.hidden}.",
                    "Each head takes an equal share of the hidden size, unless head_size is given.",
                    f"Nearest number of heads that works: {nearest_number(self.heads, options)}.",
                )
            object.__setattr__(self, "head_size", self.hidden // self.heads)
        if self.heads % self.kv_heads:
            raise HeddleError(
                f"kv_heads = {self.kv_heads} does not divide heads = {self.heads}.",
                "Each key/value head serves an equal group of query heads.",
                f"{listing(divisors(self.heads))} can.",
            )
        if self.positions == "rotary" and self.head_size % 2:
            raise HeddleError(
                f"head_size = {self.head_size} is odd.",
                "Rotary positions rotate pairs of numbers.",
                "Use an even head_size.",
            )

    def _check_layers(self) -> None:
        """A list has an entry for each layer, 0 where it is as usual; one of equal entries is that entry."""
        usual = 64 * -(-8 * self.hidden // (3 * 64)) if self.activation == "swiglu" else 4 * self.hidden
        several = isinstance(self.ffn, tuple)
        widths = tuple(width or usual for width in (self.ffn if isinstance(self.ffn, tuple) else (self.ffn,)))
        object.__setattr__(self, "ffn", widths if several else widths[0])
        for name in PER_LAYER:
            value = getattr(self, name)
            if not isinstance(value, tuple):
                continue
            if len(value) != self.layers:
                raise HeddleError(
                    f"model.{name} lists {len(value)} layers, but the model has {self.layers}.",
                    "It is one number for all layers, or one per layer.",
                    f'For example {name} = ["{value[0] if value else 1024} x {self.layers}"].',
                )
            if len(set(value)) == 1:
                object.__setattr__(self, name, value[0])
        if self.window == 0:
            object.__setattr__(self, "window", None)

    @cached_property
    def shape_of(self) -> tuple[int, ...]:
        """For each layer the place of its own among `shapes`."""
        return self._shapes[1]

    @cached_property
    def shapes(self) -> tuple[LayerSpec, ...]:
        """The layers that differ, in the order in which they first come."""
        return self._shapes[0]

    @cached_property
    def _shapes(self) -> tuple[tuple[LayerSpec, ...], tuple[int, ...]]:
        lists = [value for name in PER_LAYER if isinstance(value := getattr(self, name), tuple)]
        places: dict[tuple[int, ...], int] = {}
        of_layer = tuple(places.setdefault(key, len(places)) for key in zip(*lists, strict=True)) or (0,) * self.layers
        firsts = [of_layer.index(place) for place in range(max(1, len(places)))]
        return tuple(LayerSpec.of(self, index) for index in firsts), of_layer

    def layer(self, index: int) -> LayerSpec:
        """What one layer is."""
        return self.shapes[self.shape_of[index]]

    @property
    def tensor_degrees(self) -> list[int]:
        """The degrees that split heads, key/value heads and every layer's MLP alike: kv_heads divides heads."""
        return divisors(gcd(self.kv_heads, *(shape.ffn for shape in self.shapes)))

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @property
    def norm_parameters(self) -> int:
        """Parameters of one normalisation over the hidden size."""
        return self.hidden * (2 if self.norm == "layernorm" and self.bias == "all" else 1)

    @property
    def embedding_parameters(self) -> int:
        """Token embedding and, where positions are learned, position embedding."""
        return self.hidden * (self.vocab + (self.sequence if self.positions == "learned" else 0))

    @property
    def head_parameters(self) -> int:
        """Final norm and output layer; a tied output layer counts with the embedding."""
        return self.norm_parameters + (0 if self.tied else self.hidden * self.vocab)

    @property
    def parameters(self) -> int:
        """All parameters, exact: the count that the published models state."""
        layers = sum(self.shapes[place].layer_parameters for place in self.shape_of)
        return self.embedding_parameters + layers + self.head_parameters

    def flops(self, samples: int, sequence: int | None = None, recompute: bool = False) -> float:
        """Model FLOPs of one training step over `samples` sequences.

        The matrix products of Eq. 3 of the PTD-P paper and Appendix A of arXiv 2205.05198, generalised to
        grouped queries and gated MLPs: forward once, backward twice, `recompute` one more forward of the
        layers.
        Attention is counted over the full square, as both papers do, although causal kernels skip half.
        """
        s = sequence or self.sequence
        layers = sum((4 if recompute else 3) * self.shapes[place].forward_flops(s) for place in self.shape_of)
        logits = 2 * s * self.hidden * self.vocab
        return float(samples) * (layers + 3 * logits)


@dataclass(frozen=True, kw_only=True)
class LayerSpec(ModelSpec):
    """One layer of a model, as a model all of whose layers are like it."""

    ffn: CountOrZero = 0
    window: CountOrZero | None = None

    @staticmethod
    def of(model: ModelSpec, index: int) -> LayerSpec:
        """The layer of that number."""
        values: dict[str, Any] = {field.name: getattr(model, field.name) for field in fields(model)}
        return LayerSpec(
            **values | {name: values[name][index] for name in PER_LAYER if isinstance(values[name], tuple)}
        )

    @property
    def layer_parameters(self) -> int:
        """Parameters of one transformer layer, exact."""
        h, f, size = self.hidden, self.ffn, self.head_size
        qkv_rows = (self.heads + 2 * self.kv_heads) * size
        count = qkv_rows * h + self.heads * size * h  # attention in and out
        count += (3 if self.activation == "swiglu" else 2) * h * f
        count += 2 * self.norm_parameters
        if self.bias in ("all", "qkv"):
            count += qkv_rows
        if self.bias == "all":
            count += h + h + (2 * f if self.activation == "swiglu" else f)
        if self.qk_norm:
            count += 2 * size
        return count

    def core_flops(self, sequence: int) -> int:
        """Of the attention core, forward, of one sample."""
        return 4 * sequence * min(sequence, self.window or sequence) * self.heads * self.head_size

    def forward_flops(self, sequence: int) -> int:
        """Of one sample, forward: the matrix products and the attention core."""
        dense = self.hidden * (2 * self.heads * self.head_size + 2 * self.kv_heads * self.head_size)
        dense += (3 if self.activation == "swiglu" else 2) * self.hidden * self.ffn
        return 2 * sequence * dense + self.core_flops(sequence)
