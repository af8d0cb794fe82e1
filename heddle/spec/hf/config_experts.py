"""Experts in a Hugging Face `config.json`: how many, how wide, which layers have them, and how tokens choose."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import HeddleError
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
