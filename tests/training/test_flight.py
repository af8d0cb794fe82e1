"""A step waits for nothing, and the loop reads it one step later where its device runs ahead."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from heddle.runs.folder import Run
from heddle.runtime.stop_request import StopRequest
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training import flight
from heddle.training.step.trainer import Trainer
from tests.helpers.commands import call, losses, steps_of, write_job

MODEL = ModelSpec(layers=2, hidden=32, heads=4, vocab=64, sequence=16, dropout=0.1)
# what makes a host wait for its device: reading a number, a shape that depends on numbers, copying to the host
METHODS = ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__", "nonzero")
OPERATORS = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "equal", "is_nonzero")


class Waits(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, _types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in METHODS:
            self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


class WaitsBelow(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, _types, args=(), kwargs=None):
        if func._schema.name.partition("::")[2] in OPERATORS:
            self.seen.append(func._schema.name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_nothing_in_a_step_waits_for_the_device(precision, recompute):
    train = Train(global_batch=4, precision=precision, clip=0.5)
    job = Job(model=MODEL, data=Data(text="unused"), train=train, plan=Plan(microbatch=2, recompute=recompute))
    trainer = Trainer(job, np.arange(1000, dtype=np.uint16) % 64)
    trainer.train_step()  # the first one makes the optimizer's state
    with Waits() as above, WaitsBelow() as below:
        begun = trainer.start_step()
        assert (above.seen, below.seen) == ([], [])
        begun.read()
    assert above.seen == ["tolist"]


def test_the_count_is_able_to_fail():
    with Waits() as above, WaitsBelow() as below:
        assert float(torch.ones(()))
        torch.ones(3).nonzero()
    assert above.seen
    assert below.seen


@pytest.fixture
def ahead(monkeypatch):
    """A CPU that counts as a device which runs ahead of its host."""
    monkeypatch.setattr(Trainer, "in_flight", property(lambda _: 1))


def test_steps_in_flight_give_the_same_rows(tmp_path, ahead, monkeypatch):
    write_job(tmp_path / "job")
    monkeypatch.chdir(tmp_path / "job")
    options = ["--set", "train.save_every=2", "--set", "train.eval_every=3"]
    assert call("train", "job.toml", "--name", "ahead", *options) == 0
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path / "job")
    assert call("train", "job.toml", "--name", "plain", *options) == 0
    assert losses(tmp_path / "job/runs/ahead") == losses(tmp_path / "job/runs/plain")
    assert [row["step"] for row in steps_of(tmp_path / "job/runs/ahead")] == [1, 2, 3, 4, 5, 6]
    assert all(row["seconds"] > 0 for row in steps_of(tmp_path / "job/runs/ahead"))


def test_more_steps_are_in_flight_once_the_trainer_allows_it(tmp_path):
    """A pipeline without a flush hands out more steps after its warm-up; reading each at once would be a flush."""
    job = Job(model=MODEL, data=Data(text="unused"), train=Train(global_batch=4), plan=Plan(microbatch=4))
    trainer = Trainer(job, np.arange(1000, dtype=np.uint16) % 64)
    landed = []
    begun = flight.Flight(trainer, Run(tmp_path), 1e9, None, landed.append)
    begun.step(StopRequest(answer=False))
    assert landed == [1]
    allowed = property(lambda self: 2)
    with patch.object(Trainer, "in_flight", allowed):
        for _ in range(3):
            begun.step(StopRequest(answer=False))
    assert landed == [1, 2]
    begun.land()
    assert landed == [1, 2, 3, 4]


def test_what_is_not_finite_is_never_saved(tmp_path, ahead, monkeypatch, capsys):
    write_job(tmp_path / "job")
    monkeypatch.chdir(tmp_path / "job")
    plain = Trainer.start_step

    def poisoned(self, stop=False):
        begun = plain(self, stop)
        if self.step == 4:
            begun.numbers.values = torch.full((3,), torch.nan)
        return begun

    monkeypatch.setattr(Trainer, "start_step", poisoned)
    assert call("train", "job.toml", "--name", "poisoned", "--set", "train.save_every=2") == 2
    assert "Step 4 has loss nan" in capsys.readouterr().err
    saved = sorted(path.name for path in (tmp_path / "job/runs/poisoned/checkpoints").iterdir())
    assert saved == ["step-00000002"]


def test_a_gradient_that_is_not_finite_changes_no_weight():
    job = Job(model=MODEL, data=Data(text="unused"), train=Train(global_batch=4), plan=Plan())
    trainer = Trainer(job, np.arange(1000, dtype=np.uint16) % 64)
    trainer.train_step()
    before = [piece.master.clone() for piece in trainer.optimizer.pieces]
    for piece in trainer.optimizer.pieces:
        piece.master.grad = torch.zeros_like(piece.master)
    trainer.optimizer.step(0.1, torch.tensor(torch.inf, dtype=torch.float64))
    assert all(torch.equal(a, piece.master) for a, piece in zip(before, trainer.optimizer.pieces, strict=True))
