"""All that a rank does, on a GPU that is only pretended: nothing mixes memories, or reads what has not arrived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heddle.checkpoint.checkpoint import Saver, newest_good
from heddle.parallel.mesh import Mesh
from heddle.runtime.device import HostCopy, Mark
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.step.trainer import Trainer
from tests.strict.pretended import GPU, on_device, pretended_gpu
from tests.strict.replay import StrictError

MODEL = ModelSpec(layers=3, hidden=64, heads=4, vocab=61, sequence=32, ffn=128, tied=False, dropout=0.1)
TOKENS = np.arange(5000, dtype="<u2") % 61
PLANS = {
    "plain": Plan(microbatch=2),
    "recompute": Plan(microbatch=2, recompute="full"),
    "optimizer": Plan(microbatch=2, offload=("optimizer:host",)),
    "activations": Plan(microbatch=2, offload=("activations:host",), prefetch=2),
    "input": Plan(microbatch=2, recompute="full", offload=("input:host",)),
    "all": Plan(microbatch=2, offload=("activations:host", "weights:host", "optimizer:host")),
    "disk": Plan(microbatch=2, offload=("activations:disk", "weights:disk", "optimizer:disk")),
}


def job(plan: Plan, precision: str) -> Job:
    train: dict[str, Any] = {"precision": precision, "compile": False, "learning_rate": 1e-2}
    return Job(model=MODEL, data=Data(text="-"), train=Train(global_batch=4, steps=6, **train), plan=plan)


def lived(plan: Plan, precision: str, folder: Path) -> list[float | None]:
    """Losses of steps, with a checkpoint that is written beside them and taken up, and an evaluation."""
    trainer, saver = Trainer(job(plan, precision), TOKENS), Saver(folder, Mesh())
    losses: list[float | None] = [trainer.train_step().loss]
    trainer.save(saver)
    losses.append(trainer.train_step().loss)
    saver.wait()
    again = Trainer(job(plan, precision), TOKENS)
    again.load(newest_good(folder, Mesh(), pytest.fail))
    losses += [again.train_step().loss for _ in range(2)]
    return [*losses, again.evaluate(TOKENS)]


@pytest.mark.parametrize("name", PLANS)
def test_what_a_rank_does_keeps_device_and_host_apart(tmp_path, name):
    """And it learns the same bits as on the CPU that it really runs on."""
    precision = "bf16" if name in ("optimizer", "all") else "fp32"
    with pretended_gpu():
        found = lived(PLANS[name], precision, tmp_path / "there")
    assert found == lived(PLANS[name], precision, tmp_path / "here")
    assert found[1] == found[2]


def test_a_kernel_that_is_given_both_is_refused():
    with pretended_gpu():
        there, here = torch.zeros(3, device="cuda"), torch.zeros(3)
        assert there.device == GPU
        assert (there + 1)[1:].device == GPU
        with pytest.raises(StrictError, match="add"):
            there + here
        assert on_device(there + torch.ones(()))
        assert not on_device((there.cpu() + here).to(torch.float64))


def test_what_nobody_waited_for_has_not_arrived():
    with pretended_gpu():
        there = torch.ones(2, device="cuda")
        assert torch.isnan(there.to("cpu", non_blocking=True)).all()
        copy = HostCopy(there)
        assert torch.isnan(copy.values).all()
        assert copy.read() == [1.0, 1.0]
        late, mark = torch.empty(2, pin_memory=True), Mark(GPU)
        late.copy_(there, non_blocking=True)
        mark.wait()  # which stands before the copy
        assert torch.isnan(late).all()
