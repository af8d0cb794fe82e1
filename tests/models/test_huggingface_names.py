"""The map between our parameters and Hugging Face's: complete, without overlap, and the same in both directions."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import torch

from heddle.models import transformer
from heddle.models.huggingface_layout import Block, layout, parameter_shapes, their_shapes
from heddle.models.huggingface_names import GPT2, LLAMA, find, is_buffer, names_of
from heddle.models.transformer import Layer, Transformer
from heddle.spec import ModelSpec
from heddle.spec.huggingface import read_config
from heddle.spec.shorthand import model_from_table
from tests.helpers.hf_folder import CONFIGS, UNLIKE, shapes

LIKE = ModelSpec(layers=4, hidden=32, heads=4, vocab=257, sequence=32)
VARIANTS = {
    **CONFIGS,
    **UNLIKE,
    "gpt2-untied": CONFIGS["gpt2"] | {"tie_word_embeddings": False},
    "llama-tied": CONFIGS["llama"] | {"tie_word_embeddings": True},
    "llama-biases": CONFIGS["llama"] | {"attention_bias": True, "mlp_bias": True},
    "llama-one-kv-head": CONFIGS["llama"] | {"num_key_value_heads": 1},
    "llama-no-groups": CONFIGS["llama"] | {"num_key_value_heads": 4},
}


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_names_and_shapes_are_those_of_transformers(config):
    assert their_shapes(layout(read_config(config))) == shapes(config)


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_every_number_has_one_place_on_both_sides(config):
    spec = read_config(config)
    mapped = layout(spec)
    assert {name: ours.shape for name, ours in mapped.items()} == parameter_shapes(spec)
    theirs = {name: torch.zeros(shape) for name, shape in shapes(config).items()}
    for ours in mapped.values():
        rows = Counter(row for block in ours.blocks for row in range(block.row, block.row + block.rows))
        assert rows == Counter(range(ours.shape[0]))
        for block in ours.blocks:
            view = block.view(theirs[block.name])
            assert view.shape == (block.rows, *ours.shape[1:])
            view += 1
    assert all(bool((tensor == 1).all()) for tensor in theirs.values())
    assert sum(tensor.numel() for tensor in theirs.values()) == spec.parameters


@pytest.mark.parametrize("fields", [{"ffn": (64, 128, 64, 96)}, {"window": (4, 0, 8, 4)}], ids=["ffn", "window"])
def test_layers_that_differ_have_their_own_shapes(fields):
    spec = dataclasses.replace(LIKE, **fields)
    with torch.device("meta"):
        whole = {name: tuple(parameter.shape) for name, parameter in Transformer(spec).named_parameters()}
    assert list(parameter_shapes(spec).items()) == list(whole.items())


def test_the_layers_that_a_description_states_are_not_all_built(monkeypatch):
    built = []
    monkeypatch.setattr(transformer, "Layer", lambda spec, index: built.append(index) or Layer(spec, index))
    many = dataclasses.replace(LIKE, layers=50_000, window=(0, 8) * 25_000)
    assert len(parameter_shapes(many)) > 50_000 * 8
    assert sorted(built) == [0, 1]


@pytest.mark.parametrize("transposed", [False, True])
def test_a_part_of_a_block_is_found_without_the_block(transposed):
    ours = torch.arange(7 * 5).view(7, 5)
    theirs = torch.full((5, 20) if transposed else (20, 5), -1)
    block = Block(row=0, rows=7, name="t", start=11, transposed=transposed)
    block.view(theirs).copy_(ours)
    part = (slice(2, 6), slice(1, 4))
    found = theirs[block.place(part)]
    assert torch.equal(found.T if transposed else found, ours[part])
    assert found.data_ptr() == block.view(theirs)[part].data_ptr()  # seen where it lies, not copied


def test_query_rows_go_to_the_group_of_their_key():
    """By hand: two groups of two query heads of size 10; their q_proj is heads 0, 1, 2, 3."""
    blocks = layout(read_config(CONFIGS["qwen3"]))["layers.1.attention.qkv.weight"].blocks
    short = [(block.row, block.rows, block.name.split(".")[-2], block.start) for block in blocks]
    assert short == [
        (0, 20, "q_proj", 0),
        (20, 10, "k_proj", 0),
        (30, 10, "v_proj", 0),
        (40, 20, "q_proj", 20),
        (60, 10, "k_proj", 10),
        (70, 10, "v_proj", 10),
    ]


def test_gpt2_keeps_queries_keys_and_values_in_one_transposed_tensor():
    blocks = layout(read_config(CONFIGS["gpt2"]))["layers.0.attention.qkv.weight"].blocks
    assert {block.name for block in blocks} == {"transformer.h.0.attn.c_attn.weight"}
    assert all(block.transposed for block in blocks)
    # head 1 of four: its query, key and value, each six wide, out of three times twenty-four columns
    assert [(block.row, block.rows, block.start) for block in blocks[3:6]] == [(18, 6, 6), (24, 6, 30), (30, 6, 54)]
    biases = layout(read_config(CONFIGS["gpt2"]))["layers.0.attention.qkv.bias"].blocks
    assert not any(block.transposed for block in biases)


@pytest.mark.parametrize(
    "preset", ["gpt2-xl", "llama-3.1-8b", "llama-2-70b", "mistral-7b", "qwen2-0.5b", "qwen3-4b", "tinyllama-1.1b"]
)
def test_published_models_are_mapped_whole(preset):
    spec = dataclasses.replace(model_from_table({"preset": preset}), layers=2)
    theirs = their_shapes(layout(spec))
    assert sum(torch.Size(shape).numel() for shape in theirs.values()) == spec.parameters


def test_the_prefix_of_the_body_may_be_missing():
    held = ["wte.weight", "h.0.attn.c_attn.weight", "lm_head.weight"]
    assert find("transformer.wte.weight", held, GPT2) == "wte.weight"
    assert find("transformer.wte.weight", [*held, "transformer.wte.weight"], GPT2) == "transformer.wte.weight"
    assert find("lm_head.weight", held, GPT2) == "lm_head.weight"
    assert find("model.norm.weight", ["norm.weight"], LLAMA) == "norm.weight"
    assert find("model.norm.weight", held, LLAMA) is None


@pytest.mark.parametrize(
    ("name", "names", "buffer"),
    [
        ("h.0.attn.bias", GPT2, True),
        ("transformer.h.11.attn.masked_bias", GPT2, True),
        ("transformer.h.0.attn.c_attn.bias", GPT2, False),
        ("h.0.attn.bias", LLAMA, False),
        ("model.layers.3.self_attn.rotary_emb.inv_freq", LLAMA, True),
        ("layers.3.self_attn.rotary_emb.inv_freq", LLAMA, True),
        ("model.rotary_emb.inv_freq", LLAMA, True),
        ("model.layers.3.self_attn.q_proj.weight", LLAMA, False),
        ("score.weight", LLAMA, False),
    ],
)
def test_constants_of_old_files_are_known(name, names, buffer):
    assert is_buffer(name, names) == buffer


def test_a_family_follows_from_the_model():
    assert names_of(read_config(CONFIGS["gpt2"])) is GPT2
    assert all(names_of(read_config(CONFIGS[name])) is LLAMA for name in CONFIGS if name != "gpt2")
