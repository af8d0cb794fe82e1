"""Updates that are checked after the fact are those of a run that waits, to the bit, whether they stand or not."""

from __future__ import annotations

import dataclasses
import math
import statistics
from pathlib import Path

import pytest
import torch

from heddle.checkpoint.checkpoint import Saver, newest_good
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.schedule import NAMES, build, early_forwards, producer
from heddle.spec import Job, ModelSpec, Plan
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.checked import CheckedSteps
from heddle.training.step.choose import make_trainer
from tests.helpers.cases import thinned
from tests.helpers.small_models import gpt, llama
from tests.numerics.test_equality_grid import job
from tests.strict import strict_run

pytestmark = pytest.mark.dist

STEPS = 8
CELLS: dict[str, tuple[ModelSpec, Plan, int]] = {
    "zb-h2": (llama(layers=3), Plan(pipeline=3, schedule="zb-h2"), 6),
    "zb-v-tied-data2-zero1": (gpt(layers=4), Plan(pipeline=2, virtual=2, data=2, zero=1, schedule="zb-v"), 8),
    "1f1b-tied-tensor2": (gpt(dropout=0.1), Plan(pipeline=2, tensor=2, sequence=True, recompute="selective"), 4),
    "1f1b-data2-shares": (gpt(tied=False), Plan(pipeline=2, data=2, shares=(2, 5)), 7),
    "dualpipev": (llama(layers=4), Plan(pipeline=2, virtual=2, schedule="dualpipev"), 4),
}


def job_of(name: str, clip: float, **changes: object) -> Job:
    model, plan, batch = CELLS[name]
    plan = dataclasses.replace(plan, **changes)
    a_job = job(model, plan, batch)
    return dataclasses.replace(a_job, train=dataclasses.replace(a_job.train, steps=STEPS, clip=clip))


def trained(mesh: Mesh, a_job: Job) -> tuple[list[tuple[float, float]], list[bytes], int]:
    """Losses and norms, the weights, and how many updates were undone."""
    trainer = make_trainer(a_job, synthetic_tokens(a_job), mesh)
    handed = [trainer.steps.start_step() for _ in range(STEPS)]
    trainer.steps.drain()
    results = [step.read() for step in handed]
    trainer.wait_for_weights()
    bits = [piece.master.detach().numpy().tobytes() for piece in trainer.optimizer.pieces]
    return [(result.loss, result.norm) for result in results], bits, getattr(trainer.steps, "undone", 0)


@pytest.mark.parametrize("name", thinned(CELLS, slow=CELLS.keys() - {"1f1b-data2-shares"}))
def test_every_bit_is_that_of_a_run_that_waits(world, name):
    plan = CELLS[name][1]
    never_clipped = world.run(trained, plan, job_of(name, 1e6))[0]
    clip = statistics.median(norm for _, norm in never_clipped[0][2:])
    for limit in (1e6, clip):  # nothing is clipped; about every second step is
        usual = world.run(trained, plan, job_of(name, limit))
        after = world.run(trained, plan, job_of(name, limit, check_step="after"))
        assert [each[:2] for each in after] == [each[:2] for each in usual]
        assert {each[2] > 0 for each in after} == {limit == clip}


def trained_in_parts(mesh: Mesh, a_job: Job, folder: Path, stop: int, resume: bool) -> list[float]:
    trainer, saver = make_trainer(a_job, synthetic_tokens(a_job), mesh), Saver(folder, mesh)
    if resume:
        trainer.load(newest_good(folder, mesh, lambda _: None))
    handed = []
    while trainer.step < stop:
        handed.append(trainer.steps.start_step())
        if trainer.step == 4:
            for step in handed:
                step.read()
            trainer.save(saver)
    trainer.steps.drain()
    saver.wait()
    return [step.read().loss for step in handed]


def test_a_checkpoint_waits_for_the_check(world, tmp_path):
    name = "zb-v-tied-data2-zero1"
    a_job, plan = job_of(name, 1.0, check_step="after"), CELLS[name][1]
    whole = world.run(trained_in_parts, plan, a_job, tmp_path / "whole", STEPS, False)
    world.run(trained_in_parts, plan, a_job, tmp_path / "parts", 4, False)
    rest = world.run(trained_in_parts, plan, a_job, tmp_path / "parts", STEPS, True)
    assert [losses[4:] for losses in whole] == rest


def broken(mesh: Mesh, a_job: Job) -> tuple[float, bool, bool]:
    """A gradient that is not a number, on one stage, in a step that is trusted."""
    trainer = make_trainer(a_job, synthetic_tokens(a_job), mesh)
    assert isinstance(trainer.steps, CheckedSteps)
    for _ in range(4):
        trainer.train_step()
    trainer.steps.drain()
    before = [piece.master.clone() for piece in trainer.optimizer.pieces]
    trusted = trainer.steps.trusting
    norm = trainer.optimizer.squared_norm
    if mesh.pipeline.rank == 1:
        trainer.optimizer.squared_norm = lambda: norm() * math.nan  # type: ignore[method-assign]
    result = trainer.train_step()
    trainer.steps.drain()
    same = all(torch.equal(piece.master, old) for piece, old in zip(trainer.optimizer.pieces, before, strict=True))
    return result.norm, trusted, same


def test_an_update_by_what_is_not_finite_is_undone_everywhere(world):
    for norm, trusted, same in world.run(broken, CELLS["zb-h2"][1], job_of("zb-h2", 1e6, check_step="after")):
        assert math.isnan(norm)
        assert trusted
        assert same


@pytest.mark.parametrize("name", CELLS)
def test_a_run_goes_by_the_rules_of_nccl(name):
    run = strict_run(job_of(name, 1.0, check_step="after"), 5, reads=2)  # the host decides whether an update stands
    for losses in run.results:
        assert losses == run.results[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pipeline", [2, 3, 8])
def test_early_forwards_need_nothing_else(name, pipeline):
    virtual = 2 if name in ("interleaved", "zb-v", "dualpipev") else 1
    schedule = build(name, pipeline, 2 * pipeline + 1, virtual)
    early = early_forwards(schedule)
    done = {action for order, count in zip(schedule.ranks, early, strict=True) for action in order[:count]}
    assert all(action.kind.direction > 0 for action in done)
    assert {producer(schedule, action) for action in done} <= done | {None}
    assert min(early) >= 1


def test_what_cannot_be_undone_is_refused():
    for changes in ({"pipeline": 1}, {"update": "2bw"}, {"zero": 2, "data": 2}, {"offload": ("optimizer:disk",)}):
        with pytest.raises(HeddleError, match="check_step = 'after'"):
            Plan(**{"pipeline": 2, "check_step": "after", **changes})
