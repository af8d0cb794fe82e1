"""Mixtures of experts and latent attention, as the columns of a measured run state them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from heddle.calibrate.row_words import CannotModelError, count_of, number_of
from heddle.spec.experts import without_experts
from heddle.spec.model import ModelSpec

# models whose layers have experts, by the names of families and by sizes such as 8x7B or 30B-A3B
NAMES = re.compile(
    r"mixtral|\bmoe|moe\b|deepseek-?v?[23]|dbrx|grok|switch|glam|gpt-?oss|llama-?4|arctic|jamba|olmoe|kimi|"
    r"\d+\s*x\s*\d+(\.\d+)?\s*b\b|[-_ ]a\d+(\.\d+)?b\b|mixture.of.experts"
)
BALANCED = re.compile(r"balanced rout|forced? (?:\w+ )?balanc|force[-_]load[-_]balanc")
LATENT = {"q_latent": "q_lora", "kv_latent": "kv_lora", "still": "nope", "turning": "rope", "values": "v"}


def refuse_unstated(text: Mapping[str, str]) -> None:
    """A mixture of experts is never priced as if it were dense: what it is must be stated."""
    if number_of(text, "experts", 0) > 1:
        if not text.get("top_k"):
            raise CannotModelError(f"it does not state top_k, of {text['experts']} experts")
        return
    for name, words in (("ep", "expert parallelism"), ("moe", "a mixture of experts")):
        value = text.get(name, "").lower()
        count = (
            float(value in ("true", "yes")) * 2 if name == "moe" and not value.isdigit() else number_of(text, name, 0)
        )
        if count > (0 if name == "moe" else 1):
            raise CannotModelError(f"{words} ({name} = {value}), but it does not state experts and top_k")
    named = f"{text.get('model', '')} {text.get('dataset', '')}".lower()
    if found := NAMES.search(named) or re.search(r"mixture.of.experts|\bmoe\b", text.get("notes", "").lower()):
        raise CannotModelError(f"a mixture of experts ({found[0].strip()}), but it does not state experts and top_k")


def with_experts(model: ModelSpec, text: Mapping[str, str]) -> ModelSpec:
    """A dense model with the experts that a row states; they are gated, as all that are trained now are."""
    count = count_of(text, "experts", 0, least=0)
    if count <= 1:
        return model
    dense = _dense(text, model.layers)
    counts = tuple(0 if layer in dense else count for layer in range(model.layers))
    sizes: dict[str, Any] = {name: count_of(text, name, 0, least=0) for name in ("top_k", "expert_ffn", "shared_ffn")}
    gated = replace(model, activation="swiglu", positions="rotary", norm="rmsnorm", bias="none", tied=False)
    return replace(gated, experts=counts, **sizes)


def _dense(text: Mapping[str, str], layers: int) -> frozenset[int]:
    """Layers without experts: so many at the beginning, or ranges such as 0-2."""
    said = text.get("dense_layers", "")
    if re.fullmatch(r"\d+(\.0)?", said):
        return frozenset(range(int(float(said))))
    return without_experts(said, layers) if said else frozenset()


def with_latents(model: ModelSpec, text: Mapping[str, str]) -> ModelSpec:
    """Attention by latents, where `attention_kind` says so: "mla q_lora 1536 kv_lora 512 nope 128 rope 64 v 128"."""
    said = text.get("attention_kind", "").lower()
    if not re.search(r"\bmla\b|latent", said):
        return model
    found = {name: re.search(rf"\b{word}[ =:]+(\d{{1,6}})\b", said) for name, word in LATENT.items()}
    sizes = {name: int(each[1]) for name, each in found.items() if each is not None}
    missing = [word for name, word in LATENT.items() if name not in sizes and name != "q_latent"]
    if missing:
        raise CannotModelError(f"attention_kind = {said!r} does not state {missing[0]}")
    latent: dict[str, Any] = {
        "kv_heads": model.heads,
        "head_size": sizes["still"] + sizes["turning"],
        "rotary_size": sizes["turning"],
        "value_size": sizes["values"],
        "kv_latent": sizes["kv_latent"],
        "q_latent": sizes.get("q_latent", 0),
    }
    return replace(model, **latent)


def expert_plan(text: Mapping[str, str], plan: Mapping[str, Any], model: ModelSpec) -> dict[str, Any]:
    """How experts are split, and whether tokens were made to choose evenly, as benchmarks do."""
    counts = model.expert_counts - {0}
    if not counts:
        return {}
    expert, replicas = count_of(text, "ep", 1), plan["data"] * plan["context"]
    split = count_of(text, "etp", plan["tensor"])
    if split not in (1, plan["tensor"]):
        raise CannotModelError(f"etp = {split} is neither 1 nor tp = {plan['tensor']}")
    whole = split == 1 and plan["tensor"] > 1
    ranks = replicas * (plan["tensor"] if whole else 1)
    if ranks % expert or any(count % expert for count in counts):
        raise CannotModelError(f"ep = {expert} does not divide {max(counts)} experts and {ranks} ranks")
    balanced = BALANCED.search(text.get("notes", "").lower()) is not None
    return {"expert": expert, **({"spread": 0.0} if balanced else {}), **({"whole_experts": 1} if whole else {})}
