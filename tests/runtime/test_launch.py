"""One plan however it is started."""

import dataclasses
import os
import re
import shutil
import socket
from contextlib import chdir

import pytest
import torch

from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.runtime import joining, rendezvous
from heddle.runtime.environment import LaunchedRank, launched_place
from heddle.runtime.joining import join, run_joined
from heddle.spec.job import load_job
from heddle.spec.plan import Plan
from tests.helpers.commands import call, finish, losses
from tests.helpers.launching import (
    PATH,
    SERIAL,
    TENSOR_PIPELINE,
    free_port,
    heddle,
    start,
    under,
    wait_until,
)

pytestmark = pytest.mark.dist


# --- The same losses, however the processes are started


def test_own_processes_learn_what_one_process_learns(folder):
    assert losses(folder / "runs/own") != losses(folder / "runs/serial")
    assert losses(folder / "runs/own") == pytest.approx(losses(folder / "runs/serial"), rel=1e-5)


@pytest.mark.slow  # two nodes are under torchrun, too
def test_under_torchrun(folder):
    arguments = ["launch", "--torchrun", *under({"tensor": 2}, "torchrun")[1:], "--port", free_port()]
    said = finish(start("bash", "-c", finish(heddle(*arguments, cwd=folder)), cwd=folder))
    assert losses(folder / "runs/torchrun") == losses(folder / "runs/own-tensor")
    assert said.count("Trained 4 steps") == 1  # only one of the ranks speaks


@pytest.mark.slow
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
        said = "".join(agent.communicate(timeout=120))
        # not `finish`: torchrun's agent that ends last may log with a traceback that the other one's store is gone
        assert agent.returncode == 0, said
        assert "heddle/training" not in said  # no traceback goes through ours
    assert losses(folder / "runs/two-nodes") == losses(folder / "runs/own-tensor")


def test_under_slurm(folder, slurm):
    """What `srun` is told to run, with the variables that it has, is run here as often as it should be."""
    arguments = under({"tensor": 2}, "slurm")
    script = finish(heddle("launch", "--slurm", *arguments[1:], cwd=folder))
    batch = start("bash", "-c", script, cwd=folder, **slurm(TELL_AND_WAIT))
    wait_until((folder / "told").exists, "srun is not called")
    option, program, *words = (folder / "words").read_text().split("\0")[:-1]
    assert (option[:2], program) == ("--", "heddle")
    given = dict(pair.partition("=")[::2] for pair in (folder / "variables").read_text().split("\0")[:-1])
    ranks = [
        heddle(*words, cwd=folder, **given | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_STEP_NUM_TASKS": "2"})
        for rank in "01"
    ]
    said = "".join(finish(rank) for rank in ranks)
    (folder / "done").touch()
    finish(batch)
    assert losses(folder / "runs/slurm") == losses(folder / "runs/own-tensor")
    assert said.count("Trained 4 steps") == 1
    assert not (folder / "requeued").exists()


def test_a_slurm_job_starts_again_after_a_rank_died(folder, slurm, tmp_path):
    arguments = under({"tensor": 2}, "again", "train.restarts=2")
    script = finish(heddle("launch", "--slurm", *arguments[1:], cwd=folder))
    dies = 'mkdir -p runs/again; touch runs/again/job.toml; echo "${@: -1}" >> told; [ "$(wc -l < told)" -eq 3 ]\n'
    finish(start("bash", "-c", script, cwd=tmp_path, **slurm(dies)))
    assert [word == "--resume" for word in (tmp_path / "told").read_text().split()] == [False, True, True]
    (tmp_path / "told").unlink()
    finish(start("bash", "-c", script, cwd=tmp_path, **slurm("echo tried >> told; false\n")), code=1)
    assert (tmp_path / "told").read_text().split() == ["tried"] * 3


TELL_AND_WAIT = """
printf '%s\\0' "$@" > words
env -0 > variables
touch told
until [ -e done ]; do sleep 0.1; done
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
    (run / "job.toml").touch()  # with it a run folder has everything
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


# --- Who am I?


def test_a_place_is_what_the_launcher_says(environment):
    assert launched_place() is None
    environment(SLURM_PROCID="0", SLURM_NTASKS="4", SLURM_LOCALID="0")
    assert launched_place() is None  # a batch script, which is one process whatever it asked for
    environment(SLURM_STEP_NUM_TASKS="1")
    assert launched_place() is None  # a shell under srun
    environment(SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="3", SLURM_LOCALID="1")
    assert launched_place() == LaunchedRank(3, 4)
    assert os.environ["LOCAL_RANK"] == "1"
    environment(RANK="1", WORLD_SIZE="2")
    assert launched_place() == LaunchedRank(1, 2)


@pytest.mark.parametrize("world", [2, 8])
def test_another_number_of_processes_than_the_plan_needs_is_refused(folder, environment, capsys, world):
    environment(RANK="0", WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    with chdir(folder):
        assert call(*under(TENSOR_PIPELINE, "refused")) == 2
    told = capsys.readouterr().err
    assert f"{world} processes started, but the plan needs tensor × pipeline × data = 2 × 2 × 1 = 4" in told
    assert "Start 4 of them" in told
    assert not (folder / "runs/refused").exists()


def test_the_address_of_the_rendezvous_must_be_set(environment):
    with pytest.raises(HeddleError, match=r"MASTER_ADDR is not set(.|\n)*heddle launch --slurm"):
        join(Plan(data=2), LaunchedRank(0, 2))
    environment(MASTER_ADDR="127.0.0.1")
    with pytest.raises(HeddleError, match="MASTER_PORT is not set"):
        join(Plan(data=2), LaunchedRank(0, 2))


@pytest.mark.parametrize(
    ("variables", "what"),
    [
        ({"RANK": "first", "WORLD_SIZE": "2"}, "RANK='first' must be a whole number from 0"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK='-1' must be"),
        ({"RANK": "1" * 5000, "WORLD_SIZE": "2"}, "RANK='1+ … 1+' must be"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE='0' must be a whole number from 1"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": ""}, "LOCAL_RANK='' must be"),
        ({"RANK": "1"}, "RANK is set, but WORLD_SIZE is not"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set, but RANK is not"),
        ({"SLURM_PROCID": "x", "SLURM_STEP_NUM_TASKS": "2"}, "SLURM_PROCID='x' must be"),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "two"}, "SLURM_STEP_NUM_TASKS='two' must be"),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "?"}, "SLURM_LOCALID='.' must be"),
    ],
)
def test_what_no_launcher_would_say_is_refused(folder, environment, capsys, variables, what):
    environment(**variables)
    with chdir(folder):
        assert call(*under({"tensor": 2}, "refused")) == 2
    told = capsys.readouterr().err.splitlines()
    assert re.match(f"error: {what}", told[0])
    assert len(told) == 3


@pytest.mark.parametrize(
    ("rank", "variables", "what"),
    [
        (0, {"MASTER_PORT": "70000"}, "MASTER_PORT='70000' must be a whole number from 1 to 65535"),
        (1, {"MASTER_PORT": "http"}, "MASTER_PORT='http' must be"),
        (0, {"MASTER_ADDR": "192.0.2.7"}, r"Rank 0 cannot listen at 192.0.2.7:\d+.\nThat is not an address of this"),
        (0, {"SLURM_STEP_NUM_NODES": "2"}, "127.0.0.1 on rank 0's machine, which the other 1 cannot reach"),
        (0, {}, r"Rank 0 cannot listen at 127.0.0.1:\d+.\nAnother program is listening there"),
        (1, {"MASTER_ADDR": "nowhere.invalid"}, "MASTER_ADDR='nowhere.invalid' is not an address"),
        (1, {"MASTER_ADDR": "a" * 70}, "MASTER_ADDR='a+' is not an address"),
        (1, {"MASTER_PORT": "1"}, r"Rank 1 cannot reach rank 0 at MASTER_ADDR:MASTER_PORT = 127.0.0.1:1\."),
        (1, {"HEDDLE_RENDEZVOUS_SECONDS": "soon"}, "HEDDLE_RENDEZVOUS_SECONDS='soon' must be"),
    ],
)
def test_where_nobody_can_meet_every_rank_says_so_in_seconds(environment, monkeypatch, rank, variables, what):
    monkeypatch.setattr(rendezvous, "RESOLVING", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
        environment(**where | {"HEDDLE_RENDEZVOUS_SECONDS": "1"} | variables)
        with pytest.raises(HeddleError, match=what) as told:
            run_joined(Plan(data=2), LaunchedRank(rank, 2), print)
        assert all((told.value.what, told.value.why, told.value.hint))


def test_ranks_that_do_not_come_are_missed_by_name(environment):
    environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), HEDDLE_RENDEZVOUS_SECONDS="1")
    with pytest.raises(HeddleError, match=r"3 of 4 processes did not join at .* within 1 s: rank 1, 2, 3"):
        join(Plan(data=4), LaunchedRank(0, 4))


def test_gpus_meet_with_their_device_and_enough_queues(environment, monkeypatch):
    """NCCL then connects at once, and splits its groups; a pipeline whose streams would block each other is refused."""
    asked = {}
    environment(MASTER_ADDR="127.0.0.1", MASTER_PORT="1", CUDA_DEVICE_MAX_CONNECTIONS="1")
    monkeypatch.setattr(joining, "pick_device", lambda: torch.device("cuda", 3))
    monkeypatch.setattr(joining, "rendezvous_at_address", lambda _: torch.distributed.HashStore())
    monkeypatch.setattr(
        joining.dist, "init_process_group", lambda backend, **options: asked.update(options, on=backend)
    )
    monkeypatch.setattr(joining, "build_mesh", lambda *_: Mesh())
    monkeypatch.setattr(joining, "compare_devices", lambda *_: asked.setdefault("compared", not asked))
    join(Plan(data=2), LaunchedRank(0, 2))
    assert (asked["on"], asked["device_id"]) == ("nccl", torch.device("cuda", 3))
    assert asked["compared"]  # before NCCL was asked for anything
    with pytest.raises(HeddleError, match="CUDA_DEVICE_MAX_CONNECTIONS is 1"):
        join(Plan(pipeline=2), LaunchedRank(0, 2))


def test_a_job_is_the_same_on_every_rank(folder):
    ran = load_job(folder / "runs/own/job.toml")
    assert ran.plan == dataclasses.replace(Plan(tensor=2, pipeline=2), stages=(1, 1))
