"""The models that torchtitan knows by name and flavor, as tables of [model]."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heddle.spec.model import ModelSpec
from heddle.spec.shorthand import model_from_table
from heddle.spec.tables import to_table

_STYLE = {"norm": "rmsnorm", "activation": "swiglu", "positions": "rotary", "bias": "none"}
_LLAMA = _STYLE | {"vocab": 128_256, "sequence": 131_072, "rope_theta": 500_000.0, "tied": False}
_LLAMA31 = {"factor": 8.0, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0, "original_sequence": 8192}
_QWEN = _STYLE | {
    "vocab": 151_936,
    "sequence": 40_960,
    "rope_theta": 1_000_000.0,
    "norm_epsilon": 1e-6,
    "qk_norm": True,
    "head_size": 128,
}


def _llama(layers: int, hidden: int, heads: int, ffn: int) -> dict[str, Any]:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": 8, "ffn": ffn}
    return _LLAMA | sizes | {"rope_scaling": _LLAMA31}


def _qwen(layers: int, hidden: int, heads: int, ffn: int, tied: bool) -> dict[str, Any]:
    return _QWEN | {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": 8, "ffn": ffn, "tied": tied}


def _qwen_experts(layers: int, hidden: int, heads: int, ffn: int, expert_ffn: int, theta: float) -> dict[str, Any]:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": 4, "ffn": ffn, "rope_theta": theta}
    return _QWEN | sizes | {"experts": 128, "top_k": 8, "expert_ffn": expert_ffn, "tied": False}


# Sizes as its model registries state them (torchtitan/models/*/__init__.py of release 0.2.2).
FLAVORS: dict[tuple[str, str], dict[str, Any]] = {
    ("llama3", "debugmodel"): _LLAMA
    | {"layers": 6, "hidden": 256, "heads": 16, "ffn": 768, "vocab": 2048, "rope_scaling": _LLAMA31},
    ("llama3", "8B"): _llama(32, 4096, 32, 14_336),
    ("llama3", "70B"): _llama(80, 8192, 64, 28_672),
    ("llama3", "405B"): _llama(126, 16_384, 128, 53_248),
    ("qwen3", "0.6B"): _qwen(28, 1024, 16, 3072, True),
    ("qwen3", "1.7B"): _qwen(28, 2048, 16, 6144, True),
    ("qwen3", "4B"): _qwen(36, 2560, 32, 9728, True),
    ("qwen3", "8B"): _qwen(36, 4096, 32, 12_288, False),
    ("qwen3", "14B"): _qwen(40, 5120, 40, 17_408, False),
    ("qwen3", "32B"): _qwen(64, 5120, 64, 25_600, False),
    ("qwen3", "30B-A3B"): _qwen_experts(48, 2048, 32, 6144, 768, 1_000_000.0),
    ("qwen3", "235B-A22B"): _qwen_experts(94, 4096, 64, 12_288, 1536, 5_000_000.0),
}


def flavor_of(model: ModelSpec) -> tuple[str, str] | None:
    """The name and flavor of a model of this shape, whatever its longest sequence and how positions are stretched."""
    wanted = _compared(model)
    return next((key for key, table in FLAVORS.items() if _compared(model_from_table(table)) == wanted), None)


def _compared(model: ModelSpec) -> dict[str, Any]:
    plain = replace(model, name="", family="", sequence=1, rope_scaling=None, dropout=0.0, balance_loss=0.0, z_loss=0.0)
    return to_table(plain)
