"""Metrics that are damaged, and a TensorBoard file that cannot be written, stand in no run's way."""

import threading
from pathlib import Path

import pytest

from heddle.runs.metrics import read_metrics
from heddle.training.loggers import Board
from tests.helpers.commands import call, losses, write_job
from tests.helpers.launching import python

BAD = [
    "not json",
    "[1, 2]",
    "3",
    "null",
    '{"loss": 1.0}',
    '{"step": "two"}',
    '{"step": true}',
    '{"step": 2, "loss": "low"}',
    '{"step": 2, "loss"',
    f'{{"step": 1{400 * "0"}}}',
    "",
    "[" * 100_000,
    "\ufffd\x00",
]


def test_whole_rows_are_read_and_other_lines_are_told(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path, pytest.fail) == []
    lines = [line for bad in BAD for line in (f'{{"step": {BAD.index(bad)}, "loss": NaN}}', bad)]
    path.write_text("\n".join([*lines, '{"step": 99, "lo']))
    skipped = []
    assert read_metrics(path, skipped.append) == [{"step": number, "loss": None} for number in range(len(BAD))]
    assert skipped == list(range(2, 2 * len(BAD) + 1, 2))  # and nothing of the line that a crash cut short
    path.write_bytes(b'{"step": 1}\n\xff\xfe\n{"step": 2}\n')
    assert [row["step"] for row in read_metrics(path)] == [1, 2]
    path.write_text('{"step": 1, "loss": 1e308, "mfu": 0.5}\n')
    assert read_metrics(path) == [{"step": 1, "loss": None, "mfu": 0.5}]


def test_a_run_with_damaged_metrics_is_resumed_and_nothing_is_lost(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path)
    assert call("train", "job.toml", "--set", "train.steps=3", "--set", "train.schedule=constant") == 0
    metrics = Path("runs/small/metrics.jsonl")
    rows = metrics.read_text().splitlines()
    damaged = "\n".join([rows[0], "garbage", "[]", *rows[1:]]) + "\n"
    metrics.write_text(damaged)
    assert call("train", "job.toml", "--resume", "--set", "train.schedule=constant") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 lines, the first 2, of runs/small/metrics.jsonl cannot be read" in said
    assert len(losses(Path("runs/small"))) == 6
    assert Path("runs/small/metrics.damaged.jsonl").read_text() == damaged


FULL = """
import resource, sys
from heddle.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, resource.RLIM_INFINITY))
main()
"""


def test_a_board_that_cannot_be_written_is_told_and_the_run_goes_on(tmp_path):
    """No file may be larger than 9,000 bytes: TensorBoard's grows faster than the metrics and than this model."""
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    write_job(tmp_path)
    small = ["model.hidden=4", "model.heads=1", "model.vocab=257", "train.steps=31", "data.text=corpus/[0-3].txt"]
    # checkpoints are larger than that; the board has failed by the time that one is written
    process = python("-c", FULL, "train", "job.toml", *(f"--set={change}" for change in small), cwd=tmp_path)
    said = "".join(process.communicate(timeout=120))
    assert "Traceback" not in said
    assert said.count("tensorboard cannot be written: File too large. The run continues without it") == 1
    assert len(losses(tmp_path / "runs" / "small")) == 31
    assert "The checkpoint of step 31 could not be written" in said


def test_a_board_that_cannot_be_opened_is_told(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    (tmp_path / "tensorboard").write_text("a file where a folder should be")
    told, before = [], threading.excepthook
    board = Board(tmp_path, told.append)
    board.add({"step": 1, "loss": 1.0})
    board.close()
    assert len(told) == 1
    assert "cannot be written: File exists" in told[0]
    assert threading.excepthook is before
