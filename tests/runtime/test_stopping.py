"""Requests to stop, and runs of several processes that are killed."""

import json
import multiprocessing
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path

import pytest

from heddle.runtime.launch import run_processes
from heddle.runtime.scratch import PREFIX
from heddle.runtime.stop_request import SIGNALS, StartUp, StopRequest
from heddle.spec.plan import Plan
from tests.helpers.commands import ENVIRONMENT, call, finish, losses
from tests.helpers.launching import (
    STARTED,
    free_port,
    heddle,
    nobody_is_left,
    start,
    under,
    wait_for_steps,
    wait_until,
)
from tests.helpers.warm import WarmProcess

pytestmark = pytest.mark.dist


LONG = ("train.steps=2000", "train.schedule=constant")  # so that another end does not change the learning rate


def stopped_after(said: str) -> tuple[int, list[str]]:
    """The step after which a run stopped, and the command that goes on from there."""
    found = re.search(r"Stopped after step (\d+) of 2000\. Resume with: heddle (.*)\n$", said)
    assert found, said
    assert {line.split()[0] for line in said.splitlines()} <= {"custom:", "step", "Stopped"}  # nobody else speaks
    return int(found[1]), shlex.split(found[2])


def terminate_with_group(process):
    """As `timeout` does: the parent hears of it, and then everybody does, the parent and the fork server too."""
    process.terminate()
    time.sleep(0.05)  # or the parent might hear only one of the two
    os.killpg(process.pid, signal.SIGTERM)


def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(folder):
    plan, run, done = {"pipeline": 2}, folder / "runs/stopped", 0
    arguments = under(plan, "stopped", *LONG)
    for stop in (
        lambda process: os.killpg(process.pid, signal.SIGINT),  # what a terminal does with Ctrl-C: all of them hear it
        lambda process: process.terminate(),  # what a supervisor does: only the parent hears it
        terminate_with_group,  # what `timeout`, systemd and batch systems do
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
    processes = [heddle(*arguments, cwd=folder, RANK=rank, WORLD_SIZE="2", **where) for rank in "01"]
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


def test_a_run_outlives_its_terminal_under_nohup(folder):
    run = folder / "runs/nohup"
    arguments = under({"pipeline": 2}, "nohup", *LONG)
    process = start("nohup", sys.executable, "-m", "heddle", *arguments, cwd=folder)
    wait_for_steps(run, 2)
    os.killpg(process.pid, signal.SIGHUP)
    wait_for_steps(run, (run / "metrics.jsonl").read_text().count("\n") + 5)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0
    nobody_is_left(process.pid)


@pytest.mark.parametrize(
    "plan", [{"pipeline": 2}, pytest.param({"microbatch": 4}, marks=pytest.mark.slow)], ids=["pipeline", "serial"]
)
def test_a_closed_terminal_saves_and_stops(folder, plan):
    name = f"hung-up-{next(iter(plan))}"
    run = folder / "runs" / name
    ours, terminal = pty.openpty()
    process = WarmProcess(["heddle", *under(plan, name, *LONG)], folder, ENVIRONMENT, terminal)
    STARTED.append(process)
    os.close(terminal)
    reader = threading.Thread(target=read_all, args=(ours, run))  # whose reader sleeps waits to write
    reader.start()
    reader.join()
    process.wait(60)
    assert process.returncode == 0
    nobody_is_left(process.pid)
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert (run / f"checkpoints/step-{steps[-1]:08}").is_dir()


def read_all(terminal, run):
    """Read what a run shows until it has done some steps, then close the terminal."""
    while not (path := run / "metrics.jsonl").exists() or path.read_text().count("\n") < 3:
        os.read(terminal, 4096)
    os.close(terminal)


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


def test_a_termination_sent_to_a_process_and_to_its_group_is_one_request(environment, handlers):
    with StopRequest() as stop:
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
        assert stop


@pytest.mark.parametrize("within", [nullcontext, StartUp], ids=["alone", "within a command"])
def test_the_echo_of_a_request_does_not_end_a_process_that_has_stopped_well(environment, handlers, monkeypatch, within):
    heard = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    with within(), StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert stop
    assert not heard
    monkeypatch.setattr("heddle.runtime.stop_request.ECHO", 0.0)  # what comes later is a request of its own
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM] * 2


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


def test_when_a_command_has_ended_nothing_that_it_started_is_left(tmp_path):
    process = heddle("probe", "-o", "network.toml", "--quick", cwd=tmp_path)
    finish(process)
    with pytest.raises(ProcessLookupError):  # not even one that nobody has waited for
        os.killpg(process.pid, 0)


def stop_the_parent(mesh):
    """Before training has begun nobody listens for a request to stop."""
    if mesh.rank == 0:
        os.kill(multiprocessing.parent_process().pid, signal.SIGTERM)
    time.sleep(3600)  # longer than a test may take


def test_a_request_before_the_first_step_ends_everything(folder):
    before = multiprocessing.active_children()
    with pytest.raises(KeyboardInterrupt):
        run_processes(Plan(pipeline=2), stop_the_parent, restarts=1)
    assert set(multiprocessing.active_children()) == set(before)


def test_sigterm_before_there_is_a_run_is_told(folder, temporary):
    """Through a pipe, too, and with whatever was said before it."""
    (temporary / "torch.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    here = {"PYTHONPATH": str(temporary), "TMPDIR": str(temporary)}
    process = start(sys.executable, "-m", "heddle", *under({"tensor": 2}, "early"), cwd=folder, **here)
    assert finish(process, code=130) == "The run had not begun: there is no runs/early yet.\nStopped.\n"
    nobody_is_left(process.pid)
    assert not (folder / "runs/early").exists()


def test_a_request_within_an_import_ends_everything(folder, temporary):
    # Many packages take whatever is raised while they are imported for something that is not installed.
    for name in ("torch", "safetensors", "tokenizers"):
        (temporary / f"{name}.py").write_text(
            "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept BaseException:\n    pass\n"
        )
    here = {"PYTHONPATH": str(temporary), "TMPDIR": str(temporary)}
    process = start(sys.executable, "-m", "heddle", *under({"tensor": 2}, "imported"), cwd=folder, **here)
    assert finish(process, code=130).endswith("Stopped.\n")
    nobody_is_left(process.pid)
    assert not list(temporary.glob(f"{PREFIX}*"))


@pytest.fixture
def temporary():
    """A folder for temporary files that nobody else uses, under a path that a socket's still fits behind."""
    with tempfile.TemporaryDirectory(prefix="hd-") as name:
        yield Path(name)


def files_in(temporary):
    """All but torch's cache, of which a user has one, whatever runs and ends."""
    return [path for path in temporary.iterdir() if not path.name.startswith("torchinductor_")]


def test_ranks_do_not_outlive_a_killed_parent_nor_do_their_files(folder, temporary):
    arguments = under({"pipeline": 2}, "killed", *LONG)
    process = heddle(*arguments, cwd=folder, TMPDIR=str(temporary))
    wait_for_steps(folder / "runs/killed", 1)
    assert list(temporary.glob(f"{PREFIX}*"))
    process.kill()
    process.communicate(timeout=60)  # until nobody has its output open any more
    nobody_is_left(process.pid)
    assert not files_in(temporary)


def test_what_a_run_that_was_killed_as_a_whole_leaves_the_next_command_removes(folder, temporary):
    arguments = under({"pipeline": 2}, "all-killed", *LONG)
    process = heddle(*arguments, cwd=folder, TMPDIR=str(temporary))
    wait_for_steps(folder / "runs/all-killed", 1)
    maps = [path for path in Path("/proc").glob("[0-9]*/maps") if group_of(path) == process.pid]
    assert not [path for path in maps if "/dev/shm/" in path.read_text()]  # where semaphores would be left
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    (left,) = files_in(temporary)
    with living_folder(temporary) as kept:
        assert not left.exists()
        finish(start(sys.executable, "-c", MAKE_SCRATCH, cwd=folder, TMPDIR=str(temporary)))
        assert files_in(temporary) == [kept]
    assert not files_in(temporary)


MAKE_SCRATCH = "from heddle.runtime.scratch import scratch; print(scratch())"


@contextmanager
def living_folder(temporary):
    """The folder of a command that goes on."""
    command = [sys.executable, "-c", f"{MAKE_SCRATCH}; input()"]
    pipe, environment = subprocess.PIPE, ENVIRONMENT | {"TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as process:
        yield Path(process.stdout.readline().strip())
        process.communicate("\n", timeout=60)


def group_of(path):
    """The process group of a process that has this file in /proc."""
    try:
        return os.getpgid(int(path.parent.name))
    except ProcessLookupError:
        return None
