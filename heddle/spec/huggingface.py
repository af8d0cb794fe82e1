"""Hugging Face `config.json` to ModelSpec, for the families that a ModelSpec describes exactly.

Whatever changes the arithmetic and has no place in a ModelSpec is refused, never approximated. What only matters
elsewhere (token ids, dtype, cache, initialization) is passed over: a `config.json` is full of it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from heddle.errors import HeddleError, nearest, shorten
from heddle.spec.hf.config_keys import Config, Fields, as_json, get
from heddle.spec.hf.families import FAMILIES
from heddle.spec.hf.lacking import lacking
from heddle.spec.model import ModelSpec

SAME = {"kimi_k2": "deepseek_v3"}  # families that differ in name only


def read_config(config: Config) -> ModelSpec:
    """The model that a parsed `config.json` describes.

    Its name is `_name_or_path` where the file has one, else its `model_type`. Attention's own dropout is left out where
    published models state one (GPT-2): Heddle's attention has none, and a trained model computes the same without it.
    """
    model_type = config.get("model_type")
    if isinstance(model_type, str):
        model_type = SAME.get(model_type, model_type)
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise _unknown(config, model_type)
    spec = _read(config, model_type)
    return spec if first_family(spec) == model_type else replace(spec, family=model_type)


def _read(config: Config, model_type: str) -> ModelSpec:
    known: Fields = {"name": get(config, "_name_or_path", str, "") or model_type}
    family = FAMILIES[model_type]
    config = config | {key: config[old] for old, key in family.aliases.items() if key not in config and old in config}
    for rule in family.rules:
        known |= rule.read(config, known)
    return ModelSpec(**known)


def _unknown(config: Config, model_type: object) -> HeddleError:
    feature, known = lacking(config), nearest(shorten(model_type), FAMILIES)
    what = f"model_type = {shorten(model_type)} is not known."
    if feature is None:
        return HeddleError(what, "Heddle reads the model families that it can compute exactly.", known)
    why = f"Its configuration asks for {feature}, which Heddle's transformer does not have."
    return HeddleError(what, why, f'Train it as a module of your own: [model] module = "mine.py:make". {known}')


def keys_of(spec: ModelSpec, model_type: str) -> Config:
    """What a family's `config.json` says of a model, as well as it can."""
    keys: Config = {}
    for rule in FAMILIES[model_type].rules:
        keys |= rule.write(spec)
    return keys


def obstacles(spec: ModelSpec, model_type: str) -> dict[str, Any]:
    """The fields that keep a model from being of a family, each with the value that would fit.

    They are found by writing the model in the family's keys and reading these again.
    """
    family = FAMILIES[model_type]
    if family.has_experts and spec.expert_counts == {0}:
        return {"experts": 8, "top_k": 2, "expert_ffn": max(shape.ffn for shape in spec.shapes)}
    whole = max(1, spec.hidden // spec.heads)  # a head's share of a hidden size that the heads divide
    try:
        again = _read({"model_type": model_type, **keys_of(spec, model_type)}, model_type)
    except HeddleError:
        if spec.hidden % spec.heads == 0:  # its keys cannot state anything like it
            return {field.name: field.default for field in fields(ModelSpec)}
        return {"hidden": whole * spec.heads} | ({} if spec.head_size == whole else {"head_size": whole})
    ignored = {"name", "family", "balance_loss", "z_loss", *([] if family.has_dropout else ["dropout"])}
    names = [field.name for field in fields(ModelSpec) if field.name not in ignored]
    found = {name: getattr(again, name) for name in names if not _same(spec, again, name)}
    return found | ({"hidden": whole * spec.heads} if family.whole_heads and spec.hidden % spec.heads else {})


def _same(one: ModelSpec, other: ModelSpec, name: str) -> bool:
    """Whether a field says the same of both; what a choice makes meaningless does not count."""
    learned = one.positions == other.positions == "learned"
    if learned and name in ("rope_theta", "rope_scaling", "rotary_size", "rotary_pairs"):
        return True
    if name in ("qk_norm_over", "qk_norm_late") and not one.qk_norm and not other.qk_norm:
        return True
    if name == "norm_bias":  # where biases differ, that is told once
        return one.norm_bias is other.norm_bias or one.norm_biased == other.norm_biased
    if name == "ffn" and one.experts == other.experts and 0 not in one.expert_counts:
        return True  # no layer has an MLP
    if name == "shared_experts":
        return True  # their width together says it all
    return bool(getattr(one, name) == getattr(other, name))


def first_family(spec: ModelSpec) -> str | None:
    """The first family that a model fits."""
    return next((name for name in FAMILIES if not obstacles(spec, name)), None)


def family_of(spec: ModelSpec) -> str:
    """The family that a model is exchanged as: the one that it names, or the first that it fits."""
    if spec.family and spec.family not in FAMILIES:
        raise HeddleError(
            f"model.family = {shorten(spec.family)} is not known.",
            "It names the Hugging Face family that the model is exchanged as.",
            nearest(spec.family, FAMILIES),
        )
    found = spec.family if spec.family and not obstacles(spec, spec.family) else first_family(spec)
    if found is None or (spec.family and found != spec.family):
        raise _fits_none(spec)
    return found


def _fits_none(spec: ModelSpec) -> HeddleError:
    options = [spec.family] if spec.family else list(FAMILIES)
    kept = {family: obstacles(spec, family) for family in options}
    best = min(options, key=lambda family: len(kept[family]))
    changes = " and ".join(
        "no window" if (name, value) == ("window", None) else f"{name} = {as_json(value)}"
        for name, value in kept[best].items()
    )
    what = f"Model '{spec.name}' fits no Hugging Face family."
    return HeddleError(
        f"Model '{spec.name}' is not of the family {spec.family}." if spec.family else what,
        f"Known: {', '.join(FAMILIES)}; each fixes more than the sizes.",
        f"The nearest is {best}: it would fit with {changes}.",
    )
