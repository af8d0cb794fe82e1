"""Recomputing all but products and attention: these run once, the rest twice, and not a bit changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from heddle.models.transformer import Layer
from heddle.parallel.memory.elementwise import dear
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.dry_run.living import Living
from heddle.training.step.trainer import Trainer
from tests.helpers.small_models import experts, gpt, latent, llama

MODELS = {
    "gpt": gpt(dropout=0.1),
    "llama": llama(window=3),
    "both norms": llama(norm_place="both"),
    "parallel": llama(branches="parallel"),
    "experts": experts(shared_experts=1, shared_ffn=16, shared_gate=True),
    "latent": latent(),
}
WIDE = llama(hidden=64, heads=4, kv_heads=2, ffn=256, sequence=64, layers=4)


def trainer(model: ModelSpec, word: str) -> Trainer:
    train = Train(global_batch=4, steps=4, learning_rate=1e-2)
    job = Job(model=model, data=Data(text="-"), train=train, plan=Plan(microbatch=2, recompute=word))  # type: ignore[arg-type]
    return Trainer(job, np.arange(5000, dtype="<u2") % model.vocab)


@pytest.mark.parametrize("name", MODELS)
def test_not_a_bit_changes(name):
    plain, again = (trainer(MODELS[name], word) for word in ("none", "elementwise"))
    assert [again.train_step().loss for _ in range(3)] == [plain.train_step().loss for _ in range(3)]


def counted(layer: Layer, calls: Counter[str]) -> None:
    """Let what is called in a layer be counted: products and attention by themselves, and its norms."""

    def count(owner: Any, method: str, name: str) -> None:
        function = getattr(owner, method)

        def called(*arguments: Any) -> Any:
            calls[name] += 1
            return function(*arguments)

        setattr(owner, method, called)

    for place, (owner, method, _) in enumerate(list(dear(layer))):
        count(owner, method, f"dear {place}")
    count(layer.mlp_norm, "forward", "norm")


def test_products_and_attention_run_once(monkeypatch):
    calls: Counter[str] = Counter()
    from heddle.parallel.memory import recompute

    made = recompute.ElementwiseLayer

    def watched(layer: Layer, compiled: bool) -> Any:
        counted(layer, calls)
        return made(layer, compiled)

    monkeypatch.setattr(recompute, "ElementwiseLayer", watched)
    trainer(WIDE, "elementwise").train_step()
    passes = WIDE.layers * 2  # microbatches
    assert calls.pop("norm") == 2 * passes
    assert set(calls.values()) == {passes}


def test_less_is_held_than_by_keeping_all_and_more_than_by_keeping_inputs():
    held = {}
    for word in ("none", "selective", "elementwise", "full"):
        with Living() as living:
            one = trainer(WIDE, word)
            one.train_step()
            living.most = living.now
            one.train_step()
        held[word] = living.most - living.now
    assert held["full"] < held["elementwise"] < 0.7 * held["none"]
    assert held["selective"] > 0.9 * held["none"]
