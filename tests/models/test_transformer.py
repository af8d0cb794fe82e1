from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.models import Microbatch, Transformer, initialize, materialize
from heddle.models.random import token_keys
from heddle.spec import ModelSpec
from tests.helpers.reference import logits as reference_logits

GPT = ModelSpec(layers=3, hidden=32, heads=4, vocab=61, sequence=24)
LLAMA = ModelSpec(
    layers=3, hidden=32, heads=4, kv_heads=2, vocab=61, sequence=24, norm="rmsnorm", activation="swiglu",
    positions="rotary", bias="none", tied=False,
)  # fmt: skip
QWEN2 = dataclasses.replace(LLAMA, bias="qkv", tied=True)
QWEN3 = dataclasses.replace(LLAMA, qk_norm=True, head_size=12)
WINDOWED = dataclasses.replace(LLAMA, window=5)
SPECS = {"gpt": GPT, "llama": LLAMA, "qwen2": QWEN2, "qwen3": QWEN3, "windowed": WINDOWED}


def build(spec: ModelSpec, seed: int = 0, spread: float = 0.0, **chunk) -> Transformer:
    model = Transformer(spec, **chunk)
    initialize(model, seed)
    if spread:  # initial biases and norms are constants; a test of them needs other numbers
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += spread * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize("name", SPECS)
def test_logits_equal_the_plain_reference(name):
    spec = SPECS[name]
    model = build(spec, spread=0.2)
    ids = torch.randint(0, spec.vocab, (2, spec.sequence))
    ours = model(ids.flatten(), Microbatch(sequence=spec.sequence)).view(2, spec.sequence, -1)
    theirs = reference_logits(spec, dict(model.named_parameters()), ids)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@given(
    heads=st.integers(1, 4), group=st.integers(1, 3), size=st.sampled_from([2, 8]), layers=st.integers(1, 3),
    norm=st.sampled_from(["layernorm", "rmsnorm"]), activation=st.sampled_from(["gelu", "swiglu"]),
    positions=st.sampled_from(["learned", "rotary"]), bias=st.sampled_from(["all", "qkv", "none"]),
    qk_norm=st.booleans(), tied=st.booleans(),
)  # fmt: skip
@settings(max_examples=40)
def test_parameter_count_is_the_spec_s(heads, group, size, layers, **kinds):
    spec = ModelSpec(
        layers=layers, hidden=16, heads=heads * group, kv_heads=heads, head_size=size, ffn=24, vocab=31, sequence=8,
        **kinds,
    )  # fmt: skip
    with torch.device("meta"):
        model = Transformer(spec)
    assert sum(parameter.numel() for parameter in model.parameters()) == spec.parameters


@pytest.mark.parametrize("spec", [GPT, LLAMA], ids=["gpt", "llama"])
def test_no_token_sees_a_later_one(spec):
    model = build(spec, spread=0.2)
    ids = torch.randint(0, spec.vocab, (spec.sequence,))
    changed = ids.clone()
    changed[15:] = (changed[15:] + 1) % spec.vocab
    before, after = (model(x, Microbatch(sequence=spec.sequence)) for x in (ids, changed))
    assert torch.equal(before[:15], after[:15])
    assert not torch.equal(before[15], after[15])


@pytest.mark.parametrize("spec", [GPT, LLAMA], ids=["gpt", "llama"])
def test_samples_of_a_batch_do_not_mix(spec):
    model = build(spec, spread=0.2)
    ids = torch.randint(0, spec.vocab, (3, spec.sequence))
    together = model(ids.flatten(), Microbatch(sequence=spec.sequence)).view(3, spec.sequence, -1)
    alone = model(ids[1], Microbatch(sequence=spec.sequence))
    torch.testing.assert_close(together[1], alone)


@pytest.mark.parametrize("spec", [GPT, LLAMA], ids=["gpt", "llama"])
def test_chunks_in_a_row_are_the_whole_model(spec):
    spec = dataclasses.replace(spec, dropout=0.2)
    whole = build(spec)
    chunks = [
        build(spec, layers=[0], last=False),
        build(spec, layers=[1], first=False, last=False),
        build(spec, layers=[2], first=False),
    ]
    if spec.tied:  # the last chunk's own copy of the embedding
        chunks[-1].head.weight = chunks[0].embed.tokens.weight
    ids = torch.randint(0, spec.vocab, (2 * spec.sequence,))
    batch = Microbatch(sequence=spec.sequence, keys=token_keys(0, torch.arange(2), spec.sequence))
    x = ids
    for chunk in chunks:
        x = chunk(x, batch)
    assert torch.equal(x, whole(ids, batch))
    names = [name for chunk in chunks for name, _ in chunk.named_parameters()]
    assert set(names) - {"head.weight"} == {name for name, _ in whole.named_parameters()} - {"head.weight"}


def test_evaluation_drops_nothing():
    spec = dataclasses.replace(GPT, dropout=0.5)
    ids = torch.randint(0, spec.vocab, (spec.sequence,))
    plain = build(GPT)(ids, Microbatch(sequence=spec.sequence))
    model = build(spec)
    assert torch.equal(model(ids, Microbatch(sequence=spec.sequence)), plain)
    keys = token_keys(0, torch.arange(1), spec.sequence)
    assert not torch.equal(model(ids, Microbatch(sequence=spec.sequence, keys=keys)), plain)


def test_a_model_made_real_from_the_meta_device_is_the_same_and_still_tied():
    with torch.device("meta"):
        model = Transformer(GPT)
    materialize(model, torch.device("cpu"), torch.float32)
    initialize(model, seed=0)
    assert model.head.weight is model.embed.tokens.weight
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), build(GPT).parameters(), strict=True))
