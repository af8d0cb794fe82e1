"""Starting the runs of several processes that tests look at."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers.commands import ENVIRONMENT
from tests.helpers.warm import WarmProcess

TENSOR_PIPELINE = {"tensor": 2, "pipeline": 2}
SERIAL = {"microbatch": 4}
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # so that a script finds `heddle`


def under(plan: dict[str, int], name: str, *more: str) -> list[str]:
    """The arguments of `heddle` that train the job of these tests under a plan."""
    changes = ["model.layers=2", "train.steps=4", *(f"plan.{key}={value}" for key, value in plan.items()), *more]
    return ["train", "job.toml", "--name", name, *(word for change in changes for word in ("--set", change))]


STARTED: list[subprocess.Popen[str]] = []


def start(*command: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, as a shell does."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=ENVIRONMENT | {"PATH": PATH} | environment,
        stdout=pipe,
        stderr=pipe,
        text=True,
        process_group=0,
    )
    STARTED.append(process)
    return process


def heddle(*arguments: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """Start `heddle` in a process group of its own."""
    STARTED.append(WarmProcess(["heddle", *arguments], cwd, ENVIRONMENT | {"PATH": PATH} | environment))
    return STARTED[-1]


def python(*arguments: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a program that uses `heddle`, named by its path or as code after "-c"."""
    STARTED.append(WarmProcess(arguments, cwd, ENVIRONMENT | {"PATH": PATH} | environment))
    return STARTED[-1]


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def wait_until(true, what: str, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def wait_for_steps(run: Path, count: int) -> None:
    path = run / "metrics.jsonl"
    wait_until(lambda: path.exists() and path.read_text().count("\n") >= count, "the run has not begun")


def nobody_is_left(group: int) -> None:
    """No process of a group outlives the first for long."""

    def gone() -> bool:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(gone, "processes are left behind", 10)
