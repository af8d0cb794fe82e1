"""Fine-tuning: what of a model learns beside frozen weights, how those are kept, and learning from preferences."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from heddle.errors import HeddleError, nearest
from heddle.spec.model import ModelSpec
from heddle.spec.ranges import Count, Positive, ShareBelowOne, check_ranges
from heddle.spec.tables import WHERE_SAID

# The linear layers of a layer that adapters may stand beside, by the names people use for them, and where they are.
TARGETS = {
    "q": "attention.qkv",
    "k": "attention.qkv",
    "v": "attention.qkv",
    "o": "attention.out",
    "gate": "mlp.gate",
    "up": "mlp.up",
    "down": "mlp.down",
}
ALSO = ("embed", "head", "norm")
ADAPTER = "adapters"  # what every name of an adapter's parameter has in it


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Low-rank adapters (arXiv 2106.09685): y = W x + scale · B A x, of which only A and B learn."""

    rank: Count = 16
    alpha: Positive | None = None  # of the scale, alpha / rank; None: twice the rank
    # those of an MLP are passed over where a layer has none
    targets: tuple[str, ...] = field(default=tuple(TARGETS), metadata={"words": tuple(TARGETS)})
    dropout: ShareBelowOne = 0.0  # of what adapters see
    rank_stabilized: bool = False  # alpha / √rank instead (arXiv 2312.03732)

    def __post_init__(self) -> None:
        check_ranges(self, "tune.lora")
        for target in self.targets:
            if target not in TARGETS:
                raise HeddleError(
                    f"tune.lora.targets: there is no '{target}'.",
                    "Adapters stand beside the linear layers of attention and MLP.",
                    nearest(target, TARGETS),
                )
        if not self.targets or len(set(self.targets)) < len(self.targets):
            raise HeddleError(
                f"tune.lora.targets = {list(self.targets)} is empty, or names a layer twice.",
                "Each target has one adapter.",
                f"For example {list(TARGETS)}.",
            )

    @property
    def scale(self) -> float:
        """What B A x is multiplied by."""
        alpha = 2 * self.rank if self.alpha is None else self.alpha
        return alpha / (math.sqrt(self.rank) if self.rank_stabilized else self.rank)


@dataclass(frozen=True, kw_only=True)
class Tune:
    """What learns. Everything else is frozen: it has no gradient, no optimizer state, and is never sent."""

    lora: Lora | None = None
    adapter: str | None = None  # a folder of PEFT's to begin with; it brings rank, scale and targets
    # what the frozen matrices of layers are kept in: four bits (QLoRA), or the precision of the job
    base: Literal["nf4"] | None = field(default=None, metadata=WHERE_SAID)
    # parts of the model that learn as well, beside adapters
    also: tuple[Literal["embed", "head", "norm"], ...] = field(default=(), metadata=WHERE_SAID)

    def __post_init__(self) -> None:
        if self.lora is None and self.adapter is None:
            raise HeddleError(
                "[tune] has neither 'lora' nor 'adapter'.",
                "It says what learns beside a frozen model; without [tune] all of the model learns.",
                "For example lora = { rank = 16 }.",
            )

    @property
    def adapters(self) -> Lora:
        """The adapters, as the table or PEFT's folder describes them."""
        assert self.lora is not None, "PEFT's folder was not read"
        return self.lora


@dataclass(frozen=True, kw_only=True)
class Preference:
    """Direct preference optimization (arXiv 2305.18290).

    The reference is the model that training starts from: with [tune] the frozen one, without adapters; else a copy.
    """

    beta: Positive = 0.1  # how far the model may go from its reference: the larger, the less

    def __post_init__(self) -> None:
        check_ranges(self, "preference")


def adapter_shapes(model: ModelSpec, lora: Lora, layer: int) -> dict[str, dict[str, tuple[int, int]]]:
    """The adapters of one layer: by linear layer and target, the sizes of their input and output."""
    spec = model.layer(layer)
    q, kv = spec.heads * spec.head_size, spec.kv_heads * spec.head_size
    sizes = {
        "q": (spec.hidden, q),
        "k": (spec.hidden, kv),
        "v": (spec.hidden, kv),
        "o": (spec.heads * spec.valued, spec.hidden),
        "gate": (spec.hidden, spec.ffn),
        "up": (spec.hidden, spec.ffn),
        "down": (spec.ffn, spec.hidden),
    }
    if all(TARGETS[target].startswith("mlp.") for target in lora.targets) and 0 not in model.expert_counts:
        raise HeddleError(
            f"tune.lora.targets = {list(lora.targets)} leaves nothing to adapt: every layer has experts.",
            "Adapters stand beside the linear layers of attention and of MLPs, not beside experts.",
            "Use for example targets = ['q', 'k', 'v', 'o'].",
        )
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for target, place in TARGETS.items():
        lacking = (target == "gate" and not spec.gated) or (spec.experts and place.startswith("mlp."))
        if target in lora.targets and not lacking:
            found.setdefault(place, {})[target] = sizes[target]
    return found


def adapter_parameters(model: ModelSpec, lora: Lora) -> int:
    """How many numbers adapters have."""
    return sum(
        lora.rank * (inputs + outputs)
        for layer in range(model.layers)
        for targets in adapter_shapes(model, lora, layer).values()
        for inputs, outputs in targets.values()
    )


def in_four_bits(name: str) -> bool:
    """Whether base = "nf4" keeps a parameter so: the matrices of attention and MLP, whatever is learned beside them."""
    first, _, rest = name.partition(".")
    return first == "layers" and rest.partition(".")[2] in {f"{place}.weight" for place in TARGETS.values()}


def spared_flops(model: ModelSpec, tune: Tune, sequence: int) -> int:
    """FLOPs of one sample that frozen weights spare: the products that would make their gradients."""
    shapes = [model.shapes[place] for place in model.shape_of]
    layers = sum(shape.forward_flops(sequence) - shape.core_flops(sequence) for shape in shapes)
    return layers + (0 if "head" in tune.also else 2 * sequence * model.hidden * model.vocab)
