from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.dist

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
hang_after = 4.0
restarts = 0
[plan]
tensor = 2
pipeline = 2
"""


def start(extra: str = "") -> subprocess.Popen[str]:
    Path("corpus.txt").write_text("to be or not to be " * 500)
    Path("job.toml").write_text(JOB)
    # what stands before the guard is also imported by the ranks
    run = "from heddle.cli import main\n    sys.argv = ['heddle', 'train', 'job.toml']\n    main()"
    Path("program.py").write_text(f"import sys\n{extra}\nif __name__ == '__main__':\n    {run}\n")
    return subprocess.Popen(
        [sys.executable, "program.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ranks_of(process: subprocess.Popen[str]) -> dict[int, int]:
    """Process ids by rank, once the run is under way."""
    metrics = Path("runs/hung/metrics.jsonl")
    for _ in range(600):
        if metrics.exists() and len(metrics.read_text().splitlines()) > 2:
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    found = {}
    for path in Path("runs/hung/hang").glob("process-*"):
        found[int(path.name.removeprefix("process-"))] = int(re.search(r'"pid": (\d+)', path.read_text())[1])
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
    assert re.search(r"Rank 2 \(data 0, pipeline 1, tensor 0\): .*waits for .*rank 3", words)
    assert "Its stack, innermost call first:" in words
    assert "train_step" in words.partition("never arrived")[2]
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
