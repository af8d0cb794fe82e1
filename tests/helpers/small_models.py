"""Models that are small enough for eight processes on two cores, and have all that can be split."""

from __future__ import annotations

import dataclasses

from heddle.spec import ModelSpec

GPT = ModelSpec(layers=2, hidden=16, heads=4, vocab=61, sequence=8, ffn=32)
LLAMA = ModelSpec(
    layers=2,
    hidden=16,
    heads=8,
    kv_heads=4,
    head_size=4,
    ffn=24,
    vocab=127,
    sequence=8,
    norm="rmsnorm",
    activation="swiglu",
    positions="rotary",
    bias="none",
    tied=False,
    qk_norm=True,
)


def gpt(**changes) -> ModelSpec:
    return dataclasses.replace(GPT, **changes)


def llama(**changes) -> ModelSpec:
    return dataclasses.replace(LLAMA, **changes)


def experts(**changes) -> ModelSpec:
    """A mixture of experts with both of the router's losses, so large that whoever forgets one is found out."""
    mixture = {"experts": 6, "top_k": 2, "expert_ffn": 8, "balance_loss": 0.3, "z_loss": 0.1}
    return llama(**mixture | changes)


def latent(**changes) -> ModelSpec:
    """Latent attention, and experts in groups with biases that follow their use."""
    sizes = {"kv_heads": 8, "head_size": 6, "rotary_size": 2, "value_size": 4, "kv_latent": 6, "q_latent": 10}
    router = {"router": "sigmoid", "router_groups": 3, "router_top_groups": 2, "router_scale": 1.5}
    more = {"router_bias": "choice", "balance_rate": 0.01, "shared_experts": 1, "rotary_pairs": "neighbors"}
    return experts(qk_norm=False, **sizes | router | more | changes)
