"""Generation by tiles: the logits of the model itself, whatever the engine that a token took."""

import dataclasses
from itertools import islice

import pytest
import torch

from heddle.errors import HeddleError
from heddle.models.generate import KeyValueCache, generate, newest_logits
from heddle.models.transformer import Microbatch
from heddle.tiles import generate as by_tiles
from heddle.tiles.generate import TileEngine, int8_error
from heddle.tiles.kernels.int8 import GROUP
from heddle.tiles.operators.int8 import rounded
from tests.helpers.cases import thinned
from tests.models.test_transformer import GPT, LLAMA, QWEN3, WINDOWED, build


@pytest.mark.parametrize(
    "spec", thinned((GPT, LLAMA, QWEN3, WINDOWED), slow=(LLAMA, QWEN3, WINDOWED)),
    ids=["gpt", "llama", "qwen3", "windowed"],
)  # fmt: skip
@torch.no_grad()
def test_prompt_and_tokens_give_the_models_logits(spec, monkeypatch):
    monkeypatch.setattr(by_tiles, "SMALLEST", 8)  # so that the cache grows on the way
    model = build(spec, spread=0.2).eval()
    engine = TileEngine(model, threads=2)
    engine.faster = {8: True, 16: True, 32: True}
    ids = torch.randint(0, spec.vocab, (11,))
    ours, theirs = KeyValueCache(1, spec.sequence), KeyValueCache(1, spec.sequence)
    for start, stop in ((0, 5), *((place, place + 1) for place in range(5, 11))):
        found = engine(ids[start:stop], ours)
        wanted = newest_logits(model, ids[start:stop], theirs)
        assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-5
        ours.length = theirs.length = stop
    assert engine.compiled.whole is None  # tiles ran it, not PyTorch


def test_the_text_is_the_models_and_the_faster_engine_is_chosen():
    model = build(LLAMA, spread=0.2).eval()
    engine = TileEngine(model, threads=1)
    options = {"temperature": 0, "seed": 0}
    assert list(islice(generate(model, [1, 2, 3], engine=engine, **options), 12)) == list(
        islice(generate(model, [1, 2, 3], **options), 12)
    )
    assert set(engine.faster) == {by_tiles.SMALLEST}


@torch.no_grad()
def test_int8_weights_are_those_of_the_rounded_model(monkeypatch):
    """Beginning with a single token every product reads codes: then logits are those of a model of rounded weights."""
    spec = dataclasses.replace(LLAMA, hidden=80, head_size=12, ffn=72, vocab=75)  # odd groups, odd columns
    model = build(spec, spread=0.2).eval()
    engine = TileEngine(model, threads=2, int8=True)
    ids, cache = torch.randint(0, spec.vocab, (7,)), KeyValueCache(1, spec.sequence)
    found = []
    for place in range(7):
        found.append(engine(ids[place : place + 1], cache))
        cache.length += 1
    error = int8_error(engine, ids.tolist())
    original = model(ids, Microbatch(sequence=7))
    off = float((torch.stack(found) - original).abs().max() / original.abs().max())
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            codes, scales = rounded(module.weight.t())
            exact = codes * scales.repeat_interleave(GROUP, 0)[: len(codes)]
            assert float((exact.t() - module.weight).abs().max()) <= float(scales.max()) / 2 * (1 + 1e-5)
            module.weight.copy_(exact.t())
    theirs = KeyValueCache(1, spec.sequence)
    for place in range(7):
        wanted = newest_logits(model, ids[place : place + 1], theirs)
        theirs.length += 1
        assert float((found[place] - wanted).abs().max() / wanted.abs().max()) < 1e-5
    assert off > 1e-4  # they were rounded
    assert (error.tokens, error.logits) == (7, pytest.approx(off, rel=1e-3))
    assert str(error).startswith("int8 weights, on 7 tokens")
    assert int8_error(engine, [1]) is None


def test_other_precisions_are_refused():
    with pytest.raises(HeddleError, match=r"bfloat16.*\n?.*float32"):
        TileEngine(build(GPT).bfloat16())
