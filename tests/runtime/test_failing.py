"""Ranks that fail end the run, and are named."""

import json
import multiprocessing
import os
import re
import resource
import signal
import sys
import time
from contextlib import chdir
from pathlib import Path

import pytest
import torch.distributed as dist

from heddle.errors import HeddleError
from heddle.runtime.error_files import FOLDER
from heddle.runtime.launch import RESULT, run_processes
from heddle.spec.plan import Plan
from tests.helpers.commands import REPOSITORY, call
from tests.helpers.launching import (
    nobody_is_left,
    python,
    start,
    under,
)

pytestmark = pytest.mark.dist


def fail(mesh, how):
    """Rank 1 of a plan fails while the other one waits for it."""
    if how == "unwritten":
        (Path(os.environ[FOLDER]) / RESULT).mkdir(exist_ok=True)  # where rank 0 is to write what comes of its work
        return
    if mesh.rank == 1:
        if how == "told":
            raise HeddleError("The thread is torn.", "It was thin.", "Take another one.")
        if how == "unexpected":
            raise ValueError("no such thread")
        if how == "exit":
            os._exit(7)
        if how == "limited":
            raise RuntimeError("can't start new thread")
        if how == "full":  # no file can grow, as where there is no space
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            raise HeddleError("Nobody will hear of this.")
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier(group=mesh.world.group)


def report_failures():
    """Run as a process of its own, so that all it says is heard: what the parent is told of each failure."""
    for how in ("told", "unexpected", "exit", "killed", "limited", "full", "unwritten"):
        began = time.monotonic()
        try:
            run_processes(Plan(pipeline=2), fail, how)
        except HeddleError as error:
            left, parts = len(multiprocessing.active_children()), [error.what, error.why, error.hint]
            print(json.dumps({"how": how, "parts": parts, "left": left, "seconds": time.monotonic() - began}))  # noqa: T201


@pytest.fixture(scope="module")
def failures():
    script = "from tests.runtime.test_failing import report_failures; report_failures()"
    process = python("-c", script, cwd=REPOSITORY)
    out, errors = process.communicate(timeout=120)
    nobody_is_left(process.pid)
    return {row.pop("how"): row for row in map(json.loads, out.splitlines())}, errors


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("told", r"The thread is torn\."),
        ("unexpected", r"Rank 1 \(data 0, pipeline 1, tensor 0\) failed: ValueError: no such thread"),
        ("exit", r"Rank 1 \(data 0, pipeline 1, tensor 0\) ended with exit code 7\."),
        ("killed", r"Rank 1 \(data 0, pipeline 1, tensor 0\) was killed by SIGKILL\."),
        ("limited", r"Rank 1 \(data 0, pipeline 1, tensor 0\) ran out of memory or threads: can't start new thread\."),
        ("full", r"Rank 1 \(data 0, pipeline 1, tensor 0\) could not write what came of its work to .*"),
        ("unwritten", r"Rank 0 \(data 0, pipeline 0, tensor 0\) could not write what came of its work to .*"),
    ],
)
def test_a_rank_that_fails_ends_the_run_and_is_named(failures, how, what):
    told = failures[0][how]
    assert re.fullmatch(what, told["parts"][0]), told
    assert all(told["parts"])
    assert ("dmesg" in told["parts"][1]) == (how == "killed")
    assert told["left"] == 0
    assert told["seconds"] < 30  # the launcher's own patience with a rank that does not end


def test_of_all_failures_only_the_unexpected_one_shows_a_traceback(failures):
    _, errors = failures
    assert errors.count("Traceback") == 1
    assert errors.startswith("Traceback")
    assert errors.endswith("ValueError: no such thread\n")


UNGUARDED = """
import heddle
from heddle.runtime.launch import run_processes
from heddle.spec.plan import Plan

def work(mesh):
    pass

try:
    run_processes(Plan(data=2), work, restarts=3)
except heddle.HeddleError as error:
    print(error)
heddle.train(heddle.load_job("job.toml", ["plan.data=2", "train.name=unguarded", "train.steps=2"]))
"""


@pytest.mark.slow
def test_a_script_needs_a_guard_only_where_processes_need_what_it_defines(folder):
    (folder / "unguarded.py").write_text(UNGUARDED)
    process = start(sys.executable, "unguarded.py", cwd=folder)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert out.startswith("The program starts processes whenever it is imported.\n")
    assert '`if __name__ == "__main__":`' in out
    assert "Traceback" not in errors
    assert (folder / "runs/unguarded/checkpoints/step-00000002").is_dir()


def test_a_loss_that_is_no_number_ends_all_ranks(folder, capfd):
    with chdir(folder):
        arguments = under({"data": 2}, "burst", "train.learning_rate=1e9", "train.save_every=1")
        assert call(*arguments) == 2
    told = capfd.readouterr().err.splitlines()
    assert told[0].startswith("error: Step 2 has loss nan")
    assert len(told) == 3
    # It was still being written when the loss burst.
    assert [path.name for path in (folder / "runs/burst/checkpoints").iterdir()] == ["step-00000001"]


def test_a_checkpoint_that_cannot_be_written_ends_all_ranks(folder, capfd):
    with chdir(folder):
        assert call(*under({"pipeline": 2}, "unwritable")) == 0
        (folder / "runs/unwritable/checkpoints/.partial-00000006").touch()  # where rank 0 alone makes a folder
        capfd.readouterr()
        assert call(*under({"pipeline": 2}, "unwritable", "train.steps=6"), "--resume") == 2
    told = capfd.readouterr().err.splitlines()
    assert told[0].startswith("error: The checkpoint of step 6 could not be written")
    assert len(told) == 3
    assert sorted((folder / "runs/unwritable/checkpoints").glob("step-*"))[-1].name == "step-00000004"


@pytest.mark.slow
def test_under_torchrun_one_rank_tells_what_is_wrong(folder):
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    arguments = under({"data": 2}, "burst-torchrun", "train.learning_rate=1e9")
    process = start(*torchrun, "-m", "heddle", *arguments, cwd=folder)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert errors.count("error: Step 2 has loss nan") == 1
    nobody_is_left(process.pid)
