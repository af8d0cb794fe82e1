"""Hugging Face `config.json` to ModelSpec, for the families that a ModelSpec describes exactly.

Keys and defaults are those of the configuration classes of transformers, version 4 and 5. Whatever changes
the arithmetic and has no place in a ModelSpec is refused, never approximated. What only matters elsewhere
(token ids, dtype, cache, initialisation) is passed over: a `config.json` is full of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from heddle.errors import HeddleError, nearest, shorten
from heddle.spec.model import MOST_LAYERS, Bias, ModelSpec, RopeScaling

T = TypeVar("T", int, float, bool, str)

JSON_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


@dataclass(frozen=True)
class Family:
    """What sets one family apart from Llama, whose keys Mistral and Qwen share."""

    architecture: str
    kv_heads: int | None = None  # where the key is absent; None: as many as heads
    head_size: int | None = None  # where the key is absent; None: hidden / heads
    biases: tuple[Bias, ...] = ("none",)
    qk_norm: bool = False
    windows: bool = False  # knows sliding-window attention


LLAMA_STYLE = {
    "llama": Family("LlamaForCausalLM", biases=("none", "all")),
    "mistral": Family("MistralForCausalLM", kv_heads=8, windows=True),
    "qwen2": Family("Qwen2ForCausalLM", kv_heads=32, biases=("qkv",), windows=True),
    "qwen3": Family("Qwen3ForCausalLM", kv_heads=32, head_size=128, qk_norm=True, windows=True),
}
FAMILIES = ("gpt2", *LLAMA_STYLE)
QWEN = ("qwen2", "qwen3")  # whose layers may differ
FULL, SLIDING = "full_attention", "sliding_attention"  # what a layer looks at
ROPE_TYPES = ("default", "llama3")


def read_config(config: dict[str, Any]) -> ModelSpec:
    """The model that a parsed `config.json` describes.

    Its name is `_name_or_path` where the file has one, else its `model_type`. Its dropout is GPT-2's residual
    and embedding dropout, which must agree. GPT-2's attention dropout is left out: Heddle's attention has
    none, every published GPT-2 states 0.1, and a trained model computes the same without it.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise HeddleError(
            f"model_type = {shorten(model_type)} is not known.",
            "Heddle reads the model families that it can compute exactly.",
            nearest(shorten(model_type), FAMILIES),
        )
    return _read_gpt2(config) if model_type == "gpt2" else _read_llama_style(config, model_type)


def _read_gpt2(config: dict[str, Any]) -> ModelSpec:
    _only(config, "activation_function", "gelu_new")  # the tanh form
    _only(config, "scale_attn_weights", True)
    _only(config, "scale_attn_by_inverse_layer_idx", False)
    _only(config, "add_cross_attention", False)
    residual, embedding = (_get(config, key, float, 0.1) for key in ("resid_pdrop", "embd_pdrop"))
    if residual != embedding:
        raise HeddleError(
            f"resid_pdrop = {residual} and embd_pdrop = {embedding} differ.",
            "A Heddle model has one dropout, after the embedding and on both residual branches.",
            f"Set both to {residual} or both to {embedding}.",
        )
    hidden = _get(config, "n_embd", int)
    return ModelSpec(
        name=_get(config, "_name_or_path", str, "") or "gpt2",
        layers=_get(config, "n_layer", int),
        hidden=hidden,
        heads=_get(config, "n_head", int),
        vocab=_get(config, "vocab_size", int),
        sequence=_get(config, "n_positions", int),
        ffn=_get(config, "n_inner", int, 4 * hidden),
        norm_epsilon=_get(config, "layer_norm_epsilon", float, 1e-5),
        tied=_get(config, "tie_word_embeddings", bool, True),
        dropout=residual,
    )


def _read_llama_style(config: dict[str, Any], model_type: str) -> ModelSpec:
    family = LLAMA_STYLE[model_type]
    _only(config, "hidden_act", "silu")
    _only(config, "attention_dropout", 0.0)
    layers, heads = _get(config, "num_hidden_layers", int), _get(config, "num_attention_heads", int)
    # An absent key takes the family's default, a null always means "as many as heads".
    kv_heads = heads if "num_key_value_heads" in config else family.kv_heads or heads
    theta, scaling = _rope(config)
    return ModelSpec(
        name=_get(config, "_name_or_path", str, "") or model_type,
        layers=layers,
        hidden=_get(config, "hidden_size", int),
        heads=heads,
        vocab=_get(config, "vocab_size", int),
        sequence=_get(config, "max_position_embeddings", int),
        kv_heads=_get(config, "num_key_value_heads", int, kv_heads),
        head_size=_get(config, "head_dim", int, family.head_size or 0),
        ffn=_get(config, "intermediate_size", int),
        norm="rmsnorm",
        norm_epsilon=_get(config, "rms_norm_eps", float, 1e-6),
        activation="swiglu",
        positions="rotary",
        rope_theta=theta,
        rope_scaling=scaling,
        window=_window(config, model_type, layers),
        bias=_bias(config, model_type),
        qk_norm=family.qk_norm,
        tied=_get(config, "tie_word_embeddings", bool, False),
    )


def _bias(config: dict[str, Any], model_type: str) -> Bias:
    family = LLAMA_STYLE[model_type]
    if model_type == "qwen3":
        _only(config, "attention_bias", False)
    if model_type != "llama":
        return family.biases[0]
    # Llama's attention_bias is on query, key, value *and* output projection: alone it is not our "qkv".
    attention, mlp = _get(config, "attention_bias", bool, False), _get(config, "mlp_bias", bool, False)
    if attention != mlp:
        raise HeddleError(
            f"attention_bias = {as_json(attention)} with mlp_bias = {as_json(mlp)} cannot be expressed.",
            "A Heddle model has biases on all its linear layers, on query, key and value only, or on none.",
            "Set both to true or both to false.",
        )
    return "all" if attention else "none"


def _rope(config: dict[str, Any]) -> tuple[float, RopeScaling | None]:
    """The base of the rotary positions and how they are stretched.

    Version 4 of transformers wrote `rope_theta` beside `rope_scaling`, version 5 writes both into
    `rope_parameters`. Where a file has several, the order of precedence here is that of version 5.
    """
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, dict) or any(isinstance(value, dict) for value in rope.values()):
        raise HeddleError(
            f"The rotary parameters {shorten(rope)} are not one flat object.",
            "All layers of a Heddle model share one set of rotary positions.",
            'For example "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}.',
        )
    _only({**config, **rope}, "partial_rotary_factor", 1.0)
    theta = _get(rope, "rope_theta", float, _get(config, "rope_theta", float, 10_000.0))
    kind = _get(rope, "rope_type", str, _get(rope, "type", str, "default"))
    if kind not in ROPE_TYPES:
        raise HeddleError(
            f"Rotary positions of type '{kind}' are not known.",
            "Heddle stretches rotary positions the way Llama 3.1 does, or not at all.",
            nearest(kind, ROPE_TYPES),
        )
    if kind == "default":
        return theta, None
    return theta, RopeScaling(
        factor=_get(rope, "factor", float),
        low_frequency_factor=_get(rope, "low_freq_factor", float),
        high_frequency_factor=_get(rope, "high_freq_factor", float),
        original_sequence=_get(rope, "original_max_position_embeddings", int),
    )


def _window(config: dict[str, Any], model_type: str, layers: int) -> int | tuple[int, ...] | None:
    """How many tokens each token sees, itself included; None for all of them. Qwen's layers may differ, 0 sees all."""
    qwen = model_type in QWEN
    if not LLAMA_STYLE[model_type].windows or (qwen and not _get(config, "use_sliding_window", bool, False)):
        return None
    if "sliding_window" in config and config["sliding_window"] is None:
        return None
    window = _get(config, "sliding_window", int, 4096)
    kinds = config.get("layer_types") or []
    if not isinstance(kinds, list) or not all(kind in (FULL, SLIDING) for kind in kinds):
        raise HeddleError(
            f"'layer_types' = {as_json(kinds)} is not known.",
            "It lists the kind of attention of each layer.",
            f'Write it as ["{FULL}", "{SLIDING}", …], or remove it.',
        )
    if kinds and len(kinds) != layers:
        raise HeddleError(
            f"'layer_types' lists {len(kinds)} layers, but 'num_hidden_layers' = {layers}.",
            "It lists the kind of attention of each layer.",
            "The model's own config.json has it right.",
        )
    if not kinds and layers <= MOST_LAYERS:  # a file may state any number of layers, which the model then refuses
        first = _get(config, "max_window_layers", int, 28) if qwen else 0
        kinds = [SLIDING if layer >= first else FULL for layer in range(layers)]
    if not qwen and FULL in kinds and SLIDING in kinds:
        raise HeddleError(
            f"{kinds.count(SLIDING)} of the {layers} layers have sliding-window attention, but the others do not.",
            f"All layers of a model of type '{model_type}' have the same kind.",
            'Remove "layer_types".',
        )
    return tuple(window if kind == SLIDING else 0 for kind in kinds) or None


def _get(config: dict[str, Any], key: str, kind: type[T], default: T | None = None) -> T:
    """The value of a key, of the right type; null counts as absent, absent without a default is an error."""
    value = config.get(key)
    if value is None:
        if default is None:
            raise HeddleError(
                f"The configuration lacks '{key}'.",
                "It is needed to define the model.",
                f"Add {key!r} as {JSON_NAMES[kind]}; the model's own config.json has it.",
            )
        return default
    if kind is float and type(value) is int:
        return kind(value)
    if type(value) is not kind:  # not isinstance: in Python, true is an int
        raise HeddleError(
            f"'{key}' = {as_json(value)} has the wrong type.",
            f"It must be {JSON_NAMES[kind]}.",
            "The model's own config.json has it right.",
        )
    return value


def _only(config: dict[str, Any], key: str, known: str | bool | float) -> None:
    """Refuse a key whose value asks for arithmetic that Heddle does not have."""
    if config.get(key, known) not in (None, known):
        raise HeddleError(
            f"'{key}' = {as_json(config[key])} is not known.",
            "Heddle refuses what it would compute differently.",
            f"Known: {as_json(known)}.",
        )


def as_json(value: object) -> str:
    """A value as the file would write it, for messages."""
    words = {True: "true", False: "false", None: "null"}
    return words[value] if value is None or isinstance(value, bool) else shorten(value)
