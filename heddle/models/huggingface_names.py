"""What Hugging Face calls each of our modules, family by family."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from heddle.spec.huggingface import family_of
from heddle.spec.model import ModelSpec

Modules = dict[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Names:
    """A family's modules by ours; {} is the number of a layer. Query, key and value are three modules, or one.

    Where gate and up are the same module, the gate comes first. A norm whose every head has weights of its own is a
    module per head where its name has a {head}.
    """

    body: str  # before every name but that of the output layer; files of the bare body leave it out
    modules: Modules
    conv1d: bool = False  # the linear layers of the body are GPT-2's Conv1D: [in, out], not [out, in]
    buffers: str = "(?!)"  # what old files hold beside parameters: constants that every model makes anew
    by_group: bool = (
        False  # one module of queries, keys and values has them in our order: head by head, or group by group
    )
    woven: bool = False  # experts in one tensor, [experts, in, out], of which every second column is the gate's
    cores: int = 0  # their one module has queries, values and keys for each of so many parts of the heads (CodeGen)
    per_head: bool = False  # norms of queries and keys are [heads, head size]
    parallel_norms: Modules = field(default_factory=dict)  # modules of models with two norms side by side


def like(base: Names, changes: Modules, **more: Any) -> Names:
    """Names that differ from another family's in some modules."""
    return replace(base, modules=base.modules | changes, **more)


def in_layer(**modules: str | tuple[str, ...]) -> Modules:
    """Modules of a Llama-like layer by ours: attention_norm = "input_layernorm"; qkv and the like are attention's."""
    whole: Modules = {}
    for ours, theirs in modules.items():
        name = ours.replace("__", ".")
        full = [f"model.layers.{{}}.{each}" for each in ([theirs] if isinstance(theirs, str) else theirs)]
        whole[f"layers.{{}}.{name}"] = full[0] if isinstance(theirs, str) else tuple(full)
    return whole


GPT2 = Names(
    body="transformer.",
    modules={
        "embed.tokens": "transformer.wte",
        "embed.positions": "transformer.wpe",
        "layers.{}.attention_norm": "transformer.h.{}.ln_1",
        "layers.{}.attention.qkv": "transformer.h.{}.attn.c_attn",
        "layers.{}.attention.out": "transformer.h.{}.attn.c_proj",
        "layers.{}.mlp_norm": "transformer.h.{}.ln_2",
        "layers.{}.mlp.up": "transformer.h.{}.mlp.c_fc",
        "layers.{}.mlp.down": "transformer.h.{}.mlp.c_proj",
        "norm": "transformer.ln_f",
        "head": "lm_head",
    },
    conv1d=True,
    buffers=r"transformer\.h\.\d+\.attn\.(attention\.)?(bias|masked_bias|embed_positions)",
)
LLAMA = Names(
    body="model.",
    modules={
        "embed.tokens": "model.embed_tokens",
        **in_layer(
            attention="self_attn",  # whose sinks are its own
            attention_norm="input_layernorm",
            attention__qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            attention__q_norm="self_attn.q_norm",
            attention__k_norm="self_attn.k_norm",
            attention__out="self_attn.o_proj",
            mlp_norm="post_attention_layernorm",
            mlp__gate="mlp.gate_proj",
            mlp__up="mlp.up_proj",
            mlp__down="mlp.down_proj",
        ),
        "norm": "model.norm",
        "head": "lm_head",
    },
    buffers=r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
)
GEMMA2 = like(
    LLAMA,
    in_layer(
        attention_after_norm="post_attention_layernorm",
        mlp_norm="pre_feedforward_layernorm",
        mlp_after_norm="post_feedforward_layernorm",
    ),
)
ONE_GATE = in_layer(mlp__gate="mlp.gate_up_proj", mlp__up="mlp.gate_up_proj")
NEOX = {
    "attention.qkv": "attention.query_key_value",
    "attention.out": "attention.dense",
    "mlp.up": "mlp.dense_h_to_4h",
    "mlp.down": "mlp.dense_4h_to_h",
}
GPT_NEOX = Names(
    body="gpt_neox.",
    modules={
        "embed.tokens": "gpt_neox.embed_in",
        "layers.{}.attention_norm": "gpt_neox.layers.{}.input_layernorm",
        "layers.{}.mlp_norm": "gpt_neox.layers.{}.post_attention_layernorm",
        **{f"layers.{{}}.{ours}": f"gpt_neox.layers.{{}}.{theirs}" for ours, theirs in NEOX.items()},
        "norm": "gpt_neox.final_layer_norm",
        "head": "embed_out",
    },
    by_group=True,
    buffers=r"gpt_neox\.(layers\.\d+\.attention\.)?(bias|masked_bias|rotary_emb\.inv_freq)",
)
FALCON = Names(
    body="transformer.",
    modules={
        "embed.tokens": "transformer.word_embeddings",
        "layers.{}.attention_norm": "transformer.h.{}.input_layernorm",
        "layers.{}.mlp_norm": "transformer.h.{}.post_attention_layernorm",
        "layers.{}.attention.qkv": "transformer.h.{}.self_attention.query_key_value",
        "layers.{}.attention.out": "transformer.h.{}.self_attention.dense",
        "layers.{}.mlp.up": "transformer.h.{}.mlp.dense_h_to_4h",
        "layers.{}.mlp.down": "transformer.h.{}.mlp.dense_4h_to_h",
        "norm": "transformer.ln_f",
        "head": "lm_head",
    },
    by_group=True,
    parallel_norms={
        "layers.{}.attention_norm": "transformer.h.{}.ln_attn",
        "layers.{}.mlp_norm": "transformer.h.{}.ln_mlp",
    },
)
QKV_OF_GPT = ("transformer.h.{}.attn.q_proj", "transformer.h.{}.attn.k_proj", "transformer.h.{}.attn.v_proj")
AFTER = in_layer(attention_after_norm="post_attention_layernorm", mlp_after_norm="post_feedforward_layernorm")

# experts one by one, as most files have them, or all in one tensor, gate above up
EXPERTS = in_layer(
    mlp__router="mlp.gate",
    mlp__experts__gate="mlp.experts.{expert}.gate_proj",
    mlp__experts__up="mlp.experts.{expert}.up_proj",
    mlp__experts__down="mlp.experts.{expert}.down_proj",
    mlp__shared__gate="mlp.shared_expert.gate_proj",
    mlp__shared__up="mlp.shared_expert.up_proj",
    mlp__shared__down="mlp.shared_expert.down_proj",
    mlp__shared_gate="mlp.shared_expert_gate",
)
FUSED_EXPERTS = in_layer(
    mlp__router="mlp.gate",
    mlp__experts__gate="mlp.experts.gate_up_proj",
    mlp__experts__up="mlp.experts.gate_up_proj",
    mlp__experts__down="mlp.experts.down_proj",
)
DEEPSEEK = like(
    LLAMA,
    EXPERTS
    | in_layer(
        attention__down=("self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"),
        attention__q_latent_norm="self_attn.q_a_layernorm",
        attention__kv_latent_norm="self_attn.kv_a_layernorm",
        attention__q_up="self_attn.q_b_proj",
        attention__kv_up="self_attn.kv_b_proj",
        mlp__router__choice_bias="mlp.gate.e_score_correction_bias",
        mlp__shared__gate="mlp.shared_experts.gate_proj",
        mlp__shared__up="mlp.shared_experts.up_proj",
        mlp__shared__down="mlp.shared_experts.down_proj",
    ),
)
GPT_OSS = like(
    LLAMA,
    in_layer(
        mlp__router="mlp.router",
        mlp__experts__gate="mlp.experts.gate_up_proj",
        mlp__experts__up="mlp.experts.gate_up_proj",
        mlp__experts__down="mlp.experts.down_proj",
        mlp__experts__gate_bias="mlp.experts.gate_up_proj_bias",
        mlp__experts__up_bias="mlp.experts.gate_up_proj_bias",
        mlp__experts__down_bias="mlp.experts.down_proj_bias",
    ),
    woven=True,
)
FUSED_KEYS = re.compile(r"(model\.)?layers\.\d+\.mlp\.experts\.(gate_up_proj|down_proj)")

# whoever is not here has Llama's
NAMES: dict[str, Names] = {
    "gpt2": GPT2,
    "gpt_bigcode": replace(GPT2, conv1d=False, by_group=True),
    "gpt_neo": like(
        replace(GPT2, conv1d=False),
        {
            "layers.{}.attention.qkv": (
                "transformer.h.{}.attn.attention.q_proj",
                "transformer.h.{}.attn.attention.k_proj",
                "transformer.h.{}.attn.attention.v_proj",
            ),
            "layers.{}.attention.out": "transformer.h.{}.attn.attention.out_proj",
        },
    ),
    "gptj": like(
        replace(GPT2, conv1d=False),
        {
            "layers.{}.attention.qkv": QKV_OF_GPT,
            "layers.{}.attention.out": "transformer.h.{}.attn.out_proj",
            "layers.{}.mlp.up": "transformer.h.{}.mlp.fc_in",
            "layers.{}.mlp.down": "transformer.h.{}.mlp.fc_out",
        },
    ),
    "codegen": like(
        replace(GPT2, conv1d=False),
        {
            "layers.{}.attention.qkv": "transformer.h.{}.attn.qkv_proj",
            "layers.{}.attention.out": "transformer.h.{}.attn.out_proj",
            "layers.{}.mlp.up": "transformer.h.{}.mlp.fc_in",
            "layers.{}.mlp.down": "transformer.h.{}.mlp.fc_out",
        },
        cores=4,
    ),
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA2,
    "vaultgemma": GEMMA2,
    "olmo2": like(LLAMA, AFTER),
    "olmo3": like(LLAMA, AFTER),
    "exaone4": like(LLAMA, AFTER),
    "phi": like(
        LLAMA,
        in_layer(
            attention__q_norm="self_attn.q_layernorm",
            attention__k_norm="self_attn.k_layernorm",
            attention__out="self_attn.dense",
            mlp__up="mlp.fc1",
            mlp__down="mlp.fc2",
        )
        | {"norm": "model.final_layernorm"},
    ),
    "phi3": like(LLAMA, in_layer(attention__qkv="self_attn.qkv_proj") | ONE_GATE),
    "stablelm": like(
        LLAMA,
        in_layer(
            attention__q_norm="self_attn.q_layernorm.norms.{head}",
            attention__k_norm="self_attn.k_layernorm.norms.{head}",
        ),
    ),
    "starcoder2": like(LLAMA, in_layer(mlp__up="mlp.c_fc", mlp__down="mlp.c_proj")),
    "cohere": replace(LLAMA, per_head=True),
    "gpt_neox": GPT_NEOX,
    "falcon": FALCON,
    "glm": like(LLAMA, ONE_GATE),
    "glm4": like(
        LLAMA,
        ONE_GATE | in_layer(attention_after_norm="post_self_attn_layernorm", mlp_after_norm="post_mlp_layernorm"),
    ),
    "persimmon": like(
        LLAMA,
        in_layer(
            attention__qkv="self_attn.query_key_value",
            attention__out="self_attn.dense",
            attention__q_norm="self_attn.q_layernorm",
            attention__k_norm="self_attn.k_layernorm",
            mlp__up="mlp.dense_h_to_4h",
            mlp__down="mlp.dense_4h_to_h",
        )
        | {"norm": "model.final_layernorm"},
        by_group=True,
    ),
    "mixtral": like(
        LLAMA,
        in_layer(
            mlp__router="block_sparse_moe.gate",
            mlp__experts__gate="block_sparse_moe.experts.{expert}.w1",
            mlp__experts__up="block_sparse_moe.experts.{expert}.w3",
            mlp__experts__down="block_sparse_moe.experts.{expert}.w2",
        ),
    ),
    "qwen2_moe": like(LLAMA, EXPERTS),
    "qwen3_moe": like(LLAMA, EXPERTS),
    "olmoe": like(LLAMA, EXPERTS),
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "gpt_oss": GPT_OSS,
    "hyperclovax": like(LLAMA, in_layer(attention_after_norm="post_norm1", mlp_after_norm="post_norm2")),
    "hunyuan_v1_dense": like(
        LLAMA, in_layer(attention__q_norm="self_attn.query_layernorm", attention__k_norm="self_attn.key_layernorm")
    ),
}


def names_of(spec: ModelSpec) -> Names:
    """The names of a model's family."""
    names = NAMES.get(family_of(spec), LLAMA)
    if spec.kv_latent and not spec.q_latent:
        names = like(names, in_layer(attention__q_up="self_attn.q_proj"))
    if names.parallel_norms and spec.branches == "parallel-norms":
        return like(names, names.parallel_norms)
    return names


def find(name: str, held: Collection[str], names: Names) -> str | None:
    """The name under which a file holds a tensor: with what stands before the body's names, or without."""
    options = (name, name.removeprefix(names.body))
    return next((option for option in options if option in held), None)


def is_buffer(name: str, names: Names) -> bool:
    """Whether a tensor of a file is a constant that need not be read."""
    return any(re.fullmatch(names.buffers, option) for option in (name, names.body + name))
