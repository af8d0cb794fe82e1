"""All that a rank does, on a GPU that is only pretended: nothing mixes memories, or reads what has not arrived."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
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
from heddle.spec.layer_memory import LayerRun
from heddle.spec.tune import Lora, Tune
from heddle.training.step import eight_bits
from heddle.training.step.eight_bits import EightBitAdamW
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
    "some": Plan(microbatch=2, layers=(LayerRun(layers="0", offload=("optimizer:host",)),)),
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


@pytest.mark.parametrize("name", thinned(PLANS, slow=("recompute", "input", "some", "optimizer")))
def test_what_a_rank_does_keeps_device_and_host_apart(tmp_path, name):
    """And it learns the same bits as on the CPU that it really runs on."""
    precision = "bf16" if name in ("optimizer", "some", "all") else "fp32"
    with pretended_gpu():
        found = lived(PLANS[name], precision, tmp_path / "there")
    assert found == lived(PLANS[name], precision, tmp_path / "here")
    assert found[1] == found[2]


LEARN: dict[str, dict[str, Any]] = {
    "muon": {"optimizer": "muon"},
    "eight bits": {"optimizer": "adamw8bit"},
    "experts": {"model": replace(MODEL, experts=4, top_k=2, activation="swiglu", bias="none")},
    "adapters": {"tune": Tune(lora=Lora(rank=4))},
    "four bits": {"tune": Tune(lora=Lora(rank=4), base="nf4")},
}


@pytest.mark.parametrize("name", thinned(LEARN, slow=("adapters",)))
def test_whatever_learns_keeps_device_and_host_apart(tmp_path, monkeypatch, name):
    given = LEARN[name]
    train = replace(job(PLANS["plain"], "fp32").train, **{key: given[key] for key in given if key == "optimizer"})
    whole = replace(job(PLANS["plain"], "fp32"), train=train, **{k: given[k] for k in given if k != "optimizer"})
    monkeypatch.setattr(sys.modules[__name__], "job", lambda *_: whole)
    with pretended_gpu():
        found = lived(PLANS["plain"], "fp32", tmp_path / "there")
    assert found == lived(PLANS["plain"], "fp32", tmp_path / "here")


def test_blocks_of_moments_are_where_they_are_used(monkeypatch):
    """What the host brings in a step it waits for: it brings the lengths of uneven blocks once."""
    eight = replace(job(PLANS["plain"], "fp32").train, optimizer="adamw8bit")
    with pretended_gpu():
        uneven = replace(job(PLANS["plain"], "fp32"), train=eight, model=replace(MODEL, ffn=129))
        trainer = Trainer(uneven, TOKENS)
        trainer.train_step()
        adam = trainer.optimizer.adam
        assert isinstance(adam, EightBitAdamW)
        assert any(blocks is not None and not blocks.even for blocks in adam.blocks.values())
        for piece in trainer.optimizer.pieces:
            piece.master.grad = torch.zeros_like(piece.master)
        monkeypatch.setattr(eight_bits.torch, "from_numpy", lambda _: pytest.fail("brought again"))
        adam.step()


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


def test_weights_are_gathered_on_gpus_of_amd(monkeypatch):
    """PyTorch's builds for them lack the operator that gives memory back."""
    expected = Trainer(job(PLANS["all"], "bf16"), TOKENS).train_step().loss

    def missing(*_: object) -> None:
        pytest.fail("there is no such operator")

    with pretended_gpu():
        monkeypatch.setattr(torch.version, "hip", "7.1")
        monkeypatch.setattr(torch.ops.inductor, "resize_storage_bytes_", missing)
        assert Trainer(job(PLANS["all"], "bf16"), TOKENS).train_step().loss == expected


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
