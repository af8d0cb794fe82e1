"""Runs that lose a process go on by themselves; runs that lack memory say what would fit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.cases import thinned
from tests.helpers.commands import ENVIRONMENT, heddle, losses, start, write_job
from tests.helpers.launching import python
from tests.helpers.launching import start as launch

PLAN = ("--set", "plan.data=2", "--set", "plan.zero=1", "--set", "train.steps=40")


def pid_of_rank_1(run: Path, after: int, process: subprocess.Popen[str]) -> int:
    """Of a run that has done some steps, and so has a checkpoint."""
    metrics, seen = run / "metrics.jsonl", 0
    while seen < after:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
        seen = len(metrics.read_text().splitlines()) if metrics.exists() else 0
    return int(re.search(r'"pid": (\d+)', (run / "processes" / "rank-00001.json").read_text())[1])


def kill_one(run: Path, after: int, process: subprocess.Popen[str]) -> None:
    """Kill rank 1."""
    os.kill(pid_of_rank_1(run, after, process), signal.SIGKILL)


@pytest.mark.dist
def test_a_killed_rank_brings_the_run_back_and_changes_nothing(tmp_path):
    write_job(tmp_path)
    heddle("train", "job.toml", "--name", "whole", *PLAN, cwd=tmp_path)
    process = start("train", "job.toml", "--name", "killed", "--set", "train.save_every=3", *PLAN, cwd=tmp_path)
    kill_one(tmp_path / "runs" / "killed", 8, process)
    out, errors = process.communicate(timeout=200)
    assert process.returncode == 0, out + errors
    assert "A process died; resuming from the newest checkpoint (restart 1)." in out
    assert losses(tmp_path / "runs" / "killed") == losses(tmp_path / "runs" / "whole")


def state_and_parent(pid: int) -> tuple[str, int]:
    """Nobody may wait for a process whose parent was killed: in a container it stays a zombie."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return "gone", 0
    return state, int(parent)


@pytest.mark.dist
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds a parent in /proc")
def test_a_killed_server_brings_the_run_back_and_changes_nothing(tmp_path):
    """Its ranks live on; they are ended before others begin, and leave the files of those that live."""
    write_job(tmp_path)
    heddle("train", "job.toml", "--name", "whole", *PLAN, cwd=tmp_path)
    for restarts in (1, 0):
        run, given = tmp_path / "runs" / f"{restarts}", ("--set", f"train.restarts={restarts}", *PLAN)
        process = start("train", "job.toml", "--name", run.name, "--set", "train.save_every=3", *given, cwd=tmp_path)
        rank = pid_of_rank_1(run, 8, process)
        os.kill(state_and_parent(rank)[1], signal.SIGKILL)
        out, errors = process.communicate(timeout=200)
        assert state_and_parent(rank)[0] in ("Z", "gone")
        assert "Traceback" not in errors
        assert process.returncode == (0 if restarts else 2), out + errors
        assert ("or the server was killed that it was forked from." in errors) == (not restarts)
    assert losses(tmp_path / "runs" / "1") == losses(tmp_path / "runs" / "whole")


@pytest.mark.dist
def test_without_restarts_the_dead_rank_is_named(tmp_path):
    write_job(tmp_path)
    process = start("train", "job.toml", "--name", "killed", "--set", "train.restarts=0", *PLAN, cwd=tmp_path)
    kill_one(tmp_path / "runs" / "killed", 2, process)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "Rank 1 (data 1, pipeline 0, tensor 0) was killed by SIGKILL" in errors


HUNGRY = """
import resource, sys
from pathlib import Path
from heddle.training import loop
from heddle.training.dry_run import out_of_memory as memory
limit = Path("/proc/self/statm").read_text().split()[0]
resource.setrlimit(resource.RLIMIT_AS, (int(limit) * resource.getpagesize() + (600 << 20),) * 2)
from heddle.cli import main
sys.argv = ["heddle", "train", "job.toml", "--set", "model.hidden=256", "--set", "model.layers=4",
    "--set", "train.global_batch=512", "--set", "train.sequence=16",
    "--set", "plan.microbatch=512", *sys.argv[1:]]
main()
"""


OUT_OF_MEMORY = """
import os, sys, time
from contextlib import nullcontext
from heddle.runtime import launch
launch._nothing_to_run = nullcontext  # ranks run this program first, and so do as it says
from heddle.training import loop
from heddle.training.step.trainer import Trainer
step, breakdown = Trainer.start_step, loop.out_of_memory
def start_step(self, stop=False):
    if os.environ.get("RANK") == "1" and self.step == 1:
        raise MemoryError
    if os.environ.get("RANK") == "0" and self.step == 1:
        time.sleep(1)
        raise RuntimeError("Connection closed by peer")  # what others see of it
    return step(self, stop)
def out_of_memory(*arguments):
    time.sleep(5)  # longer than the launcher's patience with those who fail because of it
    return breakdown(*arguments)
Trainer.start_step, loop.out_of_memory = start_step, out_of_memory
if __name__ == "__main__":
    from heddle.cli import main
    main()
"""


@pytest.mark.dist
@pytest.mark.parametrize("launcher", thinned(("own", "torchrun"), slow=("torchrun",)))
@pytest.mark.slow
def test_the_bill_of_any_rank_is_printed_though_the_others_fail_because_of_it(tmp_path, launcher):
    write_job(tmp_path)
    (tmp_path / "program.py").write_text(OUT_OF_MEMORY)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["program.py", "train", "job.toml", *PLAN, "--set", "train.restarts=0"]
    process = python(*command, cwd=tmp_path) if launcher == "own" else launch(*torchrun, *command, cwd=tmp_path)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "error: Rank 1 (data 1, pipeline 0, tensor 0) ran out of memory." in errors
    assert "GiB in all, plus what kernels take" in errors


@pytest.mark.slow
def test_running_out_of_memory_is_told_with_the_bill_and_what_fits(tmp_path):
    write_job(tmp_path)
    command = [sys.executable, "-c", HUNGRY]
    ended = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "error: Rank 0 (data 0, pipeline 0, tensor 0) ran out of memory." in ended.stderr
    breakdown = re.search(
        r"weights ([\d.]+), gradients ([\d.]+), optimizer ([\d.]+), activations ([\d.]+) "
        r"and temporary tensors ([\d.]+) at their peak: ([\d.]+) GiB in all",
        ended.stderr,
    )
    *parts, total = map(float, breakdown.groups())
    assert total == pytest.approx(sum(parts), abs=0.03)
    activations, temporary = parts[-2:]
    assert temporary > 0
    assert activations > 0.2
    found = re.search(
        r"The smallest change that should fit: plan.(\w+) = (\S+), which needs ([\d.]+) GiB", ended.stderr
    )
    assert found, ended.stderr
    assert float(found[3]) < total
    # and what should fit does, under the same limit
    again = subprocess.run(
        [*command, "--name", "fits", "--set", f"plan.{found[1]}={found[2].rstrip(',')}", "--set", "train.steps=2"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert len(losses(tmp_path / "runs" / "fits")) == 2
