"""A job that names no precision means the same to every command, and each says that it was chosen."""

import json
import tomllib
from pathlib import Path

import pytest

from tests.helpers.commands import call, losses, write_job

CHOSEN = "bf16 (chosen for A100-SXM4-80GB)"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_job(tmp_path / "job")
    monkeypatch.chdir(tmp_path / "job")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def said(capsys, *arguments):
    assert call(*arguments) == 0, capsys.readouterr().err
    return " ".join(capsys.readouterr().out.split())


def stated(path):
    return tomllib.loads(Path(path).read_text())["train"]["precision"]


def test_every_command_chooses_alike_and_says_so(folder, capsys):
    job = Path("gpu.toml")
    job.write_text(Path("job.toml").read_text() + '[cluster]\npreset = "dgx-a100"\n')
    assert CHOSEN in said(capsys, "plan", job, "--devices", "1", "-o", "plan.toml")
    assert stated("plan.toml") == "bf16"
    assert CHOSEN in said(capsys, "simulate", job)
    assert json.loads(said(capsys, "simulate", job, "--json"))["precision"] == "bf16"
    assert CHOSEN in said(capsys, "train", job, "--dry-run")
    assert json.loads(said(capsys, "train", job, "--dry-run", "--json"))["precision"] == "bf16"
    assert CHOSEN in said(capsys, "prove", job, "--steps", "2")
    assert CHOSEN in said(capsys, "train", job, "--set=train.steps=2", "--set=train.save_every=1")
    assert stated("runs/small/job.toml") == stated("runs/small/checkpoints/step-00000002/job.toml") == "bf16"
    said(capsys, "report", job, "-o", "page.html")
    assert CHOSEN in Path("page.html").read_text()
    # what was written states it: nobody chooses again
    shown = said(capsys, "simulate", "plan.toml")
    assert ", bf16 " in shown
    assert "chosen" not in shown
    assert "fp16 (chosen" not in said(capsys, "simulate", job, "--set=train.precision=fp16")


def a_gpu_appears(folder, monkeypatch):
    """An nvidia-smi that tells of one."""
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA RTX 4090, 24564, 8.9'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_run_goes_on_in_its_own_precision_whatever_the_devices_are_best_at(folder, capsys, monkeypatch):
    assert "fp32 (chosen for cpu core)" in said(capsys, "train", "job.toml", "--set=train.steps=3")
    a_gpu_appears(folder, monkeypatch)
    shown = said(capsys, "train", "job.toml", "--resume", "--allow-changes")  # to more steps
    assert ", fp32, " in shown
    assert "bf16" not in shown
    assert stated("runs/small/job.toml") == "fp32"
    assert len(losses(Path("runs/small"))) == 6
    shown = said(capsys, "train", "job.toml", "--name", "new", "--set=train.steps=1")
    assert "bf16 (chosen for NVIDIA RTX 4090)" in shown
    # what it says itself is another precision, and refused as ever
    assert call("train", "job.toml", "--resume", "--set=train.precision=bf16") == 2
    assert "train.precision was fp32, is bf16" in capsys.readouterr().err
