"""Disks that fill up, and processes that are killed while they write: what was whole stays whole."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from heddle import durable as files
from heddle.checkpoint import places
from heddle.checkpoint.checkpoint import checkpoints, damage, step_of
from heddle.durable import replace_text
from heddle.parallel.mesh import Mesh
from heddle.runs.metrics import read_metrics
from tests.helpers.commands import call, heddle, losses, write_job
from tests.helpers.launching import python

FULL = """
import resource, sys
from heddle.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
main()
"""


def on_a_full_disk(room: int, *arguments: str) -> str:
    """What `heddle` says when no file may be larger than this many bytes; it ends with 2."""
    process = python("-c", FULL, str(room), *arguments, cwd=Path.cwd())
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2, errors
    assert "Traceback" not in errors
    return errors


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no limits")
def test_a_run_that_fills_the_disk_goes_on_when_there_is_room_again(tmp_path):
    write_job(tmp_path)
    folder = tmp_path / "runs" / "small" / "checkpoints"
    constant = ("--set", "train.schedule=constant")
    heddle("train", "job.toml", "--set", "train.steps=2", *constant, cwd=tmp_path)
    said = on_a_full_disk(60_000, "train", "job.toml", "--resume", *constant)
    assert "error: The checkpoint of step 6 could not be written to runs/small/checkpoints." in said
    assert "File too large" in said
    assert "--resume" in said
    assert [step_of(path) for path in checkpoints(folder)] == [2]
    assert damage(folder / "step-00000002", Mesh()) is None
    assert call("train", "job.toml", "--resume", *constant) == 0
    assert call("train", "job.toml", "--name", "whole", *constant) == 0
    assert losses(tmp_path / "runs" / "small") == losses(tmp_path / "runs" / "whole")
    assert not list(folder.glob(".*"))  # nothing of the failed one is left


@pytest.mark.skipif(sys.platform == "win32", reason="has no limits")
def test_metrics_that_cannot_be_written_end_the_run_with_a_word(tmp_path):
    write_job(tmp_path)
    assert call("train", "job.toml") == 0
    said = on_a_full_disk(5_000, "train", "job.toml", "--resume", "--set", "train.steps=200")
    assert "error: The run folder runs/small cannot be written." in said
    assert "File too large" in said
    metrics = tmp_path / "runs" / "small" / "metrics.jsonl"
    assert 6 < len(read_metrics(metrics)) < 200  # the last line is cut off, and passed over
    assert call("train", "job.toml", "--resume", "--allow-changes", "--set", "train.steps=8") == 0
    assert [row["step"] for row in read_metrics(metrics) if "loss" in row] == list(range(1, 9))


def test_a_file_is_replaced_at_once_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    replace_text(path, "old")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        replace_text(path, "new")
    assert path.read_text() == "old"
    monkeypatch.undo()
    replace_text(path, "new")
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_checkpoint_that_is_half_deleted_is_none(tmp_path, monkeypatch):
    write_job(tmp_path)
    folder = tmp_path / "runs" / "small" / "checkpoints"
    with monkeypatch.context() as patch:
        patch.setattr(places.shutil, "rmtree", lambda path, *_, **__: None)  # killed before it removes anything
        assert call("train", "job.toml", "--set", "train.save_every=2", "--set", "train.keep_last=1") == 0
    assert [step_of(path) for path in checkpoints(folder)] == [6]
    assert list(folder.glob(".partial-*"))
    assert call("train", "job.toml", "--resume", "--set", "train.steps=8") == 0
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000006", "step-00000008"]


def test_copies_that_a_user_keeps_among_the_checkpoints_are_left_alone(tmp_path):
    write_job(tmp_path)
    folder = tmp_path / "runs" / "small" / "checkpoints"
    assert call("train", "job.toml") == 0
    shutil.copytree(folder / "step-00000006", folder / "step-00000006-good")
    assert call("train", "job.toml", "--resume", "--set", "train.steps=8", "--set", "train.keep_last=1") == 0
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000006-good", "step-00000008"]


@pytest.mark.parametrize("made", [(), ("checkpoints",), ("checkpoints", "tokenizer")])
def test_a_process_that_dies_before_the_run_folder_is_complete_is_started_again(tmp_path, monkeypatch, capsys, made):
    write_job(tmp_path)
    for name in made:
        (tmp_path / "runs" / "small" / name).mkdir(parents=True)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert call("train", "job.toml") == 0
    assert "starting over: there is no checkpoint yet (restart 1)" in capsys.readouterr().out
    assert len(losses(tmp_path / "runs" / "small")) == 6
    assert Path("runs/small/tokenizer/tokenizer.json").is_file()
