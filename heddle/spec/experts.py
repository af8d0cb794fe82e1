"""What a mixture of experts is, among the fields of a model: which layers have one, and how tokens choose."""

from __future__ import annotations

import re
from typing import Any, Literal

from heddle.errors import HeddleError, divisors, listing

Router = Literal["softmax", "sigmoid"]
RouterBias = Literal["none", "score", "choice"]

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
        names = ("top_k", "expert_ffn", "shared_experts", "shared_ffn", "router_groups", "balance_rate")
        said = [name for name in names if getattr(model, name)]
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
    if model.activation not in ("swiglu", "clamped-swiglu"):
        raise HeddleError(
            f'Experts with activation = "{model.activation}" are not known.',
            "Heddle's experts are gated MLPs.",
            'Use activation = "swiglu" or "clamped-swiglu".',
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
    if "mlp" in model.biased and (0 in counts_of(model) or model.shared_ffn):
        raise HeddleError(
            f'Experts with bias = "{model.bias}" beside MLPs or shared experts are not known.',
            "Where experts have biases, they are all that a layer has behind attention.",
            'Use bias = "none", "qkv" or "attention", or experts in every layer and no shared ones.',
        )
    _check_groups(model, counts)
    if model.balance_rate and model.router_bias != "choice":
        raise HeddleError(
            f'model.balance_rate = {model.balance_rate} with router_bias = "{model.router_bias}".',
            "It moves the biases by which experts are chosen.",
            'Use router_bias = "choice", or balance_loss instead.',
        )


def counts_of(model: Any) -> set[int]:
    """How many experts its layers have."""
    return {*model.experts} if isinstance(model.experts, tuple) else {model.experts}


def _check_groups(model: Any, counts: set[int]) -> None:
    groups, used = model.router_groups, model.router_top_groups
    if groups <= 1 and used <= 1:
        object.__setattr__(model, "router_groups", 0)  # one is none
        object.__setattr__(model, "router_top_groups", 0)
        return
    least = 2 if model.router == "sigmoid" else 1
    uneven = [count for count in counts if groups < 1 or count % groups or count // groups < least]
    if uneven:
        fitting = [each for each in divisors(uneven[0]) if uneven[0] // each >= least]
        raise HeddleError(
            f"{uneven[0]} experts cannot be in router_groups = {groups}.",
            "Groups are equal" + (", and sigmoid routers rank them by their two best experts." if least > 1 else "."),
            f"{listing(fitting)} can.",
        )
    enough = -(-model.top_k * groups // min(counts))
    if not enough <= used <= groups:
        raise HeddleError(
            f"model.router_top_groups = {used} with {groups} groups and top_k = {model.top_k}.",
            "A token's experts come from so many groups, which must have enough of them.",
            f"Use {enough} to {groups}.",
        )
