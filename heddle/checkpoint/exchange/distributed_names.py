"""What Megatron-LM and torchtitan call the parameters of a Llama-like model, and how they order their rows.

Of torchtitan: `torchtitan/models/*/model/state_dict_adapter.py` of release 0.2.2. Of Megatron-LM, whose `torch_dist`
checkpoints are in the same format: `megatron/core/models/gpt` and `megatron/core/transformer` of August 2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import ClassVar

import torch
from torch import Tensor

from heddle.errors import HeddleError
from heddle.spec.model import ModelSpec

Renamed = Iterator[tuple[str, Tensor]]
LAYER = re.compile(r"(?:decoder\.)?layers\.(\d+)\.(.+)")
HF_LAYER = "model.layers.{}.{}"


class KeyNames:
    """The names of one trainer."""

    trainer = ""
    # by the name after `layers.N.`: what Hugging Face calls it
    inner: ClassVar[dict[str, str]]
    outer: ClassVar[dict[str, str]]

    def __init__(self, model: ModelSpec) -> None:
        _check(model, self.trainer)
        self.model = model

    def word(self, key: str) -> str | None:
        """A parameter's name; None: it is not one of the model's."""
        raise NotImplementedError

    def knows(self, word: str) -> bool:
        """Whether it is a name of such models."""
        found = LAYER.fullmatch(word)
        return word in self.outer or (found is not None and found[2] in self.inner)

    def renamed(self, word: str, tensor: Tensor) -> Renamed:
        """It under Hugging Face's name or names, its rows in Hugging Face's order."""
        raise NotImplementedError


def _check(model: ModelSpec, trainer: str) -> None:
    plain = model.norm == "rmsnorm" and model.activation == "swiglu" and model.positions == "rotary"
    usual = model.norm_place == "before" and model.branches == "serial" and model.bias in ("none", "qkv")
    if not plain or not usual or model.expert_counts != {0}:
        raise HeddleError(
            f"Checkpoints of {model.name} by {trainer} are not read.",
            "Names are known for dense models in the style of Llama: RMSNorm, SwiGLU, rotary positions.",
            "Convert it to a Hugging Face folder with the trainer's own tools, then use `heddle import hf`.",
        )


class TorchtitanNames(KeyNames):
    """torchtitan: the model's names stand at the top, beside those of optimizer, dataloader and step."""

    trainer = "torchtitan"
    inner: ClassVar[dict[str, str]] = {
        "attention.wq.weight": "self_attn.q_proj.weight",
        "attention.wk.weight": "self_attn.k_proj.weight",
        "attention.wv.weight": "self_attn.v_proj.weight",
        "attention.wo.weight": "self_attn.o_proj.weight",
        "attention.q_norm.weight": "self_attn.q_norm.weight",
        "attention.k_norm.weight": "self_attn.k_norm.weight",
        "feed_forward.w1.weight": "mlp.gate_proj.weight",
        "feed_forward.w2.weight": "mlp.down_proj.weight",
        "feed_forward.w3.weight": "mlp.up_proj.weight",
        "attention_norm.weight": "input_layernorm.weight",
        "ffn_norm.weight": "post_attention_layernorm.weight",
    }
    outer: ClassVar[dict[str, str]] = {
        "tok_embeddings.weight": "model.embed_tokens.weight",
        "norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    other = ("optimizer", "lr_scheduler", "dataloader", "train_state", "freqs_cis", "rope_cache")

    def word(self, key: str) -> str | None:
        """Names have no prefix, or "model."."""
        return None if key.startswith(self.other) else key.removeprefix("model.")

    def renamed(self, word: str, tensor: Tensor) -> Renamed:
        """Its Llama turns neighbors by rotary positions, Hugging Face's one half against the other."""
        if word in self.outer:
            if not (word == "output.weight" and self.model.tied):
                yield self.outer[word], tensor
            return
        found = LAYER.fullmatch(word)
        assert found is not None
        inner = found[2]
        if inner in ("attention.wq.weight", "attention.wk.weight") and not self.model.qk_norm:
            tensor = halves_of_neighbors(tensor, self.model.head_size)
        yield HF_LAYER.format(found[1], self.inner[inner]), tensor


def halves_of_neighbors(tensor: Tensor, head_size: int) -> Tensor:
    """Rows of every head: those at even places, then those at odd ones."""
    heads = tensor.view(-1, head_size // 2, 2, *tensor.shape[1:])
    return heads.transpose(1, 2).reshape(tensor.shape)


class MegatronNames(KeyNames):
    """Megatron-LM's `torch_dist`: layers by number, or, in older files, all of a kind in one tensor."""

    trainer = "Megatron-LM"
    inner: ClassVar[dict[str, str]] = {
        "self_attention.linear_qkv.weight": "",
        "self_attention.linear_qkv.bias": "",
        "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
        "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
        "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
        "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
        "input_layernorm.weight": "input_layernorm.weight",
        "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
        "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
        "mlp.linear_fc1.weight": "",
        "mlp.linear_fc1.weight_w": "mlp.gate_proj.weight",
        "mlp.linear_fc1.weight_v": "mlp.up_proj.weight",
        "mlp.linear_fc2.weight": "mlp.down_proj.weight",
    }
    outer: ClassVar[dict[str, str]] = {
        "embedding.word_embeddings.weight": "model.embed_tokens.weight",
        "decoder.final_layernorm.weight": "model.norm.weight",
        "output_layer.weight": "lm_head.weight",
    }
    prefixes = ("model.module.module.", "model.module.", "model.")
    stacked = "decoder.layers."

    def word(self, key: str) -> str | None:
        """Names of the model may follow a prefix; states of kernels (`_extra_state`) are none."""
        word = next((key.removeprefix(each) for each in self.prefixes if key.startswith(each)), key)
        ours = word.startswith(("embedding.", "decoder.", "output_layer."))
        return word if ours and not word.endswith("_extra_state") and "rotary_pos_emb" not in word else None

    def knows(self, word: str) -> bool:
        """By number, or stacked."""
        return super().knows(word) or word.removeprefix(self.stacked) in self.inner

    def renamed(self, word: str, tensor: Tensor) -> Renamed:
        """The vocabulary loses its padding, queries, keys and values come apart, and so do gate and up."""
        if word in self.outer:
            rows = tensor if word.startswith("decoder.") else tensor[: self.model.vocab]
            if not (word == "output_layer.weight" and self.model.tied):
                yield self.outer[word], rows
            return
        found = LAYER.fullmatch(word)
        if found is not None:
            yield from self._of_layer(found[1], found[2], tensor)
            return
        for layer in range(tensor.shape[0]):
            yield from self._of_layer(str(layer), word.removeprefix(self.stacked), tensor[layer])

    def _of_layer(self, layer: str, inner: str, tensor: Tensor) -> Renamed:
        if inner.startswith("self_attention.linear_qkv.") and self.inner[inner] == "":
            kind = inner.rpartition(".")[2]
            for name, part in zip("qkv", self._apart(tensor), strict=True):
                yield HF_LAYER.format(layer, f"self_attn.{name}_proj.{kind}"), part
        elif inner == "mlp.linear_fc1.weight":
            gate, up = torch.chunk(tensor, 2)
            yield HF_LAYER.format(layer, "mlp.gate_proj.weight"), gate
            yield HF_LAYER.format(layer, "mlp.up_proj.weight"), up
        else:
            yield HF_LAYER.format(layer, self.inner[inner]), tensor

    def _apart(self, tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For every key/value head: the queries that share it, then its key, then its value."""
        model = self.model
        groups = tensor.view(model.kv_heads, model.group + 2, model.head_size, *tensor.shape[1:])
        rest = tuple(tensor.shape[1:])
        return (
            groups[:, : model.group].reshape(-1, *rest),
            groups[:, model.group].reshape(-1, *rest),
            groups[:, model.group + 1].reshape(-1, *rest),
        )


NAMES: dict[str, Callable[[ModelSpec], KeyNames]] = {"torchtitan": TorchtitanNames, "megatron": MegatronNames}
