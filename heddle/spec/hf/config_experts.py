"""Experts in a Hugging Face `config.json`: how many, how wide, which layers have them, and how tokens choose."""

from __future__ import annotations

import re
from dataclasses import dataclass

from heddle.errors import HeddleError, nearest
from heddle.spec.experts import Router
from heddle.spec.hf.config_keys import Config, Fields, as_json, get
from heddle.spec.model import MOST_LAYERS, ModelSpec


@dataclass(frozen=True)
class HasExperts:
    """Layers with experts, in the keys of one family; the balance loss is a choice of training, and not read."""

    keys: tuple[str, ...]  # of the number of experts: the first that is there counts, and is written
    experts: int  # where the key is absent, as are the others
    top_k: int
    width: tuple[str, int] | None = None  # of an expert: its key and default; None: as an MLP's
    shared: tuple[str, int] | None = None  # of the shared expert, which has a gate
    normalized: bool | None = None  # None: as `norm_topk_prob` says
    mixed: bool = False  # some layers may have an MLP
    states = ("experts", "top_k", "expert_ffn")

    def read(self, config: Config, known: Fields) -> Fields:
        refuse_capacity(config)
        key = next((key for key in self.keys if config.get(key) is not None), self.keys[0])
        count = get(config, key, int, self.experts)
        found: Fields = {
            "experts": self._by_layer(config, known["layers"], count) if self.mixed else count,
            "top_k": get(config, "num_experts_per_tok", int, self.top_k),
            "expert_ffn": get(config, self.width[0], int, self.width[1]) if self.width else known["ffn"],
            "router_normalized": get(config, "norm_topk_prob", bool, False)
            if self.normalized is None
            else self.normalized,
        }
        if not count or found["experts"] == (0,) * known["layers"]:
            raise HeddleError(
                f"No layer of this {config.get('model_type')} has experts.",
                "Its family is a mixture of experts.",
                "As a dense model it is of another family.",
            )
        if self.shared:
            key, default = self.shared
            found |= {"shared_ffn": get(config, key, int, default), "shared_gate": True}
        return found

    @staticmethod
    def _by_layer(config: Config, layers: int, count: int) -> tuple[int, ...] | int:
        listed, step = config.get("mlp_only_layers") or [], get(config, "decoder_sparse_step", int, 1)
        if not isinstance(listed, list) or not all(type(layer) is int for layer in listed) or step < 1:
            raise HeddleError(
                f"'mlp_only_layers' = {as_json(listed)} with 'decoder_sparse_step' = {step} is not known.",
                "They say which layers have an MLP instead of experts: those listed, and all but every so manieth.",
                "The model's own config.json has it right.",
            )
        if layers > MOST_LAYERS:  # which the model then refuses
            return count
        return tuple(0 if layer in listed or (layer + 1) % step else count for layer in range(layers))

    def write(self, spec: ModelSpec) -> Config:
        counts = [spec.layer(index).experts for index in range(spec.layers)]
        keys: Config = {self.keys[0]: max(counts), "num_experts_per_tok": spec.top_k}
        keys |= {self.width[0]: spec.expert_ffn} if self.width else {"intermediate_size": spec.expert_ffn}
        keys |= {"norm_topk_prob": spec.router_normalized} if self.normalized is None else {}
        keys |= {self.shared[0]: spec.shared_ffn} if self.shared else {}
        if self.mixed:
            dense = [layer for layer, count in enumerate(counts) if not count]
            keys |= {"decoder_sparse_step": 1, "mlp_only_layers": dense}
        return keys


CAPACITY = re.compile(r".*capacity.*|.*drop_tokens.*|.*token_drop.*")


def refuse_capacity(config: Config) -> None:
    """Refuse limits on the tokens of an expert: other frameworks then drop tokens, or pad."""
    for key, value in config.items():
        if CAPACITY.fullmatch(key) and value not in (None, False):
            raise HeddleError(
                f"'{key}' = {as_json(value)} is not known.",
                "Heddle's experts take all tokens that choose them: none is dropped, and so there is no capacity.",
                "Remove it, if the model was not trained to lose tokens.",
            )


@dataclass(frozen=True)
class DeepSeekExperts(HasExperts):
    """DeepSeek's: the first layers are dense, shared experts have no gate, experts are in groups."""

    router: Router = "softmax"
    groups: tuple[int, int] | None = None  # and those that a token uses, where the keys are absent
    scale: float = 1.0

    def read(self, config: Config, known: Fields) -> Fields:
        found = super().read(config, known)
        first = get(config, "first_k_dense_replace", int, 3 if self.router == "sigmoid" else 0)
        if not 0 <= first < known["layers"]:
            raise HeddleError(
                f"'first_k_dense_replace' = {first} of {known['layers']} layers leaves none with experts.",
                "Its family is a mixture of experts.",
                "As a dense model it is of another family.",
            )
        dense = min(first, MOST_LAYERS)
        shared = get(config, "n_shared_experts", int, 1 if self.router == "sigmoid" else 2)
        found |= {
            "experts": (0,) * dense + (found["experts"],) * (min(known["layers"], MOST_LAYERS) - dense),
            "shared_ffn": shared * found["expert_ffn"],
            "router": self.router,
            "router_scale": get(config, "routed_scaling_factor", float, self.scale),
        }
        method = get(config, "topk_method", str, "greedy" if self.router == "softmax" else "noaux_tc")
        known_methods = ("greedy", "group_limited_greedy") if self.router == "softmax" else ("noaux_tc",)
        if method not in known_methods:
            raise HeddleError(
                f"'topk_method' = {as_json(method)} is not known.",
                "It says how tokens choose experts.",
                nearest(method, known_methods),
            )
        if method != "greedy":
            default = self.groups or (None, None)
            found |= {"router_groups": get(config, "n_group", int, default[0])}
            found |= {"router_top_groups": get(config, "topk_group", int, default[1])}
        return found

    def write(self, spec: ModelSpec) -> Config:
        counts = [spec.layer(index).experts for index in range(spec.layers)]
        keys = super().write(spec) | {
            "first_k_dense_replace": next((at for at, count in enumerate(counts) if count), 0),
            "moe_layer_freq": 1,
            "n_shared_experts": spec.shared_ffn // (spec.expert_ffn or 1),
            "routed_scaling_factor": spec.router_scale,
        }
        if self.router == "sigmoid":
            groups = spec.router_groups or 1, spec.router_top_groups or 1
            return keys | {"topk_method": "noaux_tc", "n_group": groups[0], "topk_group": groups[1]}
        if not spec.router_groups:
            return keys | {"topk_method": "greedy"}
        groups = spec.router_groups, spec.router_top_groups
        return keys | {"topk_method": "group_limited_greedy", "n_group": groups[0], "topk_group": groups[1]}


class Latent:
    """The sizes of latent attention."""

    states = ("kv_latent", "q_latent", "value_size", "head_size", "rotary_size")

    def read(self, config: Config, known: Fields) -> Fields:
        turning = get(config, "qk_rope_head_dim", int, 64)
        absent = 0 if "q_lora_rank" in config else 1536
        latent = get(config, "kv_lora_rank", int, 512)
        if not latent:
            raise HeddleError(
                "'kv_lora_rank' = 0 is not known.",
                "Its family makes keys and values of a latent vector.",
                "The model's own config.json has it right.",
            )
        return {
            "kv_heads": get(config, "num_key_value_heads", int, known["heads"]),
            "head_size": turning + get(config, "qk_nope_head_dim", int, 128),
            "rotary_size": turning,
            "value_size": get(config, "v_head_dim", int, 128),
            "kv_latent": latent,
            "q_latent": get(config, "q_lora_rank", int, absent),
        }

    def write(self, spec: ModelSpec) -> Config:
        return {
            "num_key_value_heads": spec.kv_heads,
            "qk_rope_head_dim": spec.rotary_size,
            "qk_nope_head_dim": spec.head_size - spec.rotary_size,
            "v_head_dim": spec.valued,
            "kv_lora_rank": spec.kv_latent,
            "q_lora_rank": spec.q_latent or None,
        }
