"""A checkpoint that one plan wrote goes on under another as if the run had never stopped, nor ever been spread."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from heddle.checkpoint.checkpoint import Saver, checkpoints, newest_good, step_of
from heddle.checkpoint.index import read_index
from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.prove.compare import LOSS_LIMIT, relative
from heddle.training.prove.prove import observe_serial, synthetic_tokens
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.helpers.small_models import GPT, experts, gpt, latent, llama
from tests.helpers.world import SIZE, World

pytestmark = pytest.mark.dist

BATCH = 4
LEG = 2  # steps under each plan

DEEP = ModelSpec(layers=8, hidden=16, heads=8, vocab=17, sequence=8, ffn=32)
LARGE = ModelSpec(layers=2, hidden=8, heads=4, vocab=31123, sequence=8, ffn=16)


def plan(tensor: int = 1, pipeline: int = 1, **fields) -> Plan:
    if fields.get("virtual", 1) > 1:
        fields["schedule"] = "interleaved"
    # as few microbatches as a pipeline can do with: eight processes on few cores take their time for every message
    share = BATCH // fields.get("data", 1)
    return Plan(tensor=tensor, pipeline=pipeline, microbatch=max(1, share // min(2, pipeline)), **fields)


SERIAL = Plan(microbatch=BATCH)

# name: model, and the plans under which it is trained one after the other; each takes one process or all
CELLS: dict[str, tuple[ModelSpec, tuple[Plan, ...]]] = {
    # tensor × pipeline
    "2x4-to-4x2": (llama(layers=4, vocab=128), (plan(2, 4), plan(4, 2))),
    "1x8-to-8x1": (DEEP, (plan(1, 8), plan(8, 1))),
    "1x1-to-1x8": (dataclasses.replace(DEEP, vocab=128, dropout=0.1), (SERIAL, plan(1, 8))),
    "1x1-to-8x1": (dataclasses.replace(LARGE, heads=8, kv_heads=8, head_size=1), (SERIAL, plan(8, 1))),
    # virtual stages: chunks change owners
    "virtual-1-to-2": (gpt(layers=4, vocab=17), (plan(2, 2, data=2), plan(2, 2, data=2, virtual=2))),
    "virtual-2-to-1": (
        llama(layers=4, dropout=0.1),
        (plan(1, 2, data=4, zero=1, virtual=2), plan(4, 2, sequence=True)),
    ),
    # what replicas share
    "zero-0-to-1-to-3": (gpt(vocab=128), (plan(2, data=4), plan(2, data=4, zero=1), plan(2, data=4, zero=3))),
    "zero-3-to-0": (LARGE, (plan(2, data=4, zero=3), plan(2, data=4))),
    # replicas
    "data-2-to-4": (
        gpt(layers=4, vocab=17, dropout=0.1, ffn=(32, 16, 48, 16)),
        (plan(1, 4, data=2, zero=1), plan(1, 2, data=4, zero=1)),
    ),
    "data-4-to-1": (llama(tied=True), (plan(2, data=4, zero=1), SERIAL)),
    # sequence parallelism
    "sequence-on-to-off": (LARGE, (plan(4, 2, sequence=True), plan(4, 2))),
    "sequence-off-to-on": (llama(vocab=17, dropout=0.1), (plan(2, data=4, zero=2), plan(2, data=4, sequence=True))),
    # tokens of a sample
    "context-1-to-4": (llama(vocab=17, dropout=0.1), (SERIAL, plan(2, context=4, zero=1))),
    "context-4-to-2-to-1": (
        gpt(layers=4),
        (
            plan(1, context=4, context_exchange="gather", data=2, zero=3),
            plan(2, 2, context=2, context_exchange="all-to-all", sequence=True),
            plan(1, data=4, zero=2, context=2),
            SERIAL,
        ),
    ),
    # experts
    "expert-4-to-2-to-1": (
        experts(experts=8, layers=4, dense_layers="0", shared_experts=1),
        (
            plan(1, data=4, expert=4, zero=1, context=2),
            plan(2, 2, data=2, expert=2, zero=1),
            plan(2, data=4, expert=2, zero=3),
            SERIAL,
            plan(1, 2, data=4, expert=4),
        ),
    ),
    "experts-tensor-to-zero-3-to-pipeline": (
        experts(layers=4, dense_layers="0", shared_experts=1, shared_gate=True),
        (
            plan(4, data=2, zero=1),
            plan(1, data=4, zero=3, context=2),
            plan(2, 2, data=2, sequence=True, expert=2, expert_tensor=1),
            SERIAL,
        ),
    ),
    "latent-tensor-to-context": (
        latent(layers=4, dense_layers="0"),
        (plan(2, 2, data=2, sequence=True, expert=2), plan(2, context=2, data=2, zero=3, expert_tensor=1), SERIAL),
    ),
    # all of them
    "all-to-all": (
        gpt(layers=4, vocab=127, dropout=0.1),
        (plan(2, 2, data=2, zero=1, sequence=True, virtual=2), plan(2, data=4, zero=3, recompute="full")),
    ),
}


# what they change, others change too, with fewer processes or layers
SLOW = (
    "1x8-to-8x1",
    "1x1-to-8x1",
    "data-4-to-1",
    "context-1-to-4",
    "virtual-1-to-2",
    "1x1-to-1x8",
    "virtual-2-to-1",
    "zero-3-to-0",
    "sequence-on-to-off",
    "data-2-to-4",
    "latent-tensor-to-context",
    "sequence-off-to-on",
    "experts-tensor-to-zero-3-to-pipeline",
    "2x4-to-4x2",
)


def job(model: ModelSpec, a_plan: Plan | None, legs: int) -> Job:
    train = Train(
        steps=legs * LEG, global_batch=BATCH, learning_rate=1e-2, warmup=2, clip=0.5, weight_decay=0.1, save_every=LEG
    )
    return Job(model=model, data=Data(text="-"), train=train, plan=a_plan)


def train_a_leg(mesh: Mesh, a_job: Job, folder: Path) -> list[float]:
    """Resume from the newest checkpoint, if there is one, train, and save: what a run does, without its metrics."""
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    saver = Saver(folder, mesh)
    if checkpoints(folder):
        trainer.load(newest_good(folder, mesh, warn=pytest.fail))
    losses = [trainer.train_step().loss for _ in range(LEG)]
    trainer.save(saver)
    saver.wait()
    return losses


@cache
def serial(model: ModelSpec, legs: int) -> list[float]:
    """The losses of one device that never stopped."""
    return observe_serial(job(model, None, legs)).losses


@pytest.mark.parametrize("name", thinned(CELLS, SLOW))
def test_another_plan_goes_on_as_if_nothing_had_happened(world: World, tmp_path, name):
    model, plans = CELLS[name]
    losses: list[float] = []
    for a_plan in plans:
        on_ranks = world.run(train_a_leg, a_plan, job(model, a_plan, len(plans)), tmp_path)
        assert all(each == on_ranks[0] for each in on_ranks)
        losses += on_ranks[0]
    assert [step_of(path) for path in checkpoints(tmp_path)] == [LEG * (len(plans) - 1), LEG * len(plans)]
    expected = serial(model, len(plans))
    assert len(losses) == len(expected) == LEG * len(plans)
    assert max(map(relative, losses, expected)) <= LOSS_LIMIT


def forget_moments(trainer: Trainer, kind: str) -> None:
    for piece in trainer.optimizer.pieces:
        trainer.optimizer.adam.state[piece.master][kind].zero_()


def forget_updates(trainer: Trainer) -> None:
    for piece in trainer.optimizer.pieces:
        trainer.optimizer.adam.state[piece.master]["step"].zero_()


def forget_one_row(trainer: Trainer) -> None:
    trainer.optimizer.pieces[0].master[:16] = 0


FORGOTTEN: dict[str, Callable[[Trainer], None]] = {
    "first moments": lambda trainer: forget_moments(trainer, "exp_avg"),
    "second moments": lambda trainer: forget_moments(trainer, "exp_avg_sq"),
    "count of updates": forget_updates,
    "sampler's position": lambda trainer: setattr(trainer, "position", 0),
    "step": lambda trainer: setattr(trainer, "step", 0),
    "row of a weight": forget_one_row,
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_the_grid_would_notice_what_a_checkpoint_forgot(tmp_path, what):
    a_job = job(GPT, SERIAL, 2)
    train_a_leg(Mesh(), a_job, tmp_path)
    trainer = Trainer(a_job, synthetic_tokens(a_job))
    trainer.load(tmp_path / f"step-{LEG:08}")
    FORGOTTEN[what](trainer)
    losses = [trainer.train_step().loss for _ in range(LEG)]
    assert max(map(relative, losses, serial(GPT, 2)[LEG:])) > 10 * LOSS_LIMIT


def test_the_optimizer_is_spread_and_saved_as_the_weights_are(world: World, tmp_path):
    a_plan = plan(2, data=4, zero=1)
    world.run(train_a_leg, a_plan, job(GPT, a_plan, 1), tmp_path)
    index = read_index(tmp_path / f"step-{LEG:08}")
    files = {kind: set() for kind in ("", "exp_avg", "exp_avg_sq")}
    for name, tensor in index.items():
        files[name.partition(":")[2]] |= {box.file for box in tensor.boxes}
    assert all(len(some) == SIZE for some in files.values())  # every rank has written its own part of each


def test_the_grid_is_as_wide_as_it_says():
    pairs = [(a, b) for _, plans in CELLS.values() for a, b in pairwise(plans)]
    assert len(pairs) >= 14
    assert {17, 127, 128, 31123} <= {model.vocab for model, _ in CELLS.values()}
    degrees = {((a.tensor, a.pipeline), (b.tensor, b.pipeline)) for a, b in pairs}
    assert {((2, 4), (4, 2)), ((1, 8), (8, 1)), ((1, 1), (1, 8))} <= degrees
    assert {(0, 1), (1, 3)} <= {(a.zero, b.zero) for a, b in pairs}
    assert {each.world for pair in pairs for each in pair} == {1, SIZE}
    for field in ("tensor", "pipeline", "data", "zero", "virtual", "sequence"):
        changes = {getattr(a, field) < getattr(b, field) for a, b in pairs if getattr(a, field) != getattr(b, field)}
        assert changes == {False, True}, field  # up and down, on and off
    split = [model for model, plans in CELLS.values() if any(each.tensor > 1 for each in plans)]
    assert {model.tied for model in split} == {True, False}
    assert {model.norm for model in split} == {"layernorm", "rmsnorm"}
