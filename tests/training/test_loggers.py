"""Loggers, functions of one's own, early stopping, the best checkpoint, and the command at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import heddle
from heddle.checkpoint.checkpoint import checkpoints
from heddle.errors import HeddleError
from heddle.spec import Train
from heddle.training.loggers import Careful, Functions, check_loggers
from heddle.training.outcome import Best, check_sendable

JOB = """
[model]
layers = 1
hidden = 16
heads = 2
vocab = 257
sequence = 16
[data]
text = "text.txt"
validation = 0.3
[train]
steps = 6
global_batch = 2
eval_every = 1
eval_batches = 1
precision = "fp32"
MORE
[plan]
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("all work and no play makes a dull text. " * 60)

    def make(more: str = "", *changes: str) -> heddle.Job:
        (tmp_path / "job.toml").write_text(JOB.replace("MORE", more))
        return heddle.load_job("job.toml", list(changes))

    return make


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_functions_are_given_what_metrics_has(job, tmp_path):
    steps, evaluations = [], []
    heddle.train(job(), on_step=steps.append, on_evaluation=evaluations.append)
    found = rows(tmp_path / "runs" / "run")
    assert [row["loss"] for row in found if "loss" in row] == [row["loss"] for row in steps]
    assert [row for row in found if "validation_loss" in row] == evaluations
    assert len(steps) == len(evaluations) == 6


def test_a_function_that_fails_is_told_once_and_stops_nothing(job, capsys):
    calls = []

    def broken(row):
        calls.append(row)
        raise ValueError("no such thing")

    assert heddle.train(job(), on_step=broken).step == 6
    assert len(calls) == 1
    assert capsys.readouterr().out.count("no such thing") == 1


def test_a_logger_that_cannot_begin_is_left_out():
    told = []

    def fail():
        raise RuntimeError("no network")

    logger = Careful("wandb", fail, told.append)
    logger.add({"step": 1})
    logger.close()
    assert len(told) == 1
    assert "no network" in told[0]


def test_a_logger_that_is_not_installed_is_said_before_anything_is_made(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(HeddleError, match="'mlflow' is not installed"):
        check_loggers(("mlflow",))


def test_functions_that_cannot_travel_are_refused():
    check_sendable(Functions(print, None))
    with pytest.raises(HeddleError, match="cannot be sent"):
        check_sendable(Functions(lambda row: row, None))


def test_a_run_stops_when_nothing_becomes_better_and_keeps_its_best(job, tmp_path):
    """A learning rate that ruins the model: the first evaluations are the best."""
    given = job("learning_rate = 3.0\npatience = 2\nkeep_best = true\nkeep_last = 1\nclip = 0.0")
    result = heddle.train(given)
    assert result.step < 6
    best = json.loads((tmp_path / "runs" / "run" / "best.json").read_text())
    assert best["worse"] == 2
    assert result.step == best["step"] + 2
    kept = [path.name for path in checkpoints(tmp_path / "runs" / "run" / "checkpoints")]
    assert kept == [f"step-{step:08}" for step in sorted({best["step"], result.step})]


def test_the_best_is_remembered_by_a_run_that_goes_on(tmp_path):
    train = Train(patience=2)
    best = Best(tmp_path, train, 0)
    assert best.better(1, 3.0, writes=True)
    assert not best.better(2, 3.5, writes=True)
    again = Best(tmp_path, train, 2)
    assert (again.loss, again.at, again.worse) == (3.0, 1, 1)
    assert not again.better(3, 3.0, writes=True)
    assert again.over()
    assert Best(tmp_path, train, 0).at is None  # it went back before its best


@pytest.mark.parametrize(("steps", "status"), [(6, "done"), (None, "failed")])
def test_a_command_is_told_how_a_run_ended(job, tmp_path, steps, status):
    given = job('notify = "echo $HEDDLE_STATUS $HEDDLE_STEP > told"')
    if steps is None:
        (tmp_path / "text.txt").write_text("")
        with pytest.raises(HeddleError):
            heddle.train(given)
    else:
        heddle.train(given)
    assert (tmp_path / "told").read_text().split()[0] == status


def test_weights_and_biases_offline_is_one_run_over_resume(job, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    given = job('log = ["wandb"]')
    heddle.train(given)
    first = json.loads((tmp_path / "runs" / "run" / "wandb.json").read_text())["id"]
    heddle.train(job('log = ["wandb"]', "train.steps=8"), resume=True)
    assert json.loads((tmp_path / "runs" / "run" / "wandb.json").read_text())["id"] == first
    kept = list((tmp_path / "runs" / "run" / "wandb").glob(f"offline-run-*-{first}"))
    assert len(kept) == 2
    assert not (tmp_path / "runs" / "run" / "tensorboard").exists()
