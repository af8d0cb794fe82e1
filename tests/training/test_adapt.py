"""`[plan] adapt`: the first steps decide once what layers do, and nothing that is learned changes."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest

from heddle.spec import load_job
from heddle.training.adapt import TIMED, WATCHED
from tests.helpers.commands import call, heddle, losses, start, write_job

DECIDED = WATCHED + TIMED  # the step after which it is
STEPS = DECIDED + 4
# A machine that is nothing like this one: whatever a step takes is not what was predicted. Layers that all recompute
# are too careful for its memory, so the first look changes them.
MACHINE = """
[cluster]
name = "other"
devices = 4
device = { name = "core", memory_gib = 4.0, memory_gbs = 1e4, host = true, tflops = { fp32 = 100.0 } }
links = [{ name = "loopback", gbs = 100.0 }]
"""


def write(folder, plan: str = "") -> None:
    path = write_job(folder)
    text = path.read_text().replace("layers = 1", "layers = 4").replace("steps = 6", f"steps = {STEPS}")
    text = re.sub(r"\[plan\].*?\n\n", f'[plan]\nrecompute = "full"\n{plan}\n', text, flags=re.DOTALL)
    path.write_text(text + MACHINE)


def record(run) -> dict:
    return json.loads((run / "adapted.json").read_text())


def test_strategies_change_once_and_losses_do_not(tmp_path, monkeypatch, capsys):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert call("train", "job.toml", "--name", "plain") == 0
    adapt = ("--set", "plan.adapt=true", "--name", "adapted")
    assert call("train", "job.toml", *adapt) == 0
    said = capsys.readouterr().out
    assert said.count("After step") == 1
    assert f"After step {DECIDED}: A step takes" in said
    assert "Layers 0–3: keep everything (before: recompute in full)" in said
    run = tmp_path / "runs" / "adapted"
    assert losses(run) == losses(tmp_path / "runs" / "plain")  # to the bit
    assert record(run)["changed"] is True
    assert record(run)["step"] == DECIDED
    assert load_job(run / "job.toml").plan.recompute == "none"
    assert load_job(run / "job.toml").predicted.step_seconds == record(run)["predicted"]["step_seconds"]
    # who resumes it, with the job's file as it was, goes on with what was decided
    before = (run / "adapted.json").read_bytes()
    assert call("train", "job.toml", *adapt, "--resume", "--set", f"train.steps={STEPS + 8}") == 0
    assert "After step" not in capsys.readouterr().out
    assert (run / "adapted.json").read_bytes() == before
    assert load_job(run / "job.toml").plan.recompute == "none"


def test_what_adapts_must_be_predictable(tmp_path, monkeypatch, capsys):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    unknown = ("--set", 'cluster.device={name = "x", memory_gib = 4.0}')
    assert call("train", "job.toml", "--set", "plan.adapt=true", *unknown) == 2
    said = capsys.readouterr().err
    assert "has no device.tflops.fp32 for x" in said
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").glob("*/job.toml"))
    assert call("train", "job.toml", "--set", "plan.adapt=true", "--set", "train.compile=true") == 2
    assert "adapt = true cannot be combined with train.compile on a CPU" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize(
    "split", ["pipeline = 2\ndata = 2\nzero = 1", "tensor = 2\nsequence = true", "data = 2\nzero = 3"]
)
def test_several_processes_adapt_alike(tmp_path, split):
    write(tmp_path, split)
    heddle("train", "job.toml", "--name", "plain", cwd=tmp_path)
    said = heddle("train", "job.toml", "--name", "adapted", "--set", "plan.adapt=true", cwd=tmp_path)
    assert said.count("After step") == 1
    run = tmp_path / "runs" / "adapted"
    assert record(run)["changed"] is True
    assert losses(run) == pytest.approx(losses(tmp_path / "runs" / "plain"), abs=1e-5)


@pytest.mark.slow
@pytest.mark.dist
def test_a_rank_that_dies_afterwards_brings_back_what_was_decided(tmp_path):
    write(tmp_path, "pipeline = 2")
    steps = ("--set", "train.steps=400")
    heddle("train", "job.toml", "--name", "plain", *steps, cwd=tmp_path)
    process = start("train", "job.toml", "--name", "killed", "--set", "plan.adapt=true", *steps, cwd=tmp_path)
    run = tmp_path / "runs" / "killed"
    metrics = run / "metrics.jsonl"
    while not metrics.exists() or len(metrics.read_text().splitlines()) < DECIDED + 10:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.kill(int(re.search(r'"pid": (\d+)', (run / "processes" / "rank-00001.json").read_text())[1]), signal.SIGKILL)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, out + errors
    assert out.count("After step") == 1
    assert "resuming from the newest checkpoint (restart 1)" in out
    assert losses(run) == pytest.approx(losses(tmp_path / "runs" / "plain"), abs=1e-5)
    assert load_job(run / "job.toml").plan.recompute == "none"
