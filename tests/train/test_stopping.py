"""Requests to stop, and runs of several processes that are killed."""

import multiprocessing
import os
import re
import shlex
import signal
import sys
import time
from contextlib import chdir

import pytest
from commands import call, finish, losses
from launching import (
    free_port,
    heddle,
    nobody_is_left,
    start,
    under,
    wait_for_steps,
    wait_until,
)

from heddle.spec.plan import Plan
from heddle.train.interrupt import SIGNALS, StopRequest
from heddle.train.launch import run_processes

pytestmark = pytest.mark.dist


LONG = ("train.steps=2000", "train.schedule=constant")  # so that another end does not change the learning rate


def stopped_after(said: str) -> tuple[int, list[str]]:
    """The step after which a run stopped, and the command that goes on from there."""
    found = re.search(r"Stopped after step (\d+) of 2000\. Go on with: heddle (.*)\n$", said)
    assert found, said
    assert {line.split()[0] for line in said.splitlines()} <= {"custom:", "step", "Stopped"}  # nobody else speaks
    return int(found[1]), shlex.split(found[2])


def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(folder):
    plan, run, done = {"pipeline": 2}, folder / "runs/stopped", 0
    arguments = under(plan, "stopped", *LONG)
    for stop in (
        lambda process: os.killpg(process.pid, signal.SIGINT),  # what a terminal does with Ctrl-C: all of them hear it
        lambda process: process.terminate(),  # what a supervisor does: only the parent hears it
    ):
        process = heddle(*arguments, cwd=folder)
        wait_for_steps(run, done + 3)
        stop(process)
        done, arguments = stopped_after(finish(process))
        nobody_is_left(process.pid)
        assert (run / f"checkpoints/step-{done:08}").is_dir()
    with chdir(folder):
        assert call(*under(plan, "never-stopped", "train.schedule=constant", f"train.steps={done}")) == 0
    assert losses(run) == losses(folder / "runs/never-stopped")


@pytest.mark.slow
def test_processes_started_by_hand_stop_together(folder):
    where, arguments = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}, under({"tensor": 2}, "by-hand", *LONG)
    processes = [
        start(sys.executable, "-m", "heddle", *arguments, cwd=folder, RANK=rank, WORLD_SIZE="2", **where)
        for rank in "01"
    ]
    wait_for_steps(folder / "runs/by-hand", 4)
    for process in processes:  # as Slurm does, to one after the other: the second may have heard of it by then
        process.terminate()
        time.sleep(0.3)
    said, nothing = [finish(process) for process in processes]
    done, _ = stopped_after(said)
    assert nothing == ""
    assert (folder / f"runs/by-hand/checkpoints/step-{done:08}").is_dir()
    with chdir(folder):
        assert call(*under({"tensor": 2}, "by-itself", "train.schedule=constant")) == 0
    assert losses(folder / "runs/by-hand")[:4] == losses(folder / "runs/by-itself")


@pytest.fixture
def handlers():
    """The signal handlers of this process, put back afterwards."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_a_launcher_passes_on_at_once_is_not_a_second_request(environment, handlers):
    # A terminal sends Ctrl-C to torchrun and to its processes, and torchrun sends it to its processes again.
    environment(RANK="0")
    with StopRequest() as stop:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        assert stop
        stop.asked_at -= 10
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_without_a_launcher_every_request_counts(environment, handlers):
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert {number: signal.getsignal(number) for number in SIGNALS} == handlers


def test_a_second_request_ends_everything_at_once(folder):
    slow = ("train.global_batch=4000", "plan.microbatch=4")
    process = heddle(*under({"pipeline": 2}, "impatient", *slow), cwd=folder)
    wait_until(lambda: (folder / "runs/impatient/metrics.jsonl").exists(), "the run has not begun")
    time.sleep(0.3)  # into the first step, which takes many seconds
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)
    assert finish(process, code=130).splitlines()[1:] == ["Stopped."]  # after the line that names the model
    nobody_is_left(process.pid)
    assert not list((folder / "runs/impatient/checkpoints").iterdir())


def stop_the_parent(mesh):
    """Before training has begun nobody listens for a request to stop."""
    if mesh.rank == 0:
        os.kill(multiprocessing.parent_process().pid, signal.SIGTERM)
    time.sleep(60)


def test_a_request_before_the_first_step_ends_everything(folder):
    before, began = multiprocessing.active_children(), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_processes(Plan(pipeline=2), stop_the_parent, restarts=1)
    assert time.monotonic() - began < 30
    assert set(multiprocessing.active_children()) == set(before)


def test_ranks_do_not_outlive_a_killed_parent(folder):
    process = heddle(*under({"pipeline": 2}, "killed", *LONG), cwd=folder)
    wait_for_steps(folder / "runs/killed", 1)
    process.kill()
    process.communicate(timeout=60)  # until nobody has its output open any more
    nobody_is_left(process.pid)
