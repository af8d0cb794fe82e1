"""All that a rank does, on a GPU that is only pretended: nothing mixes memories, or reads what has not arrived."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heddle.checkpoint.checkpoint import Saver, newest_good
from heddle.parallel.mesh import Mesh
from heddle.parallel.replicas import sharded
from heddle.parallel.replicas.sharded import ShardedGroup
from heddle.runtime.device import CopyStream, HostCopy, Mark
from heddle.runtime.tiers import Host
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.strict.pretended import GPU, is_locked, on_device, pretended_gpu
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


@pytest.mark.parametrize("name", thinned(PLANS, slow=("recompute", "input")))
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


def no_wait(*_: object) -> None:
    """A fault: nobody waits."""


@contextmanager
def in_no_order(self: CopyStream, _device: torch.device, after: Mark | None = None) -> Iterator[None]:
    """A fault: copies begin when they like."""
    with torch.cuda.stream(self.stream):
        yield


FAULTS = {
    "gradients that have not arrived": ("optimizer", (Host, "arrive", no_wait)),
    "activations that have not left": ("activations", (CopyStream, "copying", in_no_order)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_seen(tmp_path, monkeypatch, name):
    plan, fault = FAULTS[name]
    monkeypatch.setattr(*fault)
    with pretended_gpu():
        found = lived(PLANS[plan], "bf16", tmp_path / "there")
    assert found != lived(PLANS[plan], "bf16", tmp_path / "here")


def test_offloaded_weights_come_on_a_stream_of_their_own(tmp_path, monkeypatch):
    """On the computation's own they would come when the layer before is done, however early they are asked for."""
    with pretended_gpu():
        trainer = Trainer(job(PLANS["all"], "bf16"), TOKENS)
        compute, seen = torch.cuda.current_stream(), []
        fetch = ShardedGroup.fetch

        def noted(self: ShardedGroup) -> None:
            if not self.resident and self.arriving is None:
                monkeypatch.setattr(
                    sharded, "slice_of", lambda whole, axis: seen.append(torch.cuda.current_stream()) or whole
                )
            fetch(self)

        monkeypatch.setattr(ShardedGroup, "fetch", noted)
        trainer.train_step()
        assert len(seen) >= 2 * MODEL.layers
        assert all(stream is not compute for stream in seen)
        assert all(group.shard.dtype == torch.bfloat16 for group in trainer.gradients.groups)  # half the bytes


def test_gradients_and_weights_of_a_host_optimizer_travel_through_page_locked_memory(monkeypatch):
    """Pageable memory is copied at a fraction of the speed, and the host waits for every piece."""
    with pretended_gpu():
        trainer = Trainer(job(PLANS["optimizer"], "bf16"), TOKENS)
        threads = []
        monkeypatch.setattr(torch, "set_num_threads", threads.append)
        trainer.train_step()
        tier = trainer.tiers("host")
        assert isinstance(tier, Host)
        kinds = {dtype for _, dtype in tier.landings}
        assert kinds == {torch.float32, torch.bfloat16}
        assert all(is_locked(landing) for landing in tier.landings.values())
        assert threads  # a launcher gives the host one
