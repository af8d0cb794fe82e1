"""Generation by tiles: the logits of the model itself, whatever the engine that a token took."""

from itertools import islice

import pytest
import torch

from heddle.errors import HeddleError
from heddle.models.generate import KeyValueCache, generate, newest_logits
from heddle.tiles import generate as by_tiles
from heddle.tiles.generate import TileEngine
from tests.models.test_transformer import GPT, LLAMA, QWEN3, WINDOWED, build

slow = pytest.mark.slow


@pytest.mark.parametrize(
    "spec", [GPT, LLAMA, pytest.param(QWEN3, marks=slow), pytest.param(WINDOWED, marks=slow)],
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


def test_other_precisions_are_refused():
    with pytest.raises(HeddleError, match=r"bfloat16.*\n?.*float32"):
        TileEngine(build(GPT).bfloat16())
