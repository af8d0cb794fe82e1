"""How long each phase may go without progress, by a clock that the test turns."""

import pytest
import torch.distributed as dist

from heddle.checkpoint.checkpoint import Saver
from heddle.parallel.mesh import Mesh
from heddle.spec import Plan
from heddle.training import loop
from heddle.training.phases import LIMITS, SHORTEST, Phases, RunPhase
from heddle.training.step.trainer import Trainer
from heddle.training.watchdog import ANSWERED, ASKED, Watchdog
from tests.helpers.commands import call, write_job


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def stepping(clock, limit=0.0, seconds=10.0, steps=3) -> Phases:
    phases = Phases(limit, clock)
    phases.enter(RunPhase.FIRST_STEP)
    clock.now += 500  # compiles
    phases.piece()
    phases.enter(RunPhase.STEP)
    for _ in range(steps):
        clock.now += seconds
        phases.piece()
    return phases


def test_steps_may_take_many_times_as_long_as_usual_but_the_first_is_not_usual(clock):
    phases = stepping(clock)
    assert phases.steps == 4
    assert phases.usual == 10
    assert phases.allowed() == 200
    assert stepping(clock, seconds=0.1).allowed() == SHORTEST


def test_a_limit_is_that_of_steps_and_lets_everything_else_its_time(clock):
    phases = Phases(4.0, clock)
    for phase in (RunPhase.PREPARE, RunPhase.FIRST_STEP, RunPhase.SAVE, RunPhase.EVALUATE):
        phases.enter(phase)
        assert phases.allowed() == LIMITS[phase] >= 600
    phases.enter(RunPhase.STEP)
    assert phases.allowed() == 4
    assert Phases(5000.0, clock).allowed() == 5000  # who allows a step so much allows all else as much


@pytest.mark.parametrize("phase", [RunPhase.SAVE, RunPhase.EVALUATE])
def test_progress_in_a_phase_makes_it_no_hang_and_none_does(clock, phase):
    phases = stepping(clock)
    with phases.during(phase):
        for _ in range(50):
            clock.now += 100
            assert phases.silent() <= phases.allowed()
            phases.piece()
        clock.now += 5000
        assert phases.silent() > phases.allowed()
    assert phases.phase is RunPhase.STEP
    assert phases.silent() == 0  # what came after it is not blamed for it
    clock.now += 10
    phases.piece()
    assert phases.usual == 10


def test_a_save_in_the_background_does_not_make_steps_look_short(clock):
    phases = stepping(clock)
    for _ in range(9):
        clock.now += 5
        phases.tick()  # by the thread that writes
        clock.now += 5
        phases.piece()
    assert phases.usual == 10


def test_who_waits_for_another_that_comes_further_does_not_hang(clock):
    """One rank has written its part of a checkpoint; the other still writes, for hours."""
    store = dist.HashStore()
    watchdogs = [Watchdog(Mesh(rank=rank), Plan(data=2), Phases(0, clock)) for rank in range(2)]
    for watchdog in watchdogs:
        watchdog.store = store
        watchdog.answered, watchdog.answers = (store.add(key, 0) for key in (ASKED, ANSWERED))
        watchdog.phases.enter(RunPhase.SAVE)
    for _ in range(100):
        clock.now += 100
        watchdogs[1].phases.tick()
        assert not any(watchdog._stands_still() for watchdog in watchdogs)
    assert watchdogs[0].phases.silent() > 5 * watchdogs[0].phases.allowed()
    for _ in range(30):
        clock.now += 100
        stand_still = [watchdog._stands_still() for watchdog in watchdogs]
    assert stand_still == [True, True]


def test_a_run_is_in_the_phase_of_what_it_does(tmp_path, monkeypatch):
    """Compiling in the first step, an evaluation and waiting for a save are not taken for steps that hang."""
    seen: list[tuple[str, RunPhase]] = []
    made: list[Phases] = []

    def noted(owner: type, name: str) -> None:
        plain = getattr(owner, name)

        def method(self, *arguments, **options):
            if (name, made[0].phase) not in seen:
                seen.append((name, made[0].phase))
            return plain(self, *arguments, **options)

        monkeypatch.setattr(owner, name, method)

    for owner, name in ((Trainer, "start_step"), (Trainer, "evaluate"), (Trainer, "save"), (Saver, "wait")):
        noted(owner, name)
    monkeypatch.setattr(loop, "Phases", lambda *limits: made.append(Phases(*limits)) or made[0])
    write_job(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert call("train", "job.toml", "--set", "train.eval_every=2", "--set", "train.save_every=4") == 0
    assert seen == [
        ("start_step", RunPhase.FIRST_STEP),
        ("start_step", RunPhase.STEP),
        ("evaluate", RunPhase.EVALUATE),
        ("save", RunPhase.SAVE),
        ("wait", RunPhase.SAVE),
    ]
