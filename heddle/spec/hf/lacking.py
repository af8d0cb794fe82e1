"""What a model that no family describes would need, and Heddle's transformer does not have."""

from __future__ import annotations

from heddle.spec.hf.config_keys import Config

ALIBI = "positions that weigh scores (ALiBi)"
CONVOLUTIONS = "layers that are convolutions"
EXPERTS = "another kind of experts"
LINEAR = "layers of linear attention"
RECURRENT = "recurrent layers"
SINES = "sines as positions"
STATES = "state-space layers"
TWO = "learned positions that begin at 2"

# by a key that tells, the most particular first
BY_KEY = {
    "is_encoder_decoder": "an encoder",
    "vision_config": "images",
    "text_config": "parts beside the text model",
    "kv_lora_rank": "another kind of latent attention",
    "num_local_experts": EXPERTS,
    "num_experts": EXPERTS,
    "n_routed_experts": EXPERTS,
    "moe_num_experts": EXPERTS,
    "state_size": STATES,
    "ssm_cfg": STATES,
    "mamba_d_state": STATES,
    "alibi": ALIBI,
}
# by model_type, where no key does, or where several do
BY_TYPE = {
    "apertus": "the activation xIELU",
    "bamba": STATES,
    "biogpt": TWO,
    "bitnet": "weights of three values, and norms inside branches",
    "bloom": ALIBI,
    "blt": "tokens made of bytes by a model of their own",
    "cohere_compass_text": "positions in three dimensions",
    "cpmant": "learned biases of scores by distance",
    "ctrl": SINES,
    "dbrx": EXPERTS,
    "diffllama": "attention that is a difference of two",
    "doge": "masks that the model makes of its values",
    "dots1": EXPERTS,
    "falcon_h1": STATES,
    "gemma3n_text": "embeddings of every layer",
    "gemma4_assistant": "keys and values of another model",
    "gemma4_text": "embeddings of every layer",
    "gemma4_unified_text": "embeddings of every layer",
    "gpt_neox_japanese": "a bias in the last layer alone",
    "granitemoehybrid": STATES,
    "hrm_text": "layers that are run several times",
    "jamba": STATES,
    "lfm2": CONVOLUTIONS,
    "lfm2_moe": CONVOLUTIONS,
    "lfm3": CONVOLUTIONS,
    "ministral3": "scores that grow with the position",
    "minimax": LINEAR,
    "modernbert-decoder": "a norm of the embedding",
    "moshi": "sound",
    "mpt": ALIBI,
    "nanochat": "a norm of the embedding",
    "nemotron_h": STATES,
    "olmo_hybrid": LINEAR,
    "openai-gpt": "norms of the sum behind each branch",
    "opt": TWO,
    "qwen3_5_text": LINEAR,
    "qwen3_5_moe_text": LINEAR,
    "qwen3_next": LINEAR,
    "recurrent_gemma": RECURRENT,
    "reformer": "attention within buckets",
    "rwkv": RECURRENT,
    "xglm": SINES,
    "xlnet": "attention to two streams",
    "xlstm": RECURRENT,
    "zamba": STATES,
    "zamba2": STATES,
    # encoders that transformers lists as decoders, too
    **dict.fromkeys(
        (
            *("bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert"),
            *("rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "trocr", "xlm", "xlm-roberta"),
            *("xlm-roberta-xl", "xmod"),
        ),
        "attention that looks ahead",
    ),
}


def lacking(config: Config) -> str | None:
    """The feature that keeps a configuration from being read, where it is known."""
    kind = config.get("model_type")
    found = BY_TYPE.get(kind) if isinstance(kind, str) else None
    return found or next((feature for key, feature in BY_KEY.items() if config.get(key)), None)
