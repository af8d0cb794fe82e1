"""A run that loses devices goes on under a plan for those that are left, and returns when they do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from heddle.errors import HeddleError
from heddle.planning.replan import replanned
from heddle.runtime import healthy
from heddle.runtime.healthy import GpusHere, healthy_gpus
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.job import load_job
from heddle.spec.shorthand import cluster_from_table
from tests.helpers.commands import ENVIRONMENT, finish, heddle, losses, write_job
from tests.helpers.launching import PATH, free_port, python, wait_for_steps, wait_until
from tests.helpers.launching import heddle as launch

MODEL = ModelSpec(layers=4, hidden=64, heads=8, vocab=257, sequence=32, tied=False)
CHANGES = ("plan.tensor=2", "plan.data=2", "plan.zero=1", "model.layers=2", "train.schedule=constant")
# devices so slow that the planner wants all of them, however small the model is
SLOW = (
    "cluster.devices=4",
    'cluster.device={name="cpu core", memory_gib=1.0, memory_gbs=0.1, tflops={fp32=0.0001}}',
    'cluster.links=[{name="loopback", gbs=100.0}]',
    "train.precision=fp32",
)
FOUR = tuple(word for change in (*CHANGES, *SLOW) for word in ("--set", change))
STEPS = ("--set", "train.steps=24", "--set", "train.save_every=2")


def job(plan: Plan, batch: int = 8, **cluster: object) -> Job:
    where = cluster_from_table({"preset": "dgx-h100", **cluster})
    return Job(
        model=MODEL, data=Data(text="-"), train=Train(global_batch=batch, precision="bf16"), cluster=where, plan=plan
    ).planned


@pytest.mark.parametrize("count", [1, 2, 5, 7, 8, 12, 15])
def test_any_number_of_devices_that_are_left_gets_a_plan_of_at_most_as_many(count):
    given = job(Plan(tensor=2, pipeline=2, data=4, microbatch=2), nodes=2)
    now = replanned(given, count)
    assert 1 <= now.plan.world <= count
    assert now.cluster == given.cluster
    assert now.predicted is not None
    now.plan.check(MODEL, 8, 32)


def test_what_a_plan_computes_stays_as_it_was():
    given = job(Plan(data=8, zero=1, compress_gradients="int8"))
    assert replanned(given, 4).plan.compress_gradients == "int8"


@pytest.mark.parametrize(
    ("change", "word"),
    [({"local_steps": 5}, "number of replicas"), ({"pipeline": 2, "update": "2bw"}, "number of stages")],
)
def test_plans_whose_degrees_are_part_of_what_they_compute_are_not_changed(change, word):
    given = job(Plan(**{"data": 4} | change))
    with pytest.raises(HeddleError, match="4 processes are there") as caught:
        replanned(given, 4)
    assert word in caught.value.why


def test_no_plan_that_fits_is_told():
    given = job(Plan(data=8))
    tiny = replace(given.cluster, device=replace(given.cluster.device, memory_gib=1e-4))
    with pytest.raises(HeddleError, match="no plan for them fits"):
        replanned(replace(given, cluster=tiny), 2)


NVIDIA = """#!/bin/sh
case "$2" in *:{lost}:*) echo "Unable to determine the device handle: GPU is lost" >&2; exit 15;; esac
echo "GPU-$2"
"""


def test_gpus_that_do_not_answer_are_left_out(tmp_path, monkeypatch):
    listed = tmp_path / "gpus"
    for place in range(4):
        (listed / f"0000:0{place}:00.0").mkdir(parents=True)
    (tmp_path / "nvidia-smi").write_text(NVIDIA.format(lost="02"))
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("HEDDLE_DEVICE", raising=False)
    assert healthy_gpus(listed) == [f"GPU-0000:0{place}:00.0" for place in (0, 1, 3)]
    monkeypatch.setattr(healthy, "healthy_gpus", lambda: healthy_gpus(listed))
    here = GpusHere()
    assert here.count() == 3
    here.choose()
    assert os.environ["CUDA_VISIBLE_DEVICES"].count("GPU-") == 3
    assert here.count() == 3
    here.choose_all()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert GpusHere().count() == 2


def close(run: Path, whole: Path) -> bool:
    """Other plans add in another order: losses differ by rounding."""
    own, other = losses(run), losses(whole)
    return len(own) == len(other) and all(abs(a / b - 1) < 1e-5 for a, b in zip(own, other, strict=True))


@pytest.mark.dist
def test_four_processes_become_two_and_four_again(tmp_path):
    """As nodes come and go under a launcher: each start has as many processes as there are."""
    write_job(tmp_path)
    heddle("train", "job.toml", "--name", "whole", *FOUR, *STEPS, cwd=tmp_path)
    run = tmp_path / "runs" / "small"

    def started(world: int, *more: str) -> list:
        port, given = free_port(), {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
        return [
            launch(
                *("train", "job.toml", *FOUR, *STEPS, *more),
                cwd=tmp_path,
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
                **given,
            )
            for rank in range(world)
        ]

    def lost(processes: list, steps: int) -> None:
        wait_for_steps(run, steps)
        for process in processes:
            process.send_signal(signal.SIGKILL)
        for process in processes:
            process.communicate()

    refused = started(2)
    assert "2 processes started, but the plan needs" in "".join(finish(each, 2) for each in refused)
    lost(started(4), 6)
    before = len(losses(run))
    two = started(2, "--resume")
    lost(two, before + 4)
    assert json.loads((run / "given-plan.json").read_text())["plan"]["data"] == 2
    assert load_job(run / "job.toml").planned.plan.world == 2
    three = started(3, "--resume", "--set", "train.steps=16", "--allow-changes")
    said = [finish(each) for each in three]
    assert "3 of 4 devices are left, 1 of them idle" in said[0]
    four = started(4, "--resume")
    assert "devices are left" not in "".join(finish(each) for each in four)
    assert not (run / "given-plan.json").exists()
    assert close(run, tmp_path / "runs" / "whole")


OWN = """
import os, sys, threading, time
from pathlib import Path
from heddle.runtime import launch
from heddle.runtime.healthy import GpusHere
launch.LOOK = 0.05
GpusHere.count = lambda self: int(Path("devices").read_text())  # as if these were GPUs
GpusHere.choose = lambda self: None
from heddle.cli import main
sys.argv = ["heddle", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
@pytest.mark.dist
def test_our_own_processes_go_on_with_the_devices_that_are_left_and_return(tmp_path):
    write_job(tmp_path)
    steps = ("--set", "train.steps=60", "--set", "train.save_every=2")
    heddle("train", "job.toml", "--name", "whole", *FOUR, *steps, cwd=tmp_path)
    (tmp_path / "devices").write_text("4")
    run = tmp_path / "runs" / "small"
    process = python("-c", OWN, "train", "job.toml", *FOUR, *steps, cwd=tmp_path)
    wait_for_steps(run, 6)
    (tmp_path / "devices").write_text("2")
    pid = json.loads((run / "processes" / "rank-00003.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until((run / "given-plan.json").exists, "the run was not planned anew")
    before = len(losses(run))
    wait_for_steps(run, before + 6)
    assert load_job(run / "job.toml").planned.plan.world == 2
    (tmp_path / "devices").write_text("4")
    said = finish(process)
    assert "A process died; resuming from the newest checkpoint (restart 1)." in said
    assert "2 of 4 devices are left." in said
    assert "All 4 devices are back: the run returns to its own plan." in said
    assert "All devices are back; resuming from the newest checkpoint (restart 2)." in said
    assert not (run / "given-plan.json").exists()
    assert close(run, tmp_path / "runs" / "whole")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.dist
def test_a_node_that_returns_under_torchrun(tmp_path):
    """Two agents of two processes each; one is killed with its own, and comes back."""
    write_job(tmp_path)
    run, port = tmp_path / "runs" / "small", free_port()
    endless = ("--set", "train.steps=1000000", "--set", "train.save_every=5", "--auto-resume")
    patience = "last_call_timeout=3,keep_alive_interval=3,keep_alive_max_attempt=5"
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-conf", patience]
    size = ["--nnodes", "1:2", "--nproc-per-node", "2", "--max-restarts", "20", "--monitor-interval", "1"]

    def agent() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "torch.distributed.run", *size, *meeting, "-m", "heddle", "train", "job.toml"]
        with (tmp_path / "log").open("a") as log:
            told = {"stdout": log, "stderr": log, "cwd": tmp_path, "text": True}
            own = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
            return subprocess.Popen([*command, *FOUR, *endless], env=ENVIRONMENT | {"PATH": PATH} | own, **told)

    def lost(node: subprocess.Popen[str]) -> None:
        for pid in [*children(node.pid), node.pid]:
            os.kill(pid, signal.SIGKILL)
        node.wait()

    def goes_on() -> None:
        wait_for_steps(run, len(losses(run)) + 10)

    nodes = [agent(), agent()]
    try:
        wait_for_steps(run, 10)
        lost(nodes.pop())
        wait_until((run / "given-plan.json").exists, "the run was not planned anew")
        goes_on()
        nodes.append(agent())
        wait_until(lambda: not (run / "given-plan.json").exists(), "the run did not return to its own plan")
        goes_on()
    finally:
        for node in nodes:
            lost(node)
