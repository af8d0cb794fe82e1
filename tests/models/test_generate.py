from __future__ import annotations

import math
from itertools import islice

import pytest
import torch

from heddle.errors import HeddleError
from heddle.models import Microbatch
from heddle.models.generate import KeyValueCache, generate, sample
from tests.models.test_transformer import GPT, LLAMA, QWEN3, WINDOWED, build


@pytest.mark.parametrize("spec", [GPT, LLAMA, QWEN3, WINDOWED], ids=["gpt", "llama", "qwen3", "windowed"])
def test_cached_logits_equal_those_of_the_whole_text(spec):
    model = build(spec, spread=0.2)
    ids = torch.randint(0, spec.vocab, (20,))
    whole = model(ids, Microbatch(sequence=20))
    cache = KeyValueCache(1, spec.sequence)
    pieces = []
    for start, stop in ((0, 7), (7, 8), (8, 12), *((i, i + 1) for i in range(12, 20))):
        pieces.append(model(ids[start:stop], Microbatch(sequence=stop - start, cache=cache)))
        cache.length = stop
    torch.testing.assert_close(torch.cat(pieces), whole, rtol=1e-4, atol=1e-5)


def test_greedy_generation_is_the_argmax_of_the_whole_text():
    model = build(LLAMA, spread=0.2)
    text = [1, 2, 3]
    for token in islice(generate(model, text, temperature=0), 10):
        expected = model(torch.tensor(text), Microbatch(sequence=len(text)))[-1].argmax()
        assert token == int(expected)
        text.append(token)


@pytest.mark.parametrize("prompt", [1, 24, 60])
def test_generation_goes_on_beyond_the_models_positions(prompt):
    model = build(GPT, spread=0.2)
    tokens = list(islice(generate(model, [5] * prompt), 70))
    assert len(tokens) == 70
    assert all(0 <= token < GPT.vocab for token in tokens)


@pytest.mark.parametrize("temperature", [0.0, 1e-300, 0.8])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_told(value, temperature):
    logits = torch.tensor([0.1, value, 0.3])
    with pytest.raises(HeddleError, match="logits are not numbers"):
        sample(logits, temperature, 0, 1.0, torch.Generator())


def test_the_lowest_temperatures_take_the_likeliest_token():
    logits = torch.tensor([0.1, 40.0, 39.9, -math.inf, 1e30])
    for temperature in (1e-300, 5e-324, 1e-38, 1e-9):
        assert sample(logits, temperature, 0, 1.0, torch.Generator()) == 4
        assert sample(logits[:4], temperature, 3, 0.9, torch.Generator()) == 1


def test_the_seed_decides_the_text():
    model = build(GPT, spread=0.2)
    one, same, other = (list(islice(generate(model, [1], seed=seed), 20)) for seed in (0, 0, 1))
    assert one == same != other


def draws(probabilities: list[float], count: int = 400, **options) -> set[int]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.tensor(probabilities).log()
    options = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, **options}
    return {sample(logits, generator=generator, **options) for _ in range(count)}


def test_top_k_and_top_p_cut_the_tail():
    probabilities = [0.1, 0.5, 0.05, 0.35]
    assert draws(probabilities) == {0, 1, 2, 3}
    assert draws(probabilities, top_k=2) == {1, 3}
    assert draws(probabilities, top_p=0.8) == {1, 3}
    assert draws(probabilities, top_p=0.86) == {0, 1, 3}
    assert draws(probabilities, top_p=0.0) == {1}
    assert draws(probabilities, temperature=0) == {1}
    assert draws(probabilities, temperature=0.01) == {1}
