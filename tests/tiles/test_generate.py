"""Generation by tiles: the logits of the model itself, whatever the engine that a token took."""

import dataclasses
import statistics
from itertools import islice

import pytest
import torch

from heddle.errors import HeddleError
from heddle.models.generate import KeyValueCache, generate, newest_logits
from heddle.models.transformer import Microbatch
from heddle.tiles import generate as by_tiles
from heddle.tiles.generate import TileEngine, weight_error
from heddle.tiles.operators.narrow import BITS, rounded, unrounded
from tests.helpers.cases import thinned
from tests.models.test_transformer import GPT, LLAMA, QWEN3, WINDOWED, build

LATENT = dataclasses.replace(LLAMA, kv_heads=4, kv_latent=8, head_size=12, rotary_size=4)


@pytest.mark.parametrize(
    "spec", thinned((GPT, LLAMA, QWEN3, WINDOWED, LATENT), slow=(LLAMA, QWEN3, WINDOWED)),
    ids=["gpt", "llama", "qwen3", "windowed", "latent"],
)  # fmt: skip
@torch.no_grad()
def test_prompt_and_tokens_give_the_models_logits(spec, monkeypatch):
    monkeypatch.setattr(by_tiles, "SMALLEST", 8)  # so that the cache grows on the way
    model = build(spec, spread=0.2).eval()
    engine = TileEngine(model, threads=2)
    ids = torch.randint(0, spec.vocab, (11,))
    ours, theirs = KeyValueCache(1, spec.sequence), KeyValueCache(1, spec.sequence)
    for start, stop in ((0, 5), *((place, place + 1) for place in range(5, 11))):
        found = engine(ids[start:stop], ours)
        wanted = newest_logits(model, ids[start:stop], theirs)
        assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-5
        ours.length = theirs.length = stop
    assert engine.decoder.runs  # tiles ran it, not PyTorch
    padded = ["aten.pad.default × 3"] if spec is LATENT else []  # values, which are shorter than keys
    assert engine.decoder.program.fallback_operators == padded


def test_the_text_is_the_models():
    model = build(LLAMA, spread=0.2).eval()
    engine = TileEngine(model, threads=1)
    options = {"temperature": 0, "seed": 0}
    assert list(islice(generate(model, [1, 2, 3], engine=engine, **options), 12)) == list(
        islice(generate(model, [1, 2, 3], **options), 12)
    )


@pytest.mark.parametrize("spec", [GPT, LLAMA], ids=["gpt", "llama"])
@torch.no_grad()
def test_several_samples_are_decoded_at_once(spec):
    model = build(spec, spread=0.2).eval()
    engine = TileEngine(model, threads=2)
    ids, cache = torch.randint(0, spec.vocab, (5, 3)), KeyValueCache(3, spec.sequence)
    for place, each in enumerate(ids):
        found = engine(each, cache)
        cache.length += 1
        wanted = model(ids[: place + 1].t().flatten(), Microbatch(sequence=place + 1))[place :: place + 1]
        assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-5
    assert engine.decoder.runs


def as_digits(rows):
    """Rows as a scale per group of 32 times the nearest integers up to 8128."""
    depth = rows.shape[-1]
    groups = torch.nn.functional.pad(rows, (0, -depth % 32)).unflatten(-1, (-1, 32))
    scales = groups.abs().amax(-1, keepdim=True) / 8128
    return ((groups / scales.clamp(min=1e-30)).round() * scales).flatten(-2)[..., :depth]


@pytest.mark.parametrize("weights", thinned(("int4", "int8", "bfloat16"), slow=("int8", "bfloat16")))
@torch.no_grad()
def test_narrow_weights_are_those_of_the_rounded_model(weights):
    """Beginning with a single token every product reads few bits: then logits are those of a model of such weights,
    whose products read rows as integers of 14 bits where weights are integers.
    """
    spec = dataclasses.replace(LLAMA, hidden=80, head_size=12, ffn=72, vocab=75, layers=1)  # odd groups, columns
    model = build(spec, spread=0.2).eval()
    engine = TileEngine(model, threads=2, weights=weights)
    ids, cache = torch.randint(0, spec.vocab, (7,)), KeyValueCache(1, spec.sequence)
    found = []
    for place in range(7):
        found.append(engine(ids[place : place + 1], cache).clone())
        cache.length += 1
    error = weight_error(engine, ids.tolist())
    original = model(ids, Microbatch(sequence=7))
    off = float((torch.stack(found) - original).abs().max() / original.abs().max())
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            bits = BITS[weights]
            exact = module.weight.t().bfloat16() if bits == 16 else unrounded(*rounded(module.weight.t(), bits))
            module.weight.copy_(exact.t())
            if bits < 16:
                module.register_forward_pre_hook(lambda _, inputs: (as_digits(inputs[0]),))
    theirs, errors = KeyValueCache(1, spec.sequence), []
    for place in range(7):
        wanted = newest_logits(model, ids[place : place + 1], theirs)
        theirs.length += 1
        errors.append(float((found[place] - wanted).abs().max() / wanted.abs().max()))
    # A number between two integers may become the other one, which is 1 / 8,128 of the largest of its group.
    assert statistics.median(errors) < 1e-5
    assert max(errors) < (1e-5 if weights == "bfloat16" else 1e-3)
    assert off > 3e-4  # they were rounded
    assert (error.tokens, error.logits) == (7, pytest.approx(off, rel=1e-3))
    assert str(error).startswith(f"{weights} weights, on 7 tokens")
    assert weight_error(engine, [1]) is None


def test_unknown_weights_are_refused_with_the_nearest():
    with pytest.raises(HeddleError, match="int8"):
        TileEngine(build(GPT), weights="int9")


def test_other_precisions_are_refused():
    with pytest.raises(HeddleError, match=r"bfloat16.*\n?.*float32"):
        TileEngine(build(GPT).bfloat16())
