"""One plan however it is started, and every way in which a run of several processes can end before its last step."""

import dataclasses
import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import chdir, suppress
from pathlib import Path
from unittest import mock

import pytest
import torch.distributed as dist
from commands import ENVIRONMENT, REPOSITORY, call, finish, losses, write_job

from heddle.errors import HeddleError
from heddle.spec.job import load_job
from heddle.spec.plan import Plan
from heddle.train.interrupt import SIGNALS, StopRequest
from heddle.train.launch import Place, join, launched_place, run_processes

pytestmark = pytest.mark.dist

TENSOR_PIPELINE = {"tensor": 2, "pipeline": 2}
SERIAL = {"microbatch": 4}
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # so that a script finds `heddle`


def under(plan: dict[str, int], name: str, *more: str) -> list[str]:
    """The arguments of `heddle` that train the job of these tests under a plan."""
    changes = ["model.layers=2", "train.steps=4", *(f"plan.{key}={value}" for key, value in plan.items()), *more]
    return ["train", "job.toml", "--name", name, *(word for change in changes for word in ("--set", change))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A job, and two runs of it: on one process, and on four that `heddle train` started itself."""
    folder = tmp_path_factory.mktemp("launch")
    write_job(folder / "job")
    with chdir(folder / "job"):
        assert call(*under(SERIAL, "serial")) == 0
        assert call(*under(TENSOR_PIPELINE, "own")) == 0
        assert call(*under({"tensor": 2}, "own-tensor")) == 0
    return folder / "job"


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _leave_nobody_behind():
    """Where a test fails, what it has started goes all the same."""
    yield
    while STARTED:
        process = STARTED.pop()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


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


def heddle(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return start(sys.executable, "-m", "heddle", *arguments, cwd=cwd)


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


# --- The same losses, however the processes are started


def test_own_processes_learn_what_one_process_learns(folder):
    assert losses(folder / "runs/own") != losses(folder / "runs/serial")
    assert losses(folder / "runs/own") == pytest.approx(losses(folder / "runs/serial"), rel=1e-5)


def test_under_torchrun(folder):
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    said = finish(start(*torchrun, "-m", "heddle", *under({"tensor": 2}, "torchrun"), cwd=folder))
    assert losses(folder / "runs/torchrun") == losses(folder / "runs/own-tensor")
    assert said.count("Trained 4 steps") == 1  # only one of the ranks speaks


def test_on_two_nodes(folder):
    # Two agents on one machine know as little of each other as two on two; the lines are those that Heddle prints.
    (folder / "two-nodes.toml").write_text(
        (folder / "job.toml").read_text() + '[cluster]\nnodes = 2\ndevices = 1\ndevice = {name = "cpu core", '
        'memory_gib = 1.0}\nlinks = [{name = "loopback", gbs = 2.0}]\n'
    )
    arguments = ["launch", "--torchrun", "two-nodes.toml", *under({"tensor": 2}, "two-nodes")[2:]]
    printed = finish(heddle(*arguments, "--port", free_port(), cwd=folder)).splitlines()
    lines = [line for line in printed if not line.startswith("#")]
    assert ["--node-rank 0" in lines[0], "--node-rank 1" in lines[1]] == [True, True]
    agents = [start("bash", "-c", line, cwd=folder, MASTER_ADDR="127.0.0.1") for line in lines]
    for agent in agents:
        finish(agent)
    assert losses(folder / "runs/two-nodes") == losses(folder / "runs/own-tensor")


def test_under_slurm(folder, slurm):
    arguments = under({"tensor": 2}, "slurm")
    script = finish(heddle("launch", "--slurm", *arguments[1:], cwd=folder))
    said = finish(start("bash", "-c", script, cwd=folder, **slurm(RUN_TASKS)))
    assert losses(folder / "runs/slurm") == losses(folder / "runs/own-tensor")
    assert said.count("Trained 4 steps") == 1
    assert not (folder / "requeued").exists()


RUN_TASKS = """
shift  # the option that is srun's own
for rank in $(seq 0 $((SLURM_NTASKS - 1))); do
    SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_STEP_NUM_TASKS=$SLURM_NTASKS "$@" &
done
for rank in $(seq $SLURM_NTASKS); do wait -n || exit; done
"""


@pytest.fixture
def slurm(tmp_path):
    """What a batch script finds on a node: variables, `scontrol`, and an `srun` that does what it is told here."""

    def environment(srun: str) -> dict[str, str]:
        commands = {"srun": srun, "scontrol": '[ "$1" = show ] && echo 127.0.0.1 || echo "$@" > requeued\n'}
        for name, text in commands.items():
            (tmp_path / name).write_text(f"#!/bin/bash\n{text}")
            (tmp_path / name).chmod(0o755)
        numbers = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
        return numbers | {"SLURM_JOB_NODELIST": "node[1-2]", "PATH": f"{tmp_path}:{PATH}"}

    return environment


def test_a_slurm_job_goes_on_where_it_was_and_back_into_the_queue_until_it_is_done(folder, slurm, tmp_path):
    script = finish(heddle("launch", "--slurm", *under({"tensor": 2}, "queued")[1:], cwd=folder))

    def submitted() -> tuple[bool, bool]:
        """Whether the run was resumed, and whether the job went back into the queue."""
        (tmp_path / "requeued").unlink(missing_ok=True)
        finish(start("bash", "-c", script, cwd=tmp_path, **slurm('echo "$MASTER_ADDR" "$@" > told\n')))
        told = (tmp_path / "told").read_text().split()
        assert told[:5] == ["127.0.0.1", "--kill-on-bad-exit=1", "heddle", "train", "job.toml"]
        return told[-1] == "--resume", (tmp_path / "requeued").exists()

    run = tmp_path / "runs/queued"
    assert submitted() == (False, True)
    (run / "checkpoints/step-00000003").mkdir(parents=True)
    assert submitted() == (True, True)
    assert (tmp_path / "requeued").read_text() == f"requeue {os.getpid()}\n"
    (run / "checkpoints/step-00000004").mkdir()
    assert submitted() == (True, False)


@pytest.fixture(scope="module")
def moving(folder):
    """A run of eight steps on one process, and the first four of them on four."""
    with chdir(folder):
        assert call(*under(SERIAL, "never-moved", "train.schedule=constant", "train.steps=8")) == 0
        assert call(*under(TENSOR_PIPELINE, "moving", "train.schedule=constant")) == 0
    return folder / "runs/moving"


@pytest.mark.parametrize("plan", [{"data": 2, "zero": 1}, SERIAL], ids=["data", "serial"])
def test_a_run_goes_on_under_another_plan(folder, moving, plan):
    name = "moved-" + next(iter(plan))
    shutil.copytree(moving, moving.with_name(name))
    with chdir(folder):
        assert call(*under(plan, name, "train.steps=8", "train.schedule=constant"), "--resume") == 0
    expected = losses(folder / "runs/never-moved")
    assert len(expected) == 8
    assert losses(folder / "runs" / name) == pytest.approx(expected, rel=1e-5)
    assert load_job(folder / "runs" / name / "job.toml").plan.world == plan.get("data", 1)


# --- Stopping


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


# --- Failing


def fail(mesh, how):
    """Rank 1 of a plan fails while the other one waits for it."""
    if mesh.rank == 1:
        if how == "told":
            raise HeddleError("The thread is torn.", "It was thin.", "Take another one.")
        if how == "unexpected":
            raise ValueError("no such thread")
        if how == "exit":
            os._exit(7)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier(group=mesh.world.group)


def report_failures():
    """Run as a process of its own, so that all it says is heard: what the parent is told of each failure."""
    for how in ("told", "unexpected", "exit", "killed"):
        began = time.monotonic()
        try:
            run_processes(Plan(pipeline=2), fail, how)
        except HeddleError as error:
            left, parts = len(multiprocessing.active_children()), [error.what, error.why, error.hint]
            print(json.dumps({"how": how, "parts": parts, "left": left, "seconds": time.monotonic() - began}))  # noqa: T201


@pytest.fixture(scope="module")
def failures():
    script = "import test_launch; test_launch.report_failures()"
    here = {"PYTHONPATH": f"{REPOSITORY}:{Path(__file__).parent}:{Path(__file__).parents[1]}"}
    process = start(sys.executable, "-c", script, cwd=REPOSITORY, **here)
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
    ],
)
def test_a_rank_that_fails_ends_the_run_and_is_named(failures, how, what):
    told = failures[0][how]
    assert re.fullmatch(what, told["parts"][0]), told
    assert all(told["parts"])
    assert told["left"] == 0
    assert told["seconds"] < 30  # the launcher's own patience with a rank that does not end


def test_of_all_failures_only_the_unexpected_one_shows_a_traceback(failures):
    _, errors = failures
    assert errors.count("Traceback") == 1
    assert errors.startswith("Traceback")
    assert errors.endswith("ValueError: no such thread\n")


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


def test_under_torchrun_one_rank_tells_what_is_wrong(folder):
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    arguments = under({"data": 2}, "burst-torchrun", "train.learning_rate=1e9")
    process = start(*torchrun, "-m", "heddle", *arguments, cwd=folder)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert errors.count("error: Step 2 has loss nan") == 1
    nobody_is_left(process.pid)


# --- Who am I?


@pytest.fixture
def environment():
    """Sets variables, from none of those that launchers set; all is as before afterwards."""
    with mock.patch.dict(os.environ):
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID"):
            os.environ.pop(name, None)
        yield lambda **variables: os.environ.update(variables)


def test_a_place_is_what_the_launcher_says(environment):
    assert launched_place() is None
    environment(SLURM_PROCID="0", SLURM_NTASKS="4", SLURM_LOCALID="0")
    assert launched_place() is None  # a batch script, which is one process whatever it asked for
    environment(SLURM_STEP_NUM_TASKS="1")
    assert launched_place() is None  # a shell under srun
    environment(SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="3", SLURM_LOCALID="1")
    assert launched_place() == Place(3, 4)
    assert os.environ["LOCAL_RANK"] == "1"
    environment(RANK="1", WORLD_SIZE="2")
    assert launched_place() == Place(1, 2)


@pytest.mark.parametrize("world", [2, 8])
def test_another_number_of_processes_than_the_plan_needs_is_refused(folder, environment, capsys, world):
    environment(RANK="0", WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    with chdir(folder):
        assert call(*under(TENSOR_PIPELINE, "refused")) == 2
    told = capsys.readouterr().err
    assert f"{world} processes started, but the plan needs tensor × pipeline × data = 2 × 2 × 1 = 4" in told
    assert "Start 4 processes" in told
    assert not (folder / "runs/refused").exists()


def test_a_meeting_place_must_be_named(environment):
    with pytest.raises(HeddleError, match=r"MASTER_ADDR is not set(.|\n)*heddle launch --slurm"):
        join(Plan(data=2), Place(0, 2))
    environment(MASTER_ADDR="127.0.0.1")
    with pytest.raises(HeddleError, match="MASTER_PORT is not set"):
        join(Plan(data=2), Place(0, 2))


def test_a_job_is_the_same_on_every_rank(folder):
    ran = load_job(folder / "runs/own/job.toml")
    assert ran.plan == dataclasses.replace(Plan(tensor=2, pipeline=2), stages=(1, 1))
