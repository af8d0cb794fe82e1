from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.helpers.launching import python

pytestmark = pytest.mark.dist

"""Hangs, and what is slow and none, in every phase of a run; real processes, real signals."""

JOB = """
[model]
layers = 2
hidden = 16
heads = 2
vocab = 257
sequence = 16
[data]
text = "corpus.txt"
[train]
name = "hung"
steps = 100000
global_batch = 4
log_every = 1
hang_after = 2.0
restarts = 0
[plan]
tensor = 2
pipeline = 2
"""


def start(extra: str = "", job: str = JOB) -> subprocess.Popen[str]:
    Path("corpus.txt").write_text("to be or not to be " * 500)
    Path("job.toml").write_text(job)
    # what stands before the guard is also imported by the ranks
    run = "from heddle.cli import main\n    sys.argv = ['heddle', 'train', 'job.toml']\n    main()"
    Path("program.py").write_text(f"import sys\n{extra}\nif __name__ == '__main__':\n    {run}\n")
    return python("program.py", cwd=Path.cwd())


def ranks_of(process: subprocess.Popen[str]) -> dict[int, int]:
    """Process ids by rank, once the run is under way."""
    metrics = Path("runs/hung/metrics.jsonl")
    for _ in range(600):
        if metrics.exists() and len(metrics.read_text().splitlines()) > 2:
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    found = {}
    for path in Path("runs/hung/processes").glob("rank-*"):
        found[int(path.stem.removeprefix("rank-"))] = int(re.search(r'"pid": (\d+)', path.read_text())[1])
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_stopped_rank_is_named_with_its_stack_and_nobody_is_left():
    process = start()
    pids = ranks_of(process)
    assert sorted(pids) == [0, 1, 2, 3]
    os.kill(pids[3], signal.SIGSTOP)
    _, words = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "Rank 3 (data 0, pipeline 1, tensor 1) never arrived: it does not answer" in words
    assert re.search(r"Rank 2 \(data 0, pipeline 1, tensor 0\): .*waits for .*rank 3", words), words
    assert "Its stack, innermost call first:" in words
    assert "start_step" in words.partition("never arrived")[2]
    assert "Traceback" not in words
    assert not any(alive(pid) for pid in pids.values())
    assert Path("runs/hung/hang/report.txt").read_text() in words


SLEEPER = """
import os, time
from heddle.data import Samples
ordinary = Samples.batch_of
def batch_of(self, numbers):
    if os.environ.get("RANK") == "1" and min(numbers) > 40:
        time.sleep(1000)
    return ordinary(self, numbers)
Samples.batch_of = batch_of
"""


@pytest.mark.slow
def test_a_rank_that_sleeps_in_its_data_loader_is_named():
    Path("sleeper.py").write_text(SLEEPER)
    process = start("import sleeper")
    pids = ranks_of(process)
    _, words = process.communicate(timeout=120)
    assert process.returncode == 2
    assert re.search(r"Rank 1 \(data 0, pipeline 0, tensor 1\): .* It never arrived", words)
    assert "batch_of" in words
    assert not any(alive(pid) for pid in pids.values())


IMPATIENT = """
import os, time
from contextlib import nullcontext
from heddle.runtime import launch
launch._nothing_to_run = nullcontext  # ranks run this program first, and so do as it says
from heddle.checkpoint import storage
from heddle.training import loop, opening, phases
from heddle.data import Samples
from heddle.training.step.trainer import Trainer
phases.SHORTEST = 1.0
phases.TIMES_USUAL = 1
phases.LIMITS = dict.fromkeys(phases.RunPhase, 5.0)
def hung():
    return os.environ.get("RANK") == "1"  # asked late: ranks are forked before they know
"""

SLOW = """
ordinary_write, ordinary_evaluate = storage._to_disk, Trainer.evaluate
def to_disk(*arguments):
    time.sleep(0.15)  # for each tensor: a save takes longer than any limit, but comes further
    with open("written", "a") as file:
        file.write("x")
    return ordinary_write(*arguments)
def evaluate(self, tokens, tick):
    def slow_tick():
        time.sleep(0.8)
        tick()
    return ordinary_evaluate(self, tokens, slow_tick)
storage._to_disk, Trainer.evaluate = to_disk, evaluate
"""

PAIR = JOB.replace("tensor = 2\n", "").replace(
    "steps = 100000", "steps = 4\nsave_every = 2\neval_every = 4\neval_batches = 8"
)


@pytest.mark.slow
def test_saves_and_evaluations_that_take_longer_than_any_limit_are_no_hangs():
    process = start(IMPATIENT + SLOW + "phases.LIMITS[phases.RunPhase.SAVE] = 2.0\n", PAIR)
    _, words = process.communicate(timeout=240)
    assert process.returncode == 0, words
    assert len(Path("written").read_text()) * 0.15 > 2 * 2 * 4.0  # of two ranks and two saves, beyond hang_after
    assert (Path("runs/hung/checkpoints") / "step-00000004").is_dir()
    assert not Path("runs/hung/hang").exists()


def hangs_in(place: str, name: str) -> str:
    """Code that lets rank 1 sleep before it does what a function is for."""
    return f"""
plain = {place}.{name}
def {name}(*arguments, **options):
    if hung():
        time.sleep(1000)
    return plain(*arguments, **options)
{place}.{name} = {name}
"""


WORKS = "works on something else. It never arrived"
HANGS = {
    "save": (
        hangs_in("storage", "_to_disk"),
        r"Saving a checkpoint has made no progress for \d+ s",
        "write its part of the checkpoint. It never arrived",
    ),
    "evaluate": (
        hangs_in("Trainer", "evaluate"),
        r"The evaluation after step 2 of this run has made no progress for \d+ s",
        WORKS,
    ),
    "first step": (hangs_in("Samples", "batch_of"), r"Step 1 of this run has taken \d+ s", WORKS),
    "prepare": (hangs_in("opening", "prepared_for"), r"Preparing the run has made no progress for \d+ s", WORKS),
}


@pytest.mark.slow
@pytest.mark.parametrize("phase", HANGS)
def test_a_hang_in_any_phase_is_one(phase):
    code, headline, culprit = HANGS[phase]
    process = start(IMPATIENT + code, PAIR)
    _, words = process.communicate(timeout=240)
    assert process.returncode == 2, words
    assert re.search(headline, words), words
    assert re.search(r"Rank 1 \(data 0, pipeline 1, tensor 0\): " + re.escape(culprit), words), words
    assert re.search(r"Rank 0 \(data 0, pipeline 0, tensor 0\): .*waits for rank 1", words), words
