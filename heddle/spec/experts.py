"""What a mixture of experts is, among the fields of a model: which layers have one, and how tokens choose."""

from __future__ import annotations

import re
from typing import Any, Literal

from heddle.errors import HeddleError

Router = Literal["softmax", "sigmoid"]

RANGES = re.compile(r"\s*\d+\s*(-\s*\d+\s*)?(,\s*\d+\s*(-\s*\d+\s*)?)*")


def without_experts(text: str, layers: int) -> frozenset[int]:
    """The layers that `dense_layers` names: "0-2, 7" are the first three and the eighth."""
    if not RANGES.fullmatch(text):
        raise HeddleError(
            f"model.dense_layers = '{text[:60]}' is not a list of layers.",
            "It names the layers that have an MLP instead of experts, by their numbers from 0 on.",
            'For example dense_layers = "0-2" or "0, 5".',
        )
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = (number.strip() for number in part.partition("-"))
        low, high = int(first), int(last or first)
        if high >= layers or low > high:
            raise HeddleError(
                f"model.dense_layers names layers {part.strip()}, but the model has layers 0 to {layers - 1}.",
                "A range goes from its first layer to its last.",
                f'For example dense_layers = "0-{min(2, layers - 1)}".',
            )
        found.update(range(low, high + 1))
    return frozenset(found)


def expand_dense_layers(model: Any) -> None:  # a ModelSpec, which asks for this
    """Write `dense_layers` into `experts`, where a layer without any has 0."""
    if not model.dense_layers:
        return
    dense = without_experts(model.dense_layers, model.layers)
    if isinstance(model.experts, tuple) or not model.experts:
        raise HeddleError(
            f"model.dense_layers = '{model.dense_layers}' needs one number of experts for all other layers.",
            "A list of experts already says which layers have none: those with 0.",
            'Use for example experts = 64 with dense_layers = "0-2".',
        )
    object.__setattr__(model, "experts", tuple(0 if layer in dense else model.experts for layer in range(model.layers)))
    object.__setattr__(model, "dense_layers", "")


def check_experts(model: Any) -> None:
    """Fill in what follows from other fields, and refuse what does not go together."""
    counts = {*model.experts} - {0} if isinstance(model.experts, tuple) else {model.experts} - {0}
    if not counts:
        said = [name for name in ("top_k", "expert_ffn", "shared_experts", "shared_ffn") if getattr(model, name)]
        if said:
            raise HeddleError(
                f"model.{said[0]} = {getattr(model, said[0])}, but the model has no experts.",
                "It describes layers that have experts in place of an MLP.",
                f"Add for example experts = 8 and top_k = 2, or leave {said[0]} out.",
            )
        return
    if not 1 <= model.top_k <= min(counts):
        raise HeddleError(
            f"model.top_k = {model.top_k} with {min(counts)} experts.",
            "It says how many of its layer's experts each token goes to.",
            f"Use 1 to {min(counts)}.",
        )
    if model.activation != "swiglu" or "mlp" in model.biased:
        raise HeddleError(
            f'Experts with activation = "{model.activation}" and bias = "{model.bias}" are not known.',
            "Heddle's experts are gated MLPs without biases.",
            'Use activation = "swiglu" and bias = "none" (or "qkv").',
        )
    widest = max(model.ffn) if isinstance(model.ffn, tuple) else model.ffn
    object.__setattr__(model, "expert_ffn", model.expert_ffn or widest)
    object.__setattr__(model, "shared_ffn", model.shared_ffn or model.shared_experts * model.expert_ffn)
    object.__setattr__(model, "shared_experts", model.shared_experts or min(1, model.shared_ffn))
    if model.shared_gate and not model.shared_ffn:
        raise HeddleError(
            "model.shared_gate = true, but the model has no shared experts.",
            "It says how much each token takes from them.",
            "Add for example shared_experts = 1, or leave shared_gate out.",
        )
