"""Late updates, distributed, are those of the published recurrence; with no delay, they are not late."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from unittest.mock import patch

import pytest

from heddle.checkpoint.checkpoint import Saver, newest_good
from heddle.parallel.mesh import Mesh
from heddle.schedule.delayed import UPDATES, DelayedSchedule
from heddle.spec import Job, ModelSpec, Plan
from heddle.train.prove.compare import LOSS_LIMIT, compare
from heddle.train.prove.prove import observe, observe_recurrence, observe_serial, synthetic_tokens
from heddle.train.prove.recurrence import Recurrence
from heddle.train.step.choose import make_trainer
from tests.helpers.cases import covering, thinned
from tests.helpers.small_models import gpt, llama
from tests.numerics.test_equality_grid import job, rounding
from tests.strict import strict_run

pytestmark = pytest.mark.dist

STEPS, FEWER = 16, 12  # of few processes, and of many; no update is late by more than four
# name: model, plan, global batch, and what of [train] is not as usual
CELLS: dict[str, tuple[ModelSpec, Plan, int, dict[str, object]]] = {
    "pipedream2": (gpt(tied=False), Plan(pipeline=2, update="pipedream"), 3, {}),
    "pipedream4-one-microbatch": (llama(layers=4), Plan(pipeline=4, microbatch=2, update="pipedream"), 2, {}),
    "pipedream2-tensor2-data2": (
        llama(dropout=0.1),
        Plan(tensor=2, sequence=True, pipeline=2, data=2, update="pipedream"),
        4,
        {},
    ),
    "2bw2": (llama(), Plan(pipeline=2, update="2bw"), 4, {}),
    "2bw4-few": (gpt(layers=5, tied=False), Plan(pipeline=4, update="2bw"), 2, {"delay_correction": "feedback"}),
    "2bw3-data2-zero1": (llama(layers=3), Plan(pipeline=3, data=2, zero=1, update="2bw", recompute="full"), 8, {}),
    "replay3": (gpt(layers=3, tied=False, dropout=0.1), Plan(pipeline=3, update="features-replay"), 3, {}),
    "replay2-tensor2": (
        llama(),
        Plan(pipeline=2, tensor=2, update="features-replay"),
        2,
        {"delay_correction": "beta1"},
    ),
    "ouroboros2-tied": (gpt(layers=3), Plan(pipeline=2, update="ouroboros"), 2, {}),
    "ouroboros4-tied": (
        gpt(layers=5, dropout=0.1),
        Plan(pipeline=4, update="ouroboros"),
        3,
        {"delay_correction": "feedback"},
    ),
    "ouroboros3-data2-zero1": (
        gpt(layers=4, vocab=17),
        Plan(pipeline=3, data=2, zero=1, update="ouroboros"),
        4,
        {"delay_correction": "nesterov", "beta1": 0.5},  # few steps are enough for a longer memory
    ),
    "ouroboros2-tensor2-warm-up": (
        llama(layers=3, tied=True),
        Plan(pipeline=2, tensor=2, update="ouroboros"),
        2,
        {"delay_warmup": 7, "delay_correction": "rate"},
    ),
}


# Their rules are followed by others, with fewer processes.
SLOW = "pipedream2-tensor2-data2", "2bw3-data2-zero1", "replay2-tensor2", "ouroboros4-tied"


def cell(name: str) -> Job:
    model, plan, batch, train = CELLS[name]
    a_job = job(model, plan, batch)
    steps = STEPS if plan.world < 4 else FEWER
    return dataclasses.replace(a_job, train=dataclasses.replace(a_job.train, steps=steps, clip=0.1, **train))


@pytest.mark.parametrize("name", thinned(CELLS, SLOW))
def test_a_run_follows_the_recurrence(world, name):
    model, plan, batch, _ = CELLS[name]
    a_job = cell(name)
    parallel, *_ = world.run(observe, plan, a_job)
    comparison = compare(parallel, observe_recurrence(a_job.planned, plan.delayed), rounding(model, batch))
    assert len(comparison.losses) == a_job.train.steps
    assert comparison.max_loss_diff <= LOSS_LIMIT
    assert comparison.max_gradient_diff <= comparison.gradient_limit, comparison.worst
    assert not comparison.unequal_start


@pytest.mark.parametrize("name", UPDATES)
def test_the_recurrence_without_delay_is_training(name):
    rule = dataclasses.replace(UPDATES[name], delay=lambda _chunk, _chunks: 0)
    model = gpt(layers=4, tied=name == "ouroboros")
    a_job = job(model, Plan(pipeline=3, update=name), 4)
    found = Recurrence(a_job.planned, DelayedSchedule(rule, 3, 4))
    a_job = dataclasses.replace(a_job, train=dataclasses.replace(a_job.train, clip=0.0))
    found.job = a_job.planned
    assert found.run(synthetic_tokens(a_job)).losses == pytest.approx(observe_serial(a_job).losses, rel=1e-6)


def losses_without_delay(mesh: Mesh, a_job: Job) -> list[float]:
    """As a method trains whose every delay is 0: each step is drained before the next begins."""
    rule = a_job.planned.plan.delayed
    without = dataclasses.replace(rule, delay=lambda _chunk, _chunks: 0)
    with patch.dict(UPDATES, {without.name: without}):
        trainer = make_trainer(a_job, synthetic_tokens(a_job), mesh)
        losses = []
        for _ in range(8):
            losses.append(trainer.train_step().loss)
            trainer.drain()
    return losses


def plain_losses(mesh: Mesh, a_job: Job) -> list[float]:
    trainer = make_trainer(a_job, synthetic_tokens(a_job), mesh)
    return [trainer.train_step().loss for _ in range(8)]


@pytest.mark.parametrize("name", ["pipedream", "2bw"])
def test_without_delay_every_bit_is_that_of_synchronous_training(world, name):
    """Not clipped: each stage would clip by its own norm, where synchronous training has one for all."""
    model = llama(layers=3)

    def unclipped(plan: Plan) -> Job:
        a_job = job(model, plan, 4)
        return dataclasses.replace(a_job, train=dataclasses.replace(a_job.train, clip=0.0, warmup=4))

    late, usual = Plan(pipeline=3, update=name), Plan(pipeline=3)
    assert world.run(losses_without_delay, late, unclipped(late)) == world.run(plain_losses, usual, unclipped(usual))


def trained(mesh: Mesh, a_job: Job, folder: Path, stop: int, resume: bool) -> list[float]:
    trainer, saver = make_trainer(a_job, synthetic_tokens(a_job), mesh), Saver(folder, mesh)
    if resume:
        trainer.load(newest_good(folder, mesh, lambda _: None))
    losses = []
    while trainer.step < stop:
        losses.append(trainer.train_step().loss)
        if trainer.step == 4:
            trainer.save(saver)
    saver.wait()
    trainer.drain()
    return losses


@pytest.mark.parametrize("name", thinned(("ouroboros2-tied", "2bw3-data2-zero1", "replay3"), slow=("replay3",)))
def test_a_checkpoint_holds_all_that_is_needed(world, tmp_path, name):
    a_job, plan = cell(name), CELLS[name][1]
    whole = world.run(trained, plan, a_job, tmp_path / "whole", 8, False)
    world.run(trained, plan, a_job, tmp_path / "parts", 4, False)
    rest = world.run(trained, plan, a_job, tmp_path / "parts", 8, True)
    assert [losses[4:] for losses in whole] == rest


@pytest.mark.parametrize("name", thinned(CELLS, slow=CELLS.keys() - covering(CELLS)))
def test_a_run_goes_by_the_rules_of_nccl(name):
    run = strict_run(cell(name), 5)
    for losses in run.results:
        assert losses == run.results[0]
