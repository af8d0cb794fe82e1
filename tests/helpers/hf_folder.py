"""Hugging Face folders made by hand, and what they must compute: names, shapes and arithmetic as transformers has them.

Written from transformers' modeling code, and sharing no code with the package: separate queries, keys and values,
GPT-2's Conv1D, batch-free and one head at a time.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

Config = dict[str, Any]
Weights = dict[str, torch.Tensor]

LLAMA: Config = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 257,
    "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
}
CONFIGS: dict[str, Config] = {
    "gpt2": {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 24,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 16,
        "vocab_size": 257,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
    },
    "llama": LLAMA,
    "mistral": LLAMA | {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 5},
    "qwen2": LLAMA | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True},
    "qwen3": LLAMA | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 10},
}

SLIDING: Config = {"num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 5}
UNLIKE: dict[str, Config] = {  # whose layers see windows of different sizes
    "qwen2-late-windows": CONFIGS["qwen2"] | SLIDING | {"max_window_layers": 2},
    "qwen3-alternating": CONFIGS["qwen3"] | SLIDING | {"layer_types": ["sliding_attention", "full_attention"] * 2},
}


def is_tied(config: Config) -> bool:
    return bool(config.get("tie_word_embeddings", config["model_type"] == "gpt2"))


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The tensors of a file, as transformers names and shapes them."""
    made: dict[str, tuple[int, ...]] = {}
    if config["model_type"] == "gpt2":
        h = config["n_embd"]
        made |= {"transformer.wte.weight": (config["vocab_size"], h)}
        made |= {"transformer.wpe.weight": (config["n_positions"], h)}
        for i in range(config["n_layer"]):
            p = f"transformer.h.{i}"
            for norm in ("ln_1", "ln_2"):
                made |= {f"{p}.{norm}.weight": (h,), f"{p}.{norm}.bias": (h,)}
            made |= {f"{p}.attn.c_attn.weight": (h, 3 * h), f"{p}.attn.c_attn.bias": (3 * h,)}
            made |= {f"{p}.attn.c_proj.weight": (h, h), f"{p}.attn.c_proj.bias": (h,)}
            made |= {f"{p}.mlp.c_fc.weight": (h, 4 * h), f"{p}.mlp.c_fc.bias": (4 * h,)}
            made |= {f"{p}.mlp.c_proj.weight": (4 * h, h), f"{p}.mlp.c_proj.bias": (h,)}
        made |= {"transformer.ln_f.weight": (h,), "transformer.ln_f.bias": (h,)}
    else:
        h, f = config["hidden_size"], config["intermediate_size"]
        size = config.get("head_dim", h // config["num_attention_heads"])
        q, kv = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
        made |= {"model.embed_tokens.weight": (config["vocab_size"], h)}
        for i in range(config["num_hidden_layers"]):
            p = f"model.layers.{i}"
            made |= {f"{p}.input_layernorm.weight": (h,), f"{p}.post_attention_layernorm.weight": (h,)}
            linear = {"self_attn.q_proj": (q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h)}
            linear |= {"self_attn.o_proj": (h, q)}
            linear |= {"mlp.gate_proj": (f, h), "mlp.up_proj": (f, h), "mlp.down_proj": (h, f)}
            for name, shape in linear.items():
                made[f"{p}.{name}.weight"] = shape
                qkv = name.endswith(("q_proj", "k_proj", "v_proj"))
                if (config["model_type"] == "qwen2" and qkv) or config.get("attention_bias"):
                    made[f"{p}.{name}.bias"] = shape[:1]
            if config["model_type"] == "qwen3":
                made |= {f"{p}.self_attn.q_norm.weight": (size,), f"{p}.self_attn.k_norm.weight": (size,)}
        made |= {"model.norm.weight": (h,)}
    if not is_tied(config):
        made |= {"lm_head.weight": (config["vocab_size"], h)}
    return made


def random_weights(config: Config, seed: int = 0, dtype: torch.dtype = torch.float32) -> Weights:
    """Large enough that a row out of place is seen in the logits."""
    generator = torch.Generator().manual_seed(seed)
    made = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes(config).items()}
    norms = [name for name in made if name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight"))]
    return {name: (tensor + (name in norms)).to(dtype) for name, tensor in made.items()}


def write_folder(folder: Path, config: Config, weights: Weights, shards: int = 1) -> Path:
    """A folder as `save_pretrained` leaves it; with several shards, neighbors lie in different files."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        return folder
    names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    weight_map = {key: names[i % shards] for i, key in enumerate(weights)}
    for name in names:
        part = {key: weights[key] for key, file in weight_map.items() if file == name}
        save_file(part, folder / name, {"format": "pt"})
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def logits(config: Config, weights: Weights, ids: torch.Tensor) -> torch.Tensor:
    """Logits [sequence, vocab] of token ids [sequence]."""
    w = {name: tensor.float() for name, tensor in weights.items()}
    return _gpt2(config, w, ids) if config["model_type"] == "gpt2" else _llama(config, w, ids)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int | None) -> torch.Tensor:
    """One head: [sequence, size] each."""
    s = len(q)
    back = torch.arange(s)[:, None] - torch.arange(s)[None]
    hidden = (back < 0) | (back >= (window or s))
    return torch.softmax((q @ k.T / math.sqrt(q.shape[1])).masked_fill(hidden, -math.inf), -1) @ v


def _gpt2(config: Config, w: Weights, ids: torch.Tensor) -> torch.Tensor:
    h, heads = config["n_embd"], config["n_head"]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.layer_norm(x, (h,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    def conv1d(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: len(ids)]
    for i in range(config["n_layer"]):
        p = f"transformer.h.{i}"
        q, k, v = conv1d(norm(x, f"{p}.ln_1"), f"{p}.attn.c_attn").split(h, dim=-1)
        every = zip(*(part.split(h // heads, dim=-1) for part in (q, k, v)), strict=True)
        x = x + conv1d(torch.cat([_attend(*head, None) for head in every], -1), f"{p}.attn.c_proj")  # type: ignore[call-arg]
        up = conv1d(norm(x, f"{p}.ln_2"), f"{p}.mlp.c_fc")
        up = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        x = x + conv1d(up, f"{p}.mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w.get("lm_head.weight", w["transformer.wte.weight"]).T


def _llama(config: Config, w: Weights, ids: torch.Tensor) -> torch.Tensor:
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim", config["hidden_size"] // heads)

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config["rms_norm_eps"]) * w[f"{name}.weight"]

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", torch.zeros(()))

    frequency = 1 / config["rope_theta"] ** (torch.arange(0, size, 2) / size)
    angle = torch.outer(torch.arange(len(ids)), frequency).repeat(1, 2)

    def rotated(x: torch.Tensor) -> torch.Tensor:
        half = torch.cat([-x[:, size // 2 :], x[:, : size // 2]], -1)
        return x * angle.cos() + half * angle.sin()

    x = w["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}"
        y = norm(x, f"{p}.input_layernorm")
        q, k, v = (linear(y, f"{p}.self_attn.{name}_proj").split(size, dim=-1) for name in "qkv")
        if config["model_type"] == "qwen3":
            q = [norm(head, f"{p}.self_attn.q_norm") for head in q]
            k = [norm(head, f"{p}.self_attn.k_norm") for head in k]
        done = []
        sees_all = "layer_types" in config and config["layer_types"][i] == "full_attention"
        window = None if sees_all or i < config.get("max_window_layers", 0) else config.get("sliding_window")
        for head in range(heads):
            shared = head // (heads // kv_heads)
            done.append(_attend(rotated(q[head]), rotated(k[shared]), v[shared], window))
        x = x + linear(torch.cat(done, -1), f"{p}.self_attn.o_proj")
        y = norm(x, f"{p}.post_attention_layernorm")
        gate = linear(y, f"{p}.mlp.gate_proj")
        x = x + linear(gate * torch.sigmoid(gate) * linear(y, f"{p}.mlp.up_proj"), f"{p}.mlp.down_proj")
    return norm(x, "model.norm") @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
