"""What a transformer is: the numbers that fix its shape, and from them its exact parameter count."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from math import gcd
from typing import Annotated, Any, Literal

from heddle.errors import HeddleError, divisors, listing, nearest_number
from heddle.spec.experts import Router, RouterBias, check_experts, expand_dense_layers
from heddle.spec.latent import attention_parameters, check_latent, value_size
from heddle.spec.ranges import Amount, Count, CountOrZero, Positive, Range, ShareBelowOne, check_ranges
from heddle.spec.rope import RopeScaling as RopeScaling
from heddle.spec.rope import Turns
from heddle.spec.tables import WHERE_SAID

Norm = Literal["layernorm", "rmsnorm"]
Activation = Literal[
    "gelu", "gelu-exact", "relu", "relu2", "silu", "swiglu", "geglu", "geglu-exact", "reglu", "clamped-swiglu"
]
Positions = Literal["learned", "rotary"]
Bias = Literal["all", "attention", "qkv", "mlp", "qkv+mlp", "out+mlp", "none"]
NormPlace = Literal["before", "after", "both"]
Branches = Literal["serial", "parallel", "parallel-norms"]
HeadNorm = Literal["head", "each", "all"]

# which linear layers of a layer have a bias
BIASED: dict[str, tuple[str, ...]] = {
    "all": ("qkv", "out", "mlp"),
    "attention": ("qkv", "out"),
    "qkv": ("qkv",),
    "mlp": ("mlp",),
    "qkv+mlp": ("qkv", "mlp"),
    "out+mlp": ("out", "mlp"),
    "none": (),
}
IGNORE = -100  # a target that nothing is learned from, as PyTorch and Hugging Face write it
MOST_LAYERS = 100_000  # far more than any model has
# of a layer: how unevenly they are used is drawn for each
Experts = Annotated[int, Range("[0, 16384]", "No layer is known to have more.")]
PER_LAYER = ("ffn", "window", "rope_theta", "experts")  # fields that may be one number, or one for each layer
Theta = Annotated[float, Range("[0, 1e12]")]


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The shape of a decoder-only transformer: sizes, and the few choices in which the field's decoders differ.

    Fields left out follow from the others: `kv_heads` from `heads`, `head_size` from `hidden / heads`,
    `ffn` from `hidden` (4 ×; for gated MLPs 8/3 ×, rounded up to a multiple of 64, which keeps the
    parameter count of the 4 × block).

    Layers may differ: `ffn`, `window` and `rope_theta` are one number, or one for each layer. Whoever needs to know of
    a layer asks `layer(index)`, whoever adds up over layers `shapes` and `shape_of`; nobody multiplies by `layers`.
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
    activation: Activation = "gelu"  # the tanh form, as in GPT-2 and Megatron; the last four multiply by a gate
    positions: Positions = "learned"
    # base of the rotary positions; of layers that differ, 0 is one without positions (SmolLM3)
    rope_theta: Theta | tuple[Theta, ...] = 10_000.0
    rope_scaling: RopeScaling | None = None
    # sliding-window attention (Mistral 7B v0.1): how many tokens one may look at, itself included; of layers that
    # differ, 0 is one that looks at all (Qwen2, Gemma 3)
    window: CountOrZero | tuple[CountOrZero, ...] | None = None
    bias: Bias = "all"  # "qkv" is Qwen2's choice
    qk_norm: bool = False  # Qwen3 normalizes every query and key head
    tied: bool = True  # the output layer shares the embedding's weight
    dropout: ShareBelowOne = 0.0  # after the embedding and on both residual branches
    # What follows is in a file only where it is not as in most models.
    norm_place: NormPlace = field(default="before", metadata=WHERE_SAID)  # of a branch: OLMo 2 after, Gemma 2 both
    norm_weight: Literal["scale", "offset", "none"] = field(default="scale", metadata=WHERE_SAID)  # Gemma: 1 + weight
    norm_bias: bool | None = field(default=None, metadata=WHERE_SAID)  # None: where norm is layernorm and bias is "all"
    # serial: the MLP sees what attention added; parallel: both see the same, normalized once (GPT-J) or twice (NeoX)
    branches: Branches = field(default="serial", metadata=WHERE_SAID)
    # what is normalized together, and by which weights: every head by the same (Qwen3), every head by its own (Cohere),
    # all heads of a token at once (OLMo 2)
    qk_norm_over: HeadNorm = field(default="head", metadata=WHERE_SAID)
    qk_norm_late: bool = field(default=False, metadata=WHERE_SAID)  # after positions rather than before (Hunyuan)
    rotary_size: CountOrZero = field(default=0, metadata=WHERE_SAID)  # numbers of a head that turn; 0: all
    rotary_pairs: Literal["halves", "neighbors"] = field(
        default="halves", metadata=WHERE_SAID
    )  # i with i+size/2 or i+1
    attention_scale: Amount = field(default=0.0, metadata=WHERE_SAID)  # of scores; 0: 1/√head_size
    attention_cap: Amount = field(default=0.0, metadata=WHERE_SAID)  # scores become cap·tanh(score/cap); 0: no cap
    sinks: bool = field(default=False, metadata=WHERE_SAID)  # each head may also look at nothing, at a learned score
    embedding_scale: Positive = field(default=1.0, metadata=WHERE_SAID)  # of token embeddings (Gemma: √hidden)
    residual_scale: Positive = field(default=1.0, metadata=WHERE_SAID)  # of what each branch adds (Granite)
    logit_scale: Positive = field(default=1.0, metadata=WHERE_SAID)
    logit_cap: Amount = field(default=0.0, metadata=WHERE_SAID)  # as attention_cap
    head_bias: bool = field(default=False, metadata=WHERE_SAID)  # of the output layer (Phi, GPT-J)
    # of clamped-swiglu: the gate is at most, the other half at most and at least so much, and what the gate is
    # multiplied by inside its sigmoid (GPT-OSS)
    gate_limit: Positive = field(default=7.0, metadata=WHERE_SAID)
    gate_alpha: Positive = field(default=1.702, metadata=WHERE_SAID)
    # Latent attention (DeepSeek, arXiv 2405.04434 §2.1): a token's keys and values, and its queries, are made of small
    # vectors. Of a head rotary_size numbers turn, and all heads of a token share those of its key.
    kv_latent: CountOrZero = field(default=0, metadata=WHERE_SAID)  # size of the vector; 0: no latent attention
    q_latent: CountOrZero = field(default=0, metadata=WHERE_SAID)  # 0: queries are made of the token itself
    value_size: CountOrZero = field(default=0, metadata=WHERE_SAID)  # of a head's values; 0: as head_size
    # Layers with experts in place of an MLP; a file has what follows only where it differs from a dense model.
    experts: Experts | tuple[Experts, ...] = field(default=0, metadata=WHERE_SAID)  # of layers that differ, 0
    top_k: CountOrZero = field(default=0, metadata=WHERE_SAID)  # experts that each token goes to
    expert_ffn: CountOrZero = field(default=0, metadata=WHERE_SAID)  # of each; 0: as ffn
    shared_experts: CountOrZero = field(default=0, metadata=WHERE_SAID)  # that every token goes to
    shared_ffn: CountOrZero = field(default=0, metadata=WHERE_SAID)  # of all these; 0: shared_experts × expert_ffn
    shared_gate: bool = field(default=False, metadata=WHERE_SAID)  # a token says how much it takes of them (Qwen2)
    dense_layers: str = field(default="", metadata=WHERE_SAID)  # that have an MLP: "0-2, 7"
    router: Router = field(default="softmax", metadata=WHERE_SAID)  # of all experts' scores; or each by its sigmoid
    router_normalized: bool = field(default=True, metadata=WHERE_SAID)  # the chosen experts' weights sum to one
    router_scale: Positive = field(default=1.0, metadata=WHERE_SAID)  # what these weights are then multiplied by
    # score: added to an expert's score (GPT-OSS); choice: decides who is chosen, and changes no weight (DeepSeek-V3)
    router_bias: RouterBias = field(default="none", metadata=WHERE_SAID)
    # experts in groups of which a token uses a few: those with the best expert, or of sigmoids the two best together
    router_groups: CountOrZero = field(default=0, metadata=WHERE_SAID)
    router_top_groups: CountOrZero = field(default=0, metadata=WHERE_SAID)
    # what a bias of choice moves by in each step, up where an expert had less than the mean (arXiv 2408.15664)
    balance_rate: Amount = field(default=0.0, metadata=WHERE_SAID)
    balance_loss: Amount = field(default=0.0, metadata=WHERE_SAID)  # times the loss of uneven use, sample by sample
    z_loss: Amount = field(default=0.0, metadata=WHERE_SAID)  # times the square of the router's log-sum-exp
    # whose names and configuration files have, where several families would do; it changes no arithmetic
    family: str = field(default="", compare=False, metadata=WHERE_SAID)

    def __post_init__(self) -> None:
        check_ranges(self, "model")
        expand_dense_layers(self)
        self._check_layers()
        self._check_experts()
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
        self._check_choices()

    def _check_choices(self) -> None:
        """Refuse choices that do not go together; what is as usual is left unsaid, so that equal models are equal."""
        check_latent(self)
        if self.attention_scale == self.head_size**-0.5:
            object.__setattr__(self, "attention_scale", 0.0)
        if self.rotary_size == self.head_size:
            object.__setattr__(self, "rotary_size", 0)
        if self.norm_bias is not None and self.norm_bias == (self.norm == "layernorm" and self.bias == "all"):
            object.__setattr__(self, "norm_bias", None)
        if self.positions == "rotary" and self.rotated % 2:
            name = "rotary_size" if self.rotary_size else "head_size"
            raise HeddleError(
                f"{name} = {self.rotated} is odd.", "Rotary positions rotate pairs of numbers.", f"Use an even {name}."
            )
        if self.rotary_size > self.head_size:
            raise HeddleError(
                f"rotary_size = {self.rotary_size} is above head_size = {self.head_size}.",
                "It says how many numbers of each head are rotated.",
                f"Use {self.head_size} or less.",
            )
        if self.rope_scaling is not None and self.positions == "rotary":
            self.rope_scaling.check(self.rotated)
        if self.branches != "serial" and self.norm_place != "before":
            raise HeddleError(
                f'branches = "{self.branches}" with norm_place = "{self.norm_place}" is not known.',
                "Parallel branches start from one normalized input.",
                'Use norm_place = "before".',
            )

    def _check_experts(self) -> None:
        check_experts(self)

    def _check_layers(self) -> None:
        """A list has an entry for each layer, 0 where it is as usual; one of equal entries is that entry."""
        usual = 64 * -(-8 * self.hidden // (3 * 64)) if self.gated else 4 * self.hidden
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
        places: dict[tuple[float, ...], int] = {}
        of_layer = tuple(places.setdefault(key, len(places)) for key in zip(*lists, strict=True)) or (0,) * self.layers
        firsts = [of_layer.index(place) for place in range(max(1, len(places)))]
        return tuple(LayerSpec.of(self, index) for index in firsts), of_layer

    def layer(self, index: int) -> LayerSpec:
        """What one layer is."""
        return self.shapes[self.shape_of[index]]

    @property
    def own(self) -> bool:
        """Whether the model is code of the user's; see heddle.spec.own."""
        return False

    @property
    def most_stages(self) -> int:
        """Into how many a pipeline can cut it."""
        return self.layers

    def unit_of(self, name: str) -> str:
        """The layer's number, or the first word of a parameter's name: "embed", "norm" or "head"."""
        first, _, rest = name.partition(".")
        return rest.partition(".")[0] if first == "layers" else first

    @property
    def tensor_degrees(self) -> list[int]:
        """The degrees that split heads, key/value heads and every layer's MLP alike: kv_heads divides heads."""
        return divisors(gcd(self.kv_heads, *(width for shape in self.shapes for width in shape.widths)))

    @property
    def expert_counts(self) -> frozenset[int]:
        """How many experts its layers have, 0 for an MLP."""
        return frozenset(shape.experts for shape in self.shapes)

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @property
    def gated(self) -> bool:
        """Whether the MLP's first half is multiplied by a second product."""
        return self.activation.endswith(("glu", "glu-exact"))

    @property
    def rotated(self) -> int:
        """Numbers of a head that turn by its position."""
        return self.rotary_size or self.head_size

    @property
    def score_scale(self) -> float:
        """What products of queries and keys are multiplied by."""
        scale = self.attention_scale or self.head_size**-0.5
        return scale if self.rope_scaling is None else scale * self.rope_scaling.sharpness**2

    @property
    def valued(self) -> int:
        """Numbers of a head's values."""
        return value_size(self)

    @property
    def biased(self) -> tuple[str, ...]:
        """Which linear layers of a layer have a bias: "qkv", "out", "mlp"."""
        return BIASED[self.bias]

    @property
    def norm_biased(self) -> bool:
        """Whether norms have a bias."""
        return self.norm == "layernorm" and (self.bias == "all" if self.norm_bias is None else self.norm_bias)

    @property
    def norm_parameters(self) -> int:
        """Parameters of one normalization over the hidden size."""
        return self.hidden * ((self.norm_weight != "none") + self.norm_biased)

    @property
    def norms(self) -> int:
        """Normalizations over the hidden size in one layer."""
        return {"before": 2, "after": 2, "both": 4}[self.norm_place] - (self.branches == "parallel")

    @property
    def qk_norm_biased(self) -> bool:
        """Whether the norms of queries and keys have a bias: those of every head by itself have none."""
        return self.norm_biased and self.qk_norm_over == "head"

    @property
    def head_norm_parameters(self) -> int:
        """Parameters of both norms of queries and keys."""
        if not self.qk_norm or self.norm_weight == "none":
            return 0
        heads = 2 if self.qk_norm_over == "head" else self.heads + self.kv_heads
        return heads * self.head_size * (1 + self.qk_norm_biased)

    @property
    def embedding_parameters(self) -> int:
        """Token embedding and, where positions are learned, position embedding."""
        return self.hidden * (self.vocab + (self.sequence if self.positions == "learned" else 0))

    @property
    def head_parameters(self) -> int:
        """Final norm and output layer; a tied output layer counts with the embedding."""
        own = 0 if self.tied else self.hidden * self.vocab
        return self.norm_parameters + own + self.head_bias * self.vocab

    @property
    def parameters(self) -> int:
        """All parameters, exact: the count that the published models state."""
        layers = sum(self.shapes[place].layer_parameters for place in self.shape_of)
        return self.embedding_parameters + layers + self.head_parameters

    @property
    def active_parameters(self) -> int:
        """Those that one token is computed with: all, but for the experts that it does not go to."""
        idle = sum(self.shapes[place].idle_parameters for place in self.shape_of)
        return self.parameters - idle

    def flops(self, samples: int, sequence: int | None = None, recompute: bool = False, causal: bool = False) -> float:
        """Model FLOPs of one training step over `samples` sequences.

        The matrix products of Eq. 3 of the PTD-P paper and Appendix A of arXiv 2205.05198, generalized to
        grouped queries and gated MLPs: forward once, backward twice, `recompute` one more forward of the
        layers.
        Attention is counted over the full square, as both papers and PaLM do (arXiv 2204.02311, Appendix B), although
        causal kernels skip half; `causal` counts only the pairs of tokens that see each other.
        """
        s = sequence or self.sequence
        layers = sum((4 if recompute else 3) * self.shapes[place].forward_flops(s, causal) for place in self.shape_of)
        logits = 2 * s * self.hidden * self.vocab
        return float(samples) * (layers + 3 * logits)


@dataclass(frozen=True, kw_only=True)
class LayerSpec(ModelSpec):
    """One layer of a model, as a model all of whose layers are like it."""

    ffn: CountOrZero = 0
    window: CountOrZero | None = None
    rope_theta: Theta = 10_000.0
    experts: CountOrZero = 0

    def _check_experts(self) -> None:
        """The model was checked, and one of its layers may have no experts."""

    @staticmethod
    def of(model: ModelSpec, index: int) -> LayerSpec:
        """The layer of that number."""
        values: dict[str, Any] = {each.name: getattr(model, each.name) for each in fields(model)}
        return LayerSpec(
            **values | {name: values[name][index] for name in PER_LAYER if isinstance(values[name], tuple)}
        )

    @property
    def turns(self) -> Turns | None:
        """Which rotary positions the layer has; None: it has none."""
        if self.positions != "rotary" or self.rope_theta == 0:
            return None
        scaling = self.rope_scaling
        return self.rope_theta, scaling is not None and (scaling.layers == "all" or self.window is None)

    @property
    def layer_parameters(self) -> int:
        """Parameters of one transformer layer, exact."""
        h, f = self.hidden, self.ffn
        wide = f * (1 + self.gated)
        attention = attention_parameters(self)
        count = attention.all
        biases = {"qkv": attention.first_rows, "out": h, "mlp": wide + h}
        if self.experts:
            count += 3 * h * self.shared_ffn + self.expert_parameters + self.router_parameters
            biases["mlp"] = 0  # with the experts
        else:
            count += h * (wide + f)
        count += self.norms * self.norm_parameters + self.head_norm_parameters + self.sinks * self.heads
        return count + sum(biases[part] for part in self.biased)

    @property
    def router_parameters(self) -> int:
        """Of the router and of the gate of shared experts."""
        if not self.experts:
            return 0
        return self.hidden * (self.experts + self.shared_gate) + self.experts * (self.router_bias != "none")

    @property
    def expert_biases(self) -> int:
        """Numbers of one expert's biases."""
        return (2 * self.expert_ffn + self.hidden) * ("mlp" in self.biased)

    @property
    def captured_bytes(self) -> float:
        """That a token leaves in the layer in fp32, where the layer is code that was looked at; 0: formulas say it."""
        return 0.0

    @property
    def replicated_parameters(self) -> int:
        """Those that every tensor rank holds: norms, biases added after a sum, routers and gates of experts, latents.

        Without experts: biases of their last product are with them.
        """
        summed = {"out"} if self.experts else {"out", "mlp"}
        biases = self.hidden * len(summed & {*self.biased})
        heads = self.head_norm_parameters if self.qk_norm_over == "head" else 0
        attention = attention_parameters(self)
        latent = attention.replicated + attention.first_rows * (self.kv_latent > 0 and "qkv" in self.biased)
        return self.norms * self.norm_parameters + biases + heads + self.router_parameters + latent

    @property
    def widths(self) -> tuple[int, ...]:
        """Of its MLPs: those of its experts and of the shared ones, or the only one's."""
        return tuple(filter(None, (self.expert_ffn, self.shared_ffn))) if self.experts else (self.ffn,)

    def split_widths(self, whole_experts: bool) -> tuple[int, ...]:
        """Of these, those that tensor ranks split: not those of experts where each rank has whole ones."""
        return tuple(filter(None, (self.shared_ffn,))) if self.experts and whole_experts else self.widths

    @property
    def active_ffn(self) -> int:
        """The width that a token is computed with."""
        return self.top_k * self.expert_ffn + self.shared_ffn if self.experts else self.ffn

    @property
    def expert_parameters(self) -> int:
        """Of all experts that tokens choose from."""
        return (3 * self.hidden * self.expert_ffn + self.expert_biases) * self.experts

    @property
    def idle_parameters(self) -> int:
        """Of the experts that a token does not go to."""
        each = 3 * self.hidden * self.expert_ffn + self.expert_biases
        return each * (self.experts - self.top_k) if self.experts else 0

    def core_flops(self, sequence: int, causal: bool = False) -> int:
        """Of the attention core, forward, of one sample: over the full square, or what its causal mask leaves."""
        reach = min(sequence, self.window or sequence)
        pairs = sequence * reach - (reach * (reach - 1) // 2 if causal else 0)
        return 2 * pairs * self.heads * (self.head_size + self.valued)

    def forward_flops(self, sequence: int, causal: bool = False) -> int:
        """Of one sample, forward: the matrix products and the attention core."""
        dense = attention_parameters(self).products
        dense += (2 + self.gated) * self.hidden * self.active_ffn
        dense += self.hidden * (self.experts + (self.experts > 0) * self.shared_gate)
        return 2 * sequence * dense + self.core_flops(sequence, causal)
