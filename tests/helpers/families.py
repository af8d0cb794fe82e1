"""Small models of every family, as arguments of transformers' configuration classes: plain ones and odd ones."""

from __future__ import annotations

from typing import Any

Keys = dict[str, Any]

SIZES: Keys = {
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 131,
    "max_position_embeddings": 64,
    "pad_token_id": None,  # whose embedding transformers would not train
}
GPT: Keys = {"n_embd": 48, "n_layer": 4, "n_head": 4, "vocab_size": 131, "n_positions": 64}
HEAD, WINDOW = {"head_dim": 20}, {"sliding_window": 7}
SCALES: Keys = {
    "embedding_multiplier": 3.0,
    "logits_scaling": 7.0,
    "residual_multiplier": 0.3,
    "attention_multiplier": 0.2,
}
FULL, SLIDING = "full_attention", "sliding_attention"
YARN: Keys = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e4}
PLAIN: Keys = {"rope_type": "default", "rope_theta": 1e3}

MIXTURE: Keys = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24}

LATENT: Keys = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "q_lora_rank": 40,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 14,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
}
DEEP_YARN: Keys = YARN | {"mscale": 0.7, "mscale_all_dim": 1.2}

PLAIN_MODELS: dict[str, Keys] = {
    "gpt2": GPT,
    "llama": SIZES,
    "mistral": SIZES | WINDOW,
    "qwen2": SIZES,
    "qwen3": SIZES | HEAD,
    "gemma": SIZES | HEAD,
    "gemma2": SIZES
    | HEAD
    | WINDOW
    | {"query_pre_attn_scalar": 20, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 9.0},
    "gemma3_text": SIZES | HEAD | WINDOW | {"query_pre_attn_scalar": 24, "num_hidden_layers": 7},
    "vaultgemma": SIZES | HEAD | WINDOW | {"query_pre_attn_scalar": 20},
    "phi": SIZES,
    "phi3": SIZES,
    "olmo": SIZES,
    "olmo2": SIZES,
    "olmo3": SIZES | WINDOW,
    "smollm3": SIZES,
    "granite": SIZES | SCALES,
    "hyperclovax": SIZES | SCALES | HEAD,
    "granite_swa": SIZES | SCALES | WINDOW | {"layer_rope_theta": [1e4, 0.0, 1e3, 1e4]},
    "gpt_neox": SIZES,
    "stablelm": SIZES,
    "starcoder2": SIZES,
    "cohere": SIZES,
    "cohere2": SIZES | WINDOW,
    "falcon": {
        "hidden_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "vocab_size": 131,
        "ffn_hidden_size": 100,
        "multi_query": False,
    },
    "gptj": GPT | {"rotary_dim": 6},
    "codegen": GPT | {"rotary_dim": 6, "n_head": 8},
    "gpt_bigcode": GPT | {"multi_query": False},
    "gpt_neo": {
        "hidden_size": 48,
        "num_layers": 4,
        "attention_types": [[["global", "local"], 2]],
        "num_heads": 4,
        "vocab_size": 131,
        "max_position_embeddings": 64,
        "window_size": 7,
    },
    "glm": SIZES | HEAD,
    "glm4": SIZES | HEAD,
    "exaone4": SIZES | WINDOW,
    "nemotron": SIZES | {"head_dim": 16},
    "arcee": SIZES,
    "jais2": SIZES | HEAD,
    "persimmon": SIZES,
    "helium": SIZES | {"head_dim": 16},
    "ernie4_5": SIZES | HEAD,
    "hunyuan_v1_dense": SIZES | HEAD,
    "seed_oss": SIZES | HEAD,
    "internlm3": SIZES | {"head_dim": 16},
    "iquestcoder": SIZES | {"head_dim": 16},
    "ministral": SIZES | HEAD | WINDOW,
    "cwm": SIZES | HEAD | WINDOW,
    "mixtral": SIZES | {"num_local_experts": 6},
    "qwen2_moe": SIZES | MIXTURE | {"shared_expert_intermediate_size": 40},
    "qwen3_moe": SIZES | HEAD | MIXTURE,
    "olmoe": SIZES | {"num_experts": 8, "num_experts_per_tok": 3},
    "deepseek_v2": SIZES | LATENT | {"q_lora_rank": None},
    "deepseek_v3": SIZES | LATENT | {"n_group": 4, "topk_group": 2, "rope_parameters": DEEP_YARN},
    "gpt_oss": SIZES | HEAD | WINDOW | {"num_local_experts": 6, "num_experts_per_tok": 3, "swiglu_limit": 3.0},
}
ODD_CHANGES: dict[str, Keys] = {
    "llama": {
        "attention_bias": True,
        "hidden_act": "gelu",
        "rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 1.2, "truncate": False},
    },
    "qwen2": {
        "rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 1e4},
        "max_position_embeddings": 16,
        "use_sliding_window": True,
        "sliding_window": 5,
        "max_window_layers": 2,
    },
    "gemma": {"num_key_value_heads": 4, "attention_bias": True, "hidden_act": "gelu"},
    "gemma2": {"attn_logit_softcapping": None, "final_logit_softcapping": None, "num_key_value_heads": 4},
    "gemma3_text": {
        "rope_parameters": {FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5}, SLIDING: PLAIN},
        "tie_word_embeddings": False,
    },
    "phi": {"qk_layernorm": True, "tie_word_embeddings": True},
    "phi3": {
        "original_max_position_embeddings": 16,
        "partial_rotary_factor": 0.5,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.5, 2.0, 2.0], "long_factor": [2.0, 3.0, 4.0, 5.0]},
    },
    "olmo": {"attention_bias": True},
    "olmo2": {"attention_bias": True, "rope_parameters": YARN},
    "olmo3": {"rope_parameters": {FULL: YARN, SLIDING: PLAIN}},
    "smollm3": {
        "attention_bias": True,
        "mlp_bias": True,
        "no_rope_layers": [0, 1, 1, 0],
        "use_sliding_window": True,
        "sliding_window": 5,
        "tie_word_embeddings": False,
    },
    "granite": {"attention_bias": True, "logits_scaling": 49.0, "tie_word_embeddings": True},
    "hyperclovax": {"use_post_norm": False, "attention_multiplier": None, "mlp_bias": True},
    "internlm3": {
        "attention_bias": True,
        "mlp_bias": True,
        "rope_parameters": {"rope_type": "dynamic", "factor": 6.0, "rope_theta": 1e4},
    },
    "gpt_neox": {
        "use_parallel_residual": False,
        "attention_bias": False,
        "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 900.0, "partial_rotary_factor": 0.5},
    },
    "stablelm": {"use_qkv_bias": True, "qk_layernorm": True, "use_parallel_residual": True},
    "starcoder2": {"use_bias": False, "sliding_window": 6, "tie_word_embeddings": False, "hidden_act": "relu"},
    "cohere": {"use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": False},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True},
    "gptj": {"n_inner": 78, "rotary_dim": 12, "tie_word_embeddings": True},
    "codegen": {"n_inner": 78, "rotary_dim": 4, "tie_word_embeddings": True},
    "exaone4": {"sliding_window": None, "layer_types": [FULL] * 4},
    "nemotron": {"attention_bias": True, "mlp_bias": True},
    "helium": {"attention_bias": True, "mlp_bias": True},
    "ernie4_5": {"use_bias": True},
    "seed_oss": {"attention_out_bias": True, "mlp_bias": True},
    "hunyuan_v1_dense": {"attention_bias": True, "tie_word_embeddings": True},
    "mixtral": {"num_experts_per_tok": 1, "sliding_window": 7, "tie_word_embeddings": True},
    "qwen2_moe": {"mlp_only_layers": [1], "norm_topk_prob": True, "qkv_bias": False},
    "qwen3_moe": {"decoder_sparse_step": 2, "norm_topk_prob": True, "attention_bias": True},
    "olmoe": {"norm_topk_prob": True, "attention_bias": True},
    "deepseek_v2": {
        "q_lora_rank": 40,
        "topk_method": "group_limited_greedy",
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 1.6,
        "attention_bias": True,
        "rope_parameters": DEEP_YARN,
    },
    "deepseek_v3": {
        "q_lora_rank": None,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": False,
        "rope_interleave": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e3},
        "first_k_dense_replace": 0,
        "tie_word_embeddings": True,
        "attention_bias": True,
    },
    "gpt_oss": {
        "attention_bias": False,
        "swiglu_alpha": 1.3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e3},
        "layer_types": [FULL, SLIDING, SLIDING, FULL],
    },
}
# models with a single key/value head, which no tensor-parallel ranks can share
SINGLE: dict[str, Keys] = {
    "llama-one": SIZES | {"num_key_value_heads": 1},
    "falcon-one": PLAIN_MODELS["falcon"] | {"multi_query": True},
    "gpt_bigcode-one": GPT | {"multi_query": True},
}
MODELS = {
    **PLAIN_MODELS,
    **{f"{name}-odd": PLAIN_MODELS[name] | changes for name, changes in ODD_CHANGES.items()},
    **SINGLE,
}


def family_of(model: str) -> str:
    """The model_type of one of these."""
    return model.removesuffix("-odd").removesuffix("-one")
