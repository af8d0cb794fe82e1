"""Hugging Face config.json to ModelSpec and back: public files, defaults, refusals and the round trip."""

import copy
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.spec import ModelSpec, RopeScaling
from heddle.spec.hf.config_write import write_config
from heddle.spec.huggingface import FAMILIES, read_config
from heddle.spec.presets import model_presets
from heddle.spec.shorthand import model_from_table

# The files as they are published, keys without meaning for the arithmetic included.
GPT2: dict[str, Any] = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}
LLAMA_2_70B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 8192,
    "initializer_range": 0.02,
    "intermediate_size": 28672,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "pad_token_id": 0,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "transformers_version": "4.32.0.dev0",
    "use_cache": True,
    "vocab_size": 32000,
}
LLAMA_32_1B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 128256,
}
MISTRAL: dict[str, Any] = {
    "architectures": ["MistralForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 32000,
}
QWEN2: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 896,
    "initializer_range": 0.02,
    "intermediate_size": 4864,
    "max_position_embeddings": 131072,
    "max_window_layers": 24,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 131072,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
PUBLIC = [
    (GPT2, "gpt2", {"dropout": 0.1}),  # the preset trains without dropout
    (LLAMA_2_70B, "llama-2-70b", {}),
    (LLAMA_32_1B, "llama-3.2-1b", {}),
    (MISTRAL, "mistral-7b", {}),
    (QWEN2, "qwen2-0.5b", {}),
    (QWEN3, "qwen3-0.6b", {}),
]
LLAMA_STYLE = [LLAMA_2_70B, MISTRAL, QWEN2, QWEN3]


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


@pytest.mark.parametrize(("config", "preset", "apart"), PUBLIC)
def test_public_files_give_the_presets(config: dict[str, Any], preset: str, apart: dict[str, Any]) -> None:
    before = copy.deepcopy(config)
    expected = replace(model_from_table({"preset": preset}), name=config["model_type"], **apart)
    assert read_config(config) == expected
    assert config == before  # reading changes nothing


def test_the_name_is_the_files_own() -> None:
    assert read_config(LLAMA_2_70B).name == "llama"
    assert read_config(LLAMA_2_70B | {"_name_or_path": ""}).name == "llama"
    assert read_config(LLAMA_2_70B | {"_name_or_path": "meta-llama/Llama-2-70b-hf"}).name == "meta-llama/Llama-2-70b-hf"


@pytest.mark.parametrize(
    ("config", "key", "field", "default"),
    [
        (GPT2, "tie_word_embeddings", "tied", True),
        (GPT2, "layer_norm_epsilon", "norm_epsilon", 1e-5),
        (GPT2, "n_inner", "ffn", 4 * 768),
        (GPT2, "activation_function", "activation", "gelu"),
        *((config, "tie_word_embeddings", "tied", False) for config in LLAMA_STYLE),
        *((config, "rms_norm_eps", "norm_epsilon", 1e-6) for config in LLAMA_STYLE),
        *((config, "rope_theta", "rope_theta", 10_000.0) for config in LLAMA_STYLE),
        (LLAMA_2_70B, "num_key_value_heads", "kv_heads", 64),
        (MISTRAL, "num_key_value_heads", "kv_heads", 8),
        (QWEN2 | {"num_attention_heads": 64}, "num_key_value_heads", "kv_heads", 32),
        (QWEN3 | {"num_attention_heads": 64}, "num_key_value_heads", "kv_heads", 32),
        (LLAMA_32_1B | {"head_dim": 32}, "head_dim", "head_size", 64),
        (MISTRAL | {"head_dim": 32}, "head_dim", "head_size", 128),
        (QWEN2 | {"head_dim": 32}, "head_dim", "head_size", 64),
        (QWEN3 | {"head_dim": 32}, "head_dim", "head_size", 128),  # not hidden / heads, which is 64
        (MISTRAL | {"sliding_window": 7}, "sliding_window", "window", 4096),
        (QWEN2, "use_sliding_window", "window", None),
        (QWEN3, "use_sliding_window", "window", None),
    ],
)
def test_absent_keys_take_the_familys_default(config: dict[str, Any], key: str, field: str, default: Any) -> None:
    assert getattr(read_config(without(config, key)), field) == default


@pytest.mark.parametrize("config", LLAMA_STYLE)
def test_null_kv_heads_are_as_many_as_heads(config: dict[str, Any]) -> None:
    assert read_config(config | {"num_key_value_heads": None}).kv_heads == config["num_attention_heads"]


def test_explicit_values_are_taken() -> None:
    assert read_config(GPT2 | {"n_inner": None}).ffn == 3072
    assert read_config(GPT2 | {"n_inner": 1000}).ffn == 1000
    assert read_config(GPT2 | {"tie_word_embeddings": False}).tied is False
    assert read_config(LLAMA_2_70B | {"tie_word_embeddings": True}).tied is True
    assert read_config(MISTRAL | {"head_dim": 160}).head_size == 160  # Mistral Nemo's kind: not hidden / heads
    assert read_config(MISTRAL | {"sliding_window": None}).window is None
    assert read_config(LLAMA_2_70B | {"attention_bias": True, "mlp_bias": True}).bias == "all"


# --- Rotary positions, in the form of version 4 and of version 5 of transformers --------------------------

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
PLAIN = without(MISTRAL, "rope_theta")


@pytest.mark.parametrize(
    ("keys", "theta"),
    [
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_theta": 500000}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": None}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": {"type": "default"}}, 5e5),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, 5e5),
        ({"rope_parameters": {"rope_theta": 5e5}}, 5e5),
        ({"rope_parameters": {"rope_type": "default"}}, 1e4),
        ({"rope_parameters": {"rope_type": "default"}, "rope_theta": 5e5}, 5e5),
        ({"rope_parameters": {"rope_theta": 5e5}, "rope_theta": None}, 5e5),
        ({"rope_parameters": {"rope_theta": 5e5}, "rope_theta": 1e6}, 5e5),  # the inner one has precedence
        ({"rope_parameters": None, "rope_scaling": {}}, 1e4),
        ({"partial_rotary_factor": 1.0}, 1e4),
    ],
)
def test_rotary_base(keys: dict[str, Any], theta: float) -> None:
    spec = read_config(PLAIN | keys)
    assert (spec.rope_theta, spec.rope_scaling) == (theta, None)


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_theta": 5e5, "rope_scaling": LLAMA3},
        {"rope_theta": 5e5, "rope_scaling": without(LLAMA3, "rope_type") | {"type": "llama3"}},
        {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}},
        {"rope_scaling": LLAMA3 | {"rope_theta": 5e5, "factor": 8}},
        {
            "rope_scaling": LLAMA3 | {"rope_theta": 5e5},
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
    ],
)
def test_llama3_scaling(keys: dict[str, Any]) -> None:
    spec = read_config(PLAIN | keys)
    assert (spec.rope_theta, spec.rope_scaling) == (5e5, RopeScaling(8.0, 1.0, 4.0, 8192))


@pytest.mark.parametrize("kind", ["ntk", "su", "mrope", "proportional", "llama4"])
def test_other_scalings_are_refused_by_name(kind: str) -> None:
    for key in ("rope_scaling", "rope_parameters"):
        with pytest.raises(HeddleError, match=f"type '{kind}' are not known") as caught:
            read_config(PLAIN | {key: {"rope_type": kind, "factor": 2.0}})
        assert "default, dynamic, linear, llama3, longrope, yarn." in caught.value.hint


@pytest.mark.parametrize("key", without(LLAMA3, "rope_type"))
def test_llama3_scaling_needs_all_its_keys(key: str) -> None:
    with pytest.raises(HeddleError, match=f"lacks '{key}'"):
        read_config(PLAIN | {"rope_scaling": without(LLAMA3, key)})


@pytest.mark.parametrize(
    "rope", [{"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e6}}, "llama3", [1]]
)
def test_rotary_parameters_are_one_flat_object(rope: Any) -> None:
    with pytest.raises(HeddleError, match="not one flat object"):
        read_config(PLAIN | {"rope_parameters": rope})


# --- Windows ----------------------------------------------------------------------------------------------

SLIDING = {"use_sliding_window": True, "sliding_window": 512}


@pytest.mark.parametrize("config", [QWEN2, QWEN3])
def test_qwens_window_begins_at_a_layer(config: dict[str, Any]) -> None:
    layers = config["num_hidden_layers"]
    assert read_config(config | SLIDING | {"max_window_layers": 0}).window == 512
    assert read_config(config | SLIDING | {"max_window_layers": layers}).window is None
    assert read_config(config | SLIDING | {"max_window_layers": layers + 9}).window is None
    assert read_config(config | SLIDING | {"sliding_window": None, "max_window_layers": 0}).window is None
    assert read_config(without(config, "max_window_layers") | SLIDING).window is None  # 28 where absent
    late = read_config(config | SLIDING | {"max_window_layers": layers - 1})
    assert late.window == (*[0] * (layers - 1), 512)
    written = write_config(late)
    assert (written["max_window_layers"], written["sliding_window"]) == (layers - 1, 512)
    assert read_config(written) == read_config(without(written, "layer_types")) == late  # as older versions read it
    assert read_config(config | SLIDING | {"max_window_layers": layers - 1, "use_sliding_window": False}).window is None


def test_layer_types_have_precedence() -> None:
    full, sliding = ["full_attention"] * 28, ["sliding_attention"] * 28
    assert read_config(QWEN3 | SLIDING | {"layer_types": full, "max_window_layers": 0}).window is None
    assert read_config(QWEN3 | SLIDING | {"layer_types": sliding}).window == 512
    assert read_config(QWEN3 | {"layer_types": full}).window is None
    mixed = read_config(QWEN3 | SLIDING | {"layer_types": [*full[:4], *sliding[:20], *full[:4]]})
    assert mixed.window == (*[0] * 4, *[512] * 20, *[0] * 4)
    assert write_config(mixed)["layer_types"] == [*full[:4], *sliding[:20], *full[:4]]
    assert read_config(write_config(mixed)) == mixed
    for wrong in (full[:14], [*full[:27], "chunked_attention"]):
        with pytest.raises(HeddleError, match="layer_types"):
            read_config(QWEN3 | SLIDING | {"layer_types": wrong})
    with pytest.raises(HeddleError, match=r"^4 of the 32 layers") as caught:
        read_config(MISTRAL | {"layer_types": full + sliding[:4]})
    assert "layer_types" in caught.value.hint


# --- Refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["gpt_neoxx", "llama4", "", None, 3, ["llama"]])
def test_other_families_are_refused(model_type: Any) -> None:
    with pytest.raises(HeddleError, match=re.escape(f"model_type = {model_type!r} is not known")) as caught:
        read_config({"model_type": model_type})
    assert ", ".join(sorted(FAMILIES)[:10]) in caught.value.hint


def test_a_file_without_a_family_is_refused() -> None:
    with pytest.raises(HeddleError, match="model_type = None"):
        read_config(without(LLAMA_2_70B, "model_type"))


def test_the_nearest_family_is_named() -> None:
    with pytest.raises(HeddleError) as caught:
        read_config({"model_type": "mistrall"})
    assert "Did you mean 'mistral'?" in caught.value.hint


@pytest.mark.parametrize(
    ("config", "key"),
    [
        *((GPT2, key) for key in ("n_layer", "n_embd", "n_head", "n_positions", "vocab_size")),
        *(
            (config, key)
            for config in LLAMA_STYLE
            for key in (
                "num_hidden_layers",
                "hidden_size",
                "num_attention_heads",
                "intermediate_size",
                "vocab_size",
            )
        ),
        *((config, "max_position_embeddings") for config in LLAMA_STYLE),
    ],
)
def test_what_fixes_the_shape_must_be_there(config: dict[str, Any], key: str) -> None:
    for broken in (without(config, key), config | {key: None}):
        with pytest.raises(HeddleError, match=f"lacks '{key}'"):
            read_config(broken)


@pytest.mark.parametrize(
    ("config", "key", "value", "expected"),
    [
        (GPT2, "n_layer", "12", "a whole number"),
        (GPT2, "n_layer", 12.0, "a whole number"),
        (GPT2, "n_layer", True, "a whole number"),
        (GPT2, "resid_pdrop", "0.1", "a number"),
        (GPT2, "tie_word_embeddings", 1, "true or false"),
        (MISTRAL, "rope_theta", [10000.0], "a number"),
        (MISTRAL, "sliding_window", "4096", "a whole number"),
        (QWEN2, "use_sliding_window", "no", "true or false"),
        (QWEN3, "_name_or_path", 3, "a string"),
    ],
)
def test_values_have_their_type(config: dict[str, Any], key: str, value: Any, expected: str) -> None:
    with pytest.raises(HeddleError, match=f"'{key}' = .* has the wrong type") as caught:
        read_config(config | {key: value})
    assert caught.value.why == f"It must be {expected}."


@pytest.mark.parametrize(
    ("config", "key", "value", "known"),
    [
        (GPT2, "scale_attn_weights", False, "true"),
        (GPT2, "scale_attn_by_inverse_layer_idx", True, "false"),
        (GPT2, "add_cross_attention", True, "false"),
        *((config, "attention_dropout", 0.1, "0.0") for config in LLAMA_STYLE),
        *((config, "partial_rotary_factor", 0.5, "1.0") for config in LLAMA_STYLE),
    ],
)
def test_other_arithmetic_is_refused(config: dict[str, Any], key: str, value: Any, known: str) -> None:
    assert read_config(without(config, key))
    with pytest.raises(HeddleError, match=f"'{key}' = .* is not known") as caught:
        read_config(config | {key: value})
    assert caught.value.hint == f"Known: {known}."


def test_a_partial_rotation_is_refused_in_the_new_form_too() -> None:
    with pytest.raises(HeddleError, match=r"'partial_rotary_factor' = 0.25 is not known"):
        read_config(PLAIN | {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}})


@pytest.mark.parametrize(
    ("attention", "mlp", "bias"), [(True, False, "attention"), (False, True, "mlp"), (True, None, "attention")]
)
def test_llamas_biases_are_two_keys(attention: bool, mlp: bool | None, bias: str) -> None:
    spec = read_config(LLAMA_2_70B | {"attention_bias": attention, "mlp_bias": mlp})
    assert spec.bias == bias
    assert read_config(write_config(spec)) == spec


@pytest.mark.parametrize(
    ("config", "lacking"),
    [
        ({"model_type": "dbrx", "num_experts": 8}, "experts"),
        ({"model_type": "minicpm3", "kv_lora_rank": 512}, "another kind of latent attention"),
        ({"model_type": "bloom"}, "ALiBi"),
        ({"model_type": "mamba", "state_size": 16}, "state-space layers"),
        ({"model_type": "biogpt"}, "learned positions that begin at 2"),
        ({"model_type": "lfm2_moe", "num_experts": 8}, "convolutions"),  # rather than experts
        ({"model_type": "roberta"}, "looks ahead"),
    ],
)
def test_a_family_that_cannot_be_expressed_is_told_what_is_missing(config: dict[str, Any], lacking: str) -> None:
    with pytest.raises(HeddleError, match="is not known") as caught:
        read_config(config)
    assert lacking in caught.value.why
    assert "module of your own" in caught.value.hint


@pytest.mark.slow
def test_every_decoder_of_transformers_is_read_or_told_what_it_lacks() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    names = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    read, unsaid = set(), []
    for name in names.keys() - {"gemma4_assistant"}:  # whose own class refuses its default configuration
        config = transformers.AutoConfig.for_model(name).to_dict()
        try:
            read_config(config)
            read.add(config["model_type"])
        except HeddleError as error:
            if "asks for" not in error.why and name not in FAMILIES:
                unsaid.append(name)
    assert unsaid == []
    assert len(read) > 40


def test_keys_of_older_files_are_read() -> None:
    """InternLM3's own files say qkv_bias and bias, transformers attention_bias and mlp_bias."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96}
    config = {"model_type": "internlm3", "vocab_size": 99, "max_position_embeddings": 32, **sizes}
    assert read_config(config | {"qkv_bias": True, "bias": True}).bias == "all"
    assert read_config(config | {"qkv_bias": True, "attention_bias": False}).bias == "none"


def test_codegens_heads_come_in_four_parts() -> None:
    config = {"model_type": "codegen", "n_layer": 2, "n_embd": 48, "n_head": 6, "vocab_size": 99, "n_positions": 32}
    with pytest.raises(HeddleError, match="'n_head' = 6") as caught:
        read_config(config)
    assert "multiple of 4" in caught.value.hint


def test_an_activation_is_refused_by_name() -> None:
    for config, key in ((GPT2, "activation_function"), (MISTRAL, "hidden_act")):
        with pytest.raises(HeddleError, match=f"'{key}' = 'xielu' is not known") as caught:
            read_config(config | {key: "xielu"})
        assert "silu" in caught.value.hint


def test_gpt2_has_one_dropout() -> None:
    assert read_config(GPT2 | {"resid_pdrop": 0.0, "embd_pdrop": 0}).dropout == 0.0
    assert read_config(without(GPT2, "resid_pdrop", "embd_pdrop")).dropout == 0.1
    with pytest.raises(HeddleError, match=r"resid_pdrop = 0.1 and embd_pdrop = 0.2 differ") as caught:
        read_config(GPT2 | {"embd_pdrop": 0.2})
    assert caught.value.hint == "Set both to 0.1 or both to 0.2."


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(HeddleError, match="kv_heads = 5 does not divide heads = 32"):
        read_config(MISTRAL | {"num_key_value_heads": 5})


# --- Writing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", model_presets())
def test_presets_survive_the_round_trip(name: str) -> None:
    spec = model_from_table({"preset": name})
    assert read_config(write_config(spec)) == spec


@pytest.mark.parametrize(("config", "preset", "apart"), PUBLIC)
def test_writing_repeats_the_public_file(config: dict[str, Any], preset: str, apart: dict[str, Any]) -> None:
    written = write_config(read_config(config))
    assert written["architectures"] == config["architectures"]
    # Which tokens begin and end a text is the tokenizer's to say; a switched-off window has no width.
    unknown = {"bos_token_id", "eos_token_id", "attn_pdrop"}
    if not config.get("use_sliding_window", True):
        unknown |= {"sliding_window"}
    same = written.keys() & config.keys() - unknown
    assert len(same) >= 9
    for key in same:
        got, expected = written[key], config[key]
        assert without(got, "rope_type") == without(expected, "rope_type") if isinstance(got, dict) else got == expected


shared: dict[str, st.SearchStrategy[Any]] = {
    "name": st.text(min_size=1, max_size=8),
    "layers": st.integers(1, 6),
    "vocab": st.integers(1, 60_000),
    "sequence": st.integers(1, 5_000),
    "ffn": st.integers(1, 5_000),
    "norm_epsilon": st.floats(1e-8, 1e-3),
    "tied": st.booleans(),
}
sizes = st.tuples(st.integers(1, 8), st.integers(1, 4), st.integers(1, 16))  # kv_heads, group, half a head


@st.composite
def gpt2_specs(draw: st.DrawFn) -> ModelSpec:
    heads, _, half = draw(sizes)
    return ModelSpec(
        **{key: draw(strategy) for key, strategy in shared.items()},
        heads=heads,
        hidden=heads * half,
        dropout=draw(st.floats(0, 0.9)),
    )


@st.composite
def llama_style_specs(draw: st.DrawFn) -> ModelSpec:
    kv_heads, group, half = draw(sizes)
    heads = kv_heads * group
    family: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"bias": "none", "qk_norm": False},
                {"bias": "all", "qk_norm": False, "window": None},
                {"bias": "qkv", "qk_norm": False},
                {"bias": "none", "qk_norm": True},
            ]
        )
    )
    windowless = "window" in family
    factors = st.floats(0.5, 64)
    low, high = draw(factors), draw(factors)
    scaling = st.builds(RopeScaling, factors, st.just(low), st.just(low + high), st.integers(1, 10_000))
    return ModelSpec(
        **{key: draw(strategy) for key, strategy in shared.items()},
        **{"window": draw(st.none() | st.integers(1, 5_000))} | family,
        heads=heads,
        kv_heads=kv_heads,
        # transformers wants Llama's heads to divide its hidden size; the others may have any
        hidden=heads * draw(st.integers(1, 16)) if windowless else draw(st.integers(1, 300)),
        head_size=2 * half,
        norm="rmsnorm",
        activation="swiglu",
        positions="rotary",
        rope_theta=draw(st.floats(1, 1e7)),
        rope_scaling=draw(st.none() | scaling),
    )


@given(gpt2_specs() | llama_style_specs())
def test_reading_what_was_written_gives_the_same_model(spec: ModelSpec) -> None:
    assert read_config(write_config(spec)) == spec


@pytest.mark.parametrize(
    ("changes", "family"),
    [
        ({}, "llama"),
        ({"bias": "all"}, "llama"),
        ({"window": 16}, "mistral"),
        ({"hidden": 100, "head_size": 32}, "mistral"),  # transformers' Llama wants heads to divide hidden
        ({"bias": "qkv"}, "qwen2"),
        ({"bias": "qkv", "window": 16}, "qwen2"),
        ({"bias": "qkv", "layers": 4, "window": (16, 0, 16, 0)}, "qwen2"),
        ({"qk_norm": True}, "qwen3"),
    ],
)
def test_the_family_follows_from_the_model(changes: dict[str, Any], family: str) -> None:
    spec = replace(model_from_table({"preset": "tiny-llama-style"}), heads=8, **{"head_size": 16} | changes)
    written = write_config(spec)
    assert written["model_type"] == family
    assert read_config(written) == spec


def test_dropout_of_the_llama_style_is_not_written() -> None:
    spec = model_from_table({"preset": "tiny-llama-style", "dropout": 0.2})
    assert read_config(write_config(spec)) == replace(spec, dropout=0.0)


@pytest.mark.parametrize(
    ("preset", "changes", "nearest", "cure"),
    [
        ("tiny", {"bias": "qkv"}, "gpt2", {"bias": "all"}),
        ("tiny", {"kv_heads": 2}, "gpt2", {"kv_heads": 4}),
        ("tiny", {"window": 64}, "gpt2", {"window": None}),
        ("tiny", {"hidden": 130, "head_size": 32}, "gpt2", {"hidden": 128}),
        ("tiny", {"activation": "swiglu", "qk_norm": True}, "gpt2", {"activation": "gelu", "qk_norm": False}),
        ("tiny-llama-style", {"norm": "layernorm"}, "llama", {"norm": "rmsnorm"}),
        ("tiny-llama-style", {"bias": "qkv", "qk_norm": True}, "qwen2", {"qk_norm": False}),
        ("tiny-llama-style", {"bias": "all", "window": 64}, "llama", {"window": None}),
        ("tiny-llama-style", {"layers": 2, "bias": "qkv", "window": (64, 32)}, "qwen2", {"window": 64}),
        ("tiny-llama-style", {"layers": 2, "ffn": (320, 256)}, "llama", {"ffn": 320}),
    ],
)
def test_a_model_of_no_family_is_told_the_nearest(
    preset: str, changes: dict[str, Any], nearest: str, cure: dict[str, Any]
) -> None:
    spec = replace(model_from_table({"preset": preset}), **changes)
    with pytest.raises(HeddleError, match=f"'{preset}' fits no Hugging Face family") as caught:
        write_config(spec)
    assert all(family in caught.value.why for family in FAMILIES)
    assert f"The nearest is {nearest}" in caught.value.hint
    for field in cure:
        assert field in caught.value.hint
    assert caught.value.hint.count("=") + caught.value.hint.count("no window") == len(cure)  # and nothing else
    assert write_config(replace(spec, **cure))["model_type"] == nearest


def test_absurd_counts_take_neither_time_nor_memory():
    config = {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 10**12} | SIZES
    assert read_config(config).window is None
    assert read_config(config | {"max_window_layers": -(10**12)}).window == 4096
    with pytest.raises(HeddleError, match="must be in"):
        read_config(config | {"num_hidden_layers": 10**12})
    with pytest.raises(HeddleError, match="must be in"):
        read_config(config | {"rope_theta": 10**400})  # no float is that large
    assert read_config(config | {"max_window_layers": 1}).window == (0, 4096)


@pytest.mark.parametrize("kinds", [3, "full_attention", {"a": 1}, True])
def test_layer_types_that_are_no_list_are_told(kinds):
    config = {"model_type": "qwen2", "use_sliding_window": True, "layer_types": kinds} | SIZES
    with pytest.raises(HeddleError, match=r"'layer_types' = .* is not known"):
        read_config(config)


SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 32,
}
