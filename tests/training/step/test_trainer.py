from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from heddle.checkpoint.checkpoint import Saver
from heddle.data import Samples
from heddle.models import Microbatch, Transformer, initialize
from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.step.learning_rate import learning_rate
from heddle.training.step.trainer import Trainer

MODEL = ModelSpec(layers=2, hidden=32, heads=4, vocab=64, sequence=16)


def tokens(count: int = 5000) -> np.ndarray:
    """Text with something to learn in it: each token mostly follows from the one before."""
    rng = np.random.default_rng(0)
    out = [0]
    for noise in rng.random(count):
        out.append((out[-1] * 5 + 3) % 64 if noise < 0.9 else int(noise * 1e6) % 64)
    return np.array(out, "<u2")


def job(microbatch: int = 4, model: ModelSpec = MODEL, **train) -> Job:
    settings = {"steps": 12, "global_batch": 8, "learning_rate": 1e-2, "warmup": 2, **train}
    return Job(model=model, data=Data(text="-"), train=Train(**settings), plan=Plan(microbatch=microbatch))


def run(a_job: Job) -> list[float]:
    trainer = Trainer(a_job, tokens())
    return [trainer.train_step()[0] for _ in range(a_job.train.steps)]


def test_losses_equal_those_of_a_plain_loop():
    """The loop written out with PyTorch's own AdamW and clipping."""
    a_job = job(clip=0.5, weight_decay=0.0)
    train = a_job.train
    model = Transformer(MODEL)
    initialize(model, train.seed)
    adam = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.0)
    samples = Samples(tokens(), 16, train.seed)
    losses = []
    for step in range(train.steps):
        inputs, targets = (torch.from_numpy(part).flatten() for part in samples.batch(step * 8, 8))
        loss = F.cross_entropy(model(inputs, Microbatch(sequence=16)), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        adam.param_groups[0]["lr"] = learning_rate(train, step)
        adam.step()
        adam.zero_grad()
        losses.append(float(loss.detach()))
    assert run(a_job) == pytest.approx(losses, rel=1e-5)
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_microbatches_do_not_change_the_losses(dropout):
    model = dataclasses.replace(MODEL, dropout=dropout)
    whole = run(job(microbatch=8, model=model))
    for microbatch in (1, 2, 4):
        assert run(job(microbatch=microbatch, model=model)) == pytest.approx(whole, rel=1e-5)
    if dropout:
        assert whole != pytest.approx(run(job()), rel=1e-5)


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.02), ("fp16", 0.005)])
def test_low_precision_follows_full_precision(precision, tolerance):
    full, low = run(job()), run(job(precision=precision))
    assert low == pytest.approx(full, rel=tolerance)
    assert low != full


@pytest.mark.parametrize("microbatch", [2, 8])
def test_evaluation_counts_whole_batches_and_changes_nothing(microbatch):
    trainer = Trainer(job(microbatch, eval_batches=3), tokens())
    held_out = tokens()[: 16 * 20 + 1]  # twenty samples: two global batches of eight
    first = trainer.evaluate(held_out)
    samples = Samples(held_out, 16, 0)
    inputs, targets = (torch.from_numpy(part).flatten() for part in samples.batch(0, 16))
    with torch.no_grad():
        expected = F.cross_entropy(trainer.parallel.chunks[0](inputs, Microbatch(sequence=16)), targets)
    assert first == pytest.approx(float(expected), rel=1e-6)
    assert trainer.evaluate(held_out) == first
    assert trainer.evaluate(held_out[:16]) is None


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_loaded_trainer_goes_on_bit_for_bit(tmp_path, precision):
    model = dataclasses.replace(MODEL, dropout=0.1)
    straight = Trainer(job(model=model, precision=precision), tokens())
    losses = [straight.train_step()[0] for _ in range(10)]
    first = Trainer(job(model=model, precision=precision), tokens())
    for _ in range(6):
        first.train_step()
    saver = Saver(tmp_path, Mesh())
    first.save(saver)
    saver.wait()
    second = Trainer(job(model=model, precision=precision), tokens())
    second.load(tmp_path / "step-00000006")
    assert second.step == 6
    assert [second.train_step()[0] for _ in range(4)] == losses[6:]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns about itself
def test_compiled_layers_learn_the_same():
    assert run(job(compile=True, steps=3)) == pytest.approx(run(job())[:3], rel=1e-4)
