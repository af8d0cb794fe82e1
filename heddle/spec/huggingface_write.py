"""ModelSpec to a Hugging Face `config.json`, of the family that the model fits exactly."""

from __future__ import annotations

from typing import Any

from heddle.errors import HeddleError
from heddle.spec.huggingface import FAMILIES, FULL, LLAMA_STYLE, QWEN, SLIDING, as_json
from heddle.spec.model import ModelSpec


def write_config(spec: ModelSpec) -> dict[str, Any]:
    """The `config.json` of the family that the model fits; reading it gives the same model.

    Llama and its relatives have no dropout on the residual branches, so theirs is not written: a trained
    model computes the same without it.
    """
    obstacles = {family: _obstacles(spec, family) for family in FAMILIES}
    model_type = min(FAMILIES, key=lambda family: len(obstacles[family]))
    if obstacles[model_type]:
        changes = " and ".join(
            "no window" if value is None else f"{field} = {as_json(value)}"
            for field, value in obstacles[model_type].items()
        )
        raise HeddleError(
            f"Model '{spec.name}' fits no Hugging Face family.",
            f"Known: {', '.join(FAMILIES)}; each fixes more than the sizes.",
            f"The nearest is {model_type}: it would fit with {changes}.",
        )
    common = {
        "_name_or_path": spec.name,
        "model_type": model_type,
        "vocab_size": spec.vocab,
        "tie_word_embeddings": spec.tied,
        # A spec knows no tokenizer, and a family's own ids may lie outside this vocabulary.
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return common | (_write_gpt2(spec) if model_type == "gpt2" else _write_llama_style(spec, model_type))


def _obstacles(spec: ModelSpec, model_type: str) -> dict[str, Any]:
    """The fields that keep a model from being of a family, each with the value that would fit."""
    whole = max(1, spec.hidden // spec.heads)  # a head's share of a hidden size that the heads divide
    allowed: dict[str, tuple[Any, ...]]
    if model_type == "gpt2":
        allowed = {"norm": ("layernorm",), "activation": ("gelu",), "positions": ("learned",)}
        allowed |= {"hidden": (whole * spec.heads,), "head_size": (whole,), "kv_heads": (spec.heads,)}
        allowed |= {"bias": ("all",), "qk_norm": (False,), "window": (None,)}
    else:
        family = LLAMA_STYLE[model_type]
        allowed = {"norm": ("rmsnorm",), "activation": ("swiglu",), "positions": ("rotary",)}
        allowed |= {"bias": family.biases, "qk_norm": (family.qk_norm,)}
        if not family.windows:
            allowed["window"] = (None,)
        if model_type == "llama":  # version 5 of transformers asks for it, even beside an explicit head_dim
            allowed["hidden"] = (whole * spec.heads,)
    if isinstance(spec.ffn, tuple):  # no family's layers have MLPs of several widths
        allowed["ffn"] = (max(spec.ffn),)
    if isinstance(spec.window, tuple) and "window" not in allowed:
        widest = max(spec.window)
        several = len({*spec.window} - {0}) > 1
        if several or model_type not in QWEN:
            allowed["window"] = (widest,)
    return {field: values[0] for field, values in allowed.items() if getattr(spec, field) not in values}


def _write_gpt2(spec: ModelSpec) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "n_layer": spec.layers,
        "n_embd": spec.hidden,
        "n_head": spec.heads,
        "n_inner": spec.ffn,
        "n_positions": spec.sequence,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": spec.norm_epsilon,
        "resid_pdrop": spec.dropout,
        "embd_pdrop": spec.dropout,
        "attn_pdrop": 0.0,
    }


def _write_llama_style(spec: ModelSpec, model_type: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": [LLAMA_STYLE[model_type].architecture],
        "num_hidden_layers": spec.layers,
        "hidden_size": spec.hidden,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_size,
        "intermediate_size": spec.ffn,
        "max_position_embeddings": spec.sequence,
        "hidden_act": "silu",
        "rms_norm_eps": spec.norm_epsilon,
        # The form of version 4, which version 5 still reads; version 4 cannot read `rope_parameters`.
        "rope_theta": spec.rope_theta,
        "rope_scaling": None,
        "attention_dropout": 0.0,
    }
    if spec.rope_scaling is not None:
        config["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": spec.rope_scaling.factor,
            "low_freq_factor": spec.rope_scaling.low_frequency_factor,
            "high_freq_factor": spec.rope_scaling.high_frequency_factor,
            "original_max_position_embeddings": spec.rope_scaling.original_sequence,
        }
    if model_type == "llama":
        config |= {"attention_bias": spec.bias == "all", "mlp_bias": spec.bias == "all"}
    if model_type == "qwen3":
        config["attention_bias"] = False
    windows = [shape.window for shape in (spec.layer(index) for index in range(spec.layers))]
    if LLAMA_STYLE[model_type].windows:
        config["sliding_window"] = max((window for window in windows if window), default=None)
    if model_type in QWEN:
        # Versions of transformers that do not know layer_types give the window to layers from max_window_layers on.
        config["use_sliding_window"] = any(windows)
        config["max_window_layers"] = next((i for i, window in enumerate(windows) if window), spec.layers)
        if isinstance(spec.window, tuple):
            config["layer_types"] = [SLIDING if window else FULL for window in windows]
    return config
