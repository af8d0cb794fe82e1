"""`heddle demo`: six acts that really happen, in any folder, again and again."""

import re
import signal
import time

import pytest

from heddle.demo import demo_job, make_room
from heddle.errors import HeddleError
from heddle.spec.job import dumps_job, load_job
from heddle.trace.steps import traced_steps
from tests.helpers.commands import call, finish, heddle, losses, start, write_job

ACTS = ["1. Measure", "2. Plan", "3. Simulate", "4. Train", "5. Write", "6. Compare"]


def check(folder, said, world, steps):
    """Everything that a demo says and leaves."""
    assert [line for line in said.splitlines() if line in ACTS] == ACTS
    assert [path.name for path in folder.iterdir()] == ["runs"]
    run = folder / "runs" / "demo"
    job = load_job(run / "job.toml")
    assert job.plan.world == world == job.cluster.devices
    assert f"with {world} processes running" in job.cluster.efficiency.source
    assert len(losses(run)) == steps
    assert traced_steps(run / "traces") == list(range(1, min(steps, 20) + 1))
    assert "predicted over measured" in (run / "report.html").read_text(encoding="utf-8")
    assert (run / "report.html").as_uri() in said
    # the same number is planned, written down and compared at the end
    step = re.search(r"^a step +(\S+) (\S+) +\S+ \S+ ", said, flags=re.MULTILINE)
    assert float(step[1]) * {"s": 1, "ms": 1e-3}[step[2]] == pytest.approx(job.predicted.step_seconds, rel=0.01)
    return run


@pytest.mark.dist
def test_two_processes_measure_plan_train_write_and_compare(tmp_path):
    said = heddle("demo", "--plan", "2x1x1", "--steps", "3", cwd=tmp_path)
    check(tmp_path, said, world=2, steps=3)
    assert re.search(r"It is number \d+ of \d+ by prediction", said)
    make_room(demo_job("2x2x2", 3))
    assert not (tmp_path / "runs" / "demo").exists()


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_eight_processes_learn_and_a_second_demo_takes_the_place_of_the_first(tmp_path):
    for steps in (4, 40):
        process = start("demo", "--steps", str(steps), cwd=tmp_path)
        said, errors = process.communicate(timeout=400)
        assert process.returncode == 0, errors
        run = check(tmp_path, said, world=8, steps=steps)
    assert "8 processes take turns" in said or load_job(run / "job.toml").cluster.cores is None
    guessing = re.search(r"Guessing by token frequency alone would score ([\d.]+)\.$", said, flags=re.MULTILINE)
    assert max(losses(run)[-5:]) < float(guessing[1]) < losses(run)[0]
    assert max(losses(run)) < 1.005 * losses(run)[0]  # it never rises above where it began


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize("act", ["1. Measure", "4. Train"])
def test_ctrl_c_ends_it_with_a_word(tmp_path, act):
    process = start("demo", "--plan", "2x1x1", "--steps", "5000", cwd=tmp_path)
    while process.stdout.readline().strip() != act:
        assert process.poll() is None
    time.sleep(15 if act == "4. Train" else 2)
    process.send_signal(signal.SIGINT)
    said = finish(process, 0 if act == "4. Train" else 130)
    assert "Stopped" in said


def test_an_earlier_demo_makes_room_and_another_run_does_not(tmp_path):
    job = demo_job("2x1x1", 5)
    make_room(job)
    assert not job.run_folder.exists()
    job.run_folder.mkdir()
    (job.run_folder / "mine").touch()
    with pytest.raises(HeddleError, match="of another run"):
        make_room(job)
    other = load_job(write_job(tmp_path / "other"))
    (job.run_folder / "job.toml").write_text(dumps_job(other))
    with pytest.raises(HeddleError, match="of another run"):
        make_room(job)
    (job.run_folder / "job.toml").write_text(dumps_job(demo_job("2x2x2", 50)))
    make_room(job)
    assert not job.run_folder.exists()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("2x2", "is not a plan"),
        ("2x-2x2", "is not a plan"),
        ("4x4x4", "needs 64 processes"),
        ("3x1x1", "3"),  # the model has four heads
    ],
)
def test_a_plan_that_cannot_be_is_told_before_anything_is_measured(plan, words, capsys):
    assert call("demo", "--plan", plan) == 2
    assert words in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path, capsys):
    (tmp_path / "runs").write_text("a file")
    assert call("demo") == 2
    assert "cannot be written" in capsys.readouterr().err
