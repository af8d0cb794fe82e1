"""What a run does on GPUs and nowhere else, tried where there are none: what would be asked of them is written down."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.utils._python_dispatch import TorchDispatchMode

from heddle.parallel.mesh import Axis, Mesh
from heddle.runtime.stream import StreamMarks
from heddle.runtime.together import Together
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.train import loop, opening
from heddle.train.phases import Phases
from heddle.train.step import trainer as trainer_module
from heddle.train.step.trainer import Trainer
from heddle.train.watchdog import Doctor

MODEL = ModelSpec(layers=2, hidden=16, heads=2, vocab=31, sequence=8)
TOKENS = np.arange(1000).astype("<u2") % 31


def job(**train: object) -> Job:
    return Job(model=MODEL, data=Data(text="-"), train=Train(global_batch=4, **train), plan=Plan(microbatch=2))


@pytest.mark.parametrize(
    ("local", "started_by_heddle", "verifies"), [(0, False, True), (3, False, False), (0, True, False)]
)
def test_tokens_are_checked_by_one_rank_of_a_node(monkeypatch, local, started_by_heddle, verifies):
    """All would read all of a file of terabytes; who started its processes by itself has read it before."""
    asked = []

    def prepared_for(data: Data, **_: object) -> SimpleNamespace:
        asked.append(data.verify)
        return SimpleNamespace()

    monkeypatch.setattr(opening, "prepared_for", prepared_for)
    monkeypatch.setattr(opening, "check_vocab", lambda *_: None)
    monkeypatch.setattr(opening, "local_place", lambda: (local, 8))
    monkeypatch.delenv(opening.NOTES, raising=False)
    if started_by_heddle:
        monkeypatch.setenv(opening.NOTES, "-")
    opening.prepare(job(), Together(Mesh()), Console(quiet=True))
    assert asked == [verifies]


def test_steps_are_handed_out_and_batches_read_ahead_into_page_locked_memory(monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self.shape) or self)
    plain = Trainer(job(), TOKENS)
    plain.train_step()
    assert not pinned
    assert plain.in_flight == 0
    monkeypatch.setattr(trainer_module, "runs_ahead", lambda _: True)
    monkeypatch.setattr(trainer_module, "on_gpu", lambda _: True)
    ahead = Trainer(job(), TOKENS)
    ahead.train_step()
    assert ahead.in_flight == 1
    assert ahead.batches.pending is not None
    ahead.batches.pending[1].result()
    assert pinned == 2 * 2 * 2 * [torch.Size([16])]  # steps, microbatches, inputs and targets
    waits = []
    plain_to = torch.Tensor.to

    def to(x: torch.Tensor, *where: object, **options: object) -> torch.Tensor:
        waits.extend([not options.get("non_blocking")] if x.dtype == torch.int64 and x.shape == (16,) else [])
        return plain_to(x, *where, **options)

    monkeypatch.setattr(torch.Tensor, "to", to)
    ahead.train_step()
    assert waits == 4 * [False]  # a copy that the host waits for would wait for all that the device was given before


class Copies(TorchDispatchMode):
    """Counts what copies masters into parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "copy_" in func._schema.name:
            self.seen.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def test_an_update_copies_all_pieces_at_once():
    """Hundreds of small copies would be hundreds of kernels."""
    trainer = Trainer(replace(job(), train=replace(job().train, precision="bf16")), TOKENS)
    trainer.train_step()
    for piece in trainer.optimizer.pieces:
        piece.master.grad = torch.zeros_like(piece.master)
    with Copies() as copies:
        trainer.optimizer.step(0.1, torch.ones((), dtype=torch.float64))
    assert len(trainer.optimizer.pieces) > 20
    assert [name for name in copies.seen if "foreach" in name] == ["aten::_foreach_copy_"]
    assert len(copies.seen) <= 3


class ReachedError(Exception):
    """As far as a test goes."""


def test_what_a_run_was_given_is_looked_at_before_it_reads_its_data(monkeypatch):
    """On GPUs that do not fit the plan, or with folders that not all see, nothing is tokenised in vain."""
    looked = []

    def prepare(*_: object) -> None:
        raise ReachedError

    monkeypatch.setattr(loop, "_check_folder", lambda *_: None)
    monkeypatch.setattr(loop, "check_allotment", lambda *_: looked.append("devices"))
    monkeypatch.setattr(loop, "check_shared", lambda folders, _: looked.extend(path.name for path in folders))
    monkeypatch.setattr(loop, "prepare", prepare)
    with pytest.raises(ReachedError):
        loop.train_rank(Mesh(), job(), loop.RunOptions())
    assert looked == ["devices", "runs", "prepared"]


def test_the_start_says_which_devices_precision_and_settings(monkeypatch, capsys):
    monkeypatch.setattr(loop, "on_gpu", lambda _: True)
    monkeypatch.setattr(loop, "peak_flops", lambda *_: (1e15, "stated for H100"))
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    loop._introduce(job().planned, torch.device("cpu"), 1000, "8 × NVIDIA H100 on 1 node", Console(width=200))
    said = capsys.readouterr().out
    assert f"{job().precision} (chosen for {job()._device.name})" in said
    assert "Found 8 × NVIDIA H100 on 1 node." in said
    assert said.count("NCCL_SOCKET_IFNAME=ib0") == 1


def test_a_device_that_runs_ahead_is_marked_for_the_doctor(monkeypatch):
    mesh, given = Mesh(world=Axis(0, (0, 1))), []
    monkeypatch.setattr(loop, "runs_ahead", lambda _: True)
    monkeypatch.setattr(loop, "make_trainer", lambda _job, _tokens, _mesh, recorder: given.append(recorder))
    doctor, plan = Doctor(mesh, Plan(data=2), Phases()), Plan(data=2, microbatch=1)
    adapter = loop.Adapter(replace(job(), plan=plan).planned, Together(Mesh()), torch.device("cpu"))
    loop._made(adapter, SimpleNamespace(train=TOKENS), mesh, doctor, trace=False)
    assert isinstance(doctor.stream, StreamMarks)
    assert given == [doctor.stream]
