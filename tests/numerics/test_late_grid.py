"""Late updates, distributed, are those of the published recurrence; with no delay, they are not late."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from heddle.checkpoint.checkpoint import Saver, newest_good
from heddle.data import Samples
from heddle.models import Transformer, initialize
from heddle.parallel.mesh import Mesh
from heddle.schedule.late import UPDATES, LateSchedule
from heddle.spec import Job, ModelSpec, Plan
from heddle.training.prove.compare import LOSS_LIMIT
from heddle.training.prove.prove import conclude, observe, observe_serial, synthetic_tokens
from heddle.training.prove.recurrence import Recurrence
from heddle.training.prove.shrink import Shrunk
from heddle.training.step.choose import make_trainer
from heddle.training.step.learning_rate import learning_rate
from tests.helpers.cases import covering, thinned
from tests.helpers.reference import logits
from tests.helpers.small_models import gpt, llama
from tests.numerics.test_equality_grid import job
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
    "2bw2-context2-zero1": (llama(dropout=0.1), Plan(pipeline=2, context=2, zero=1, update="2bw"), 3, {}),
    "ouroboros2-context2-gather-data2": (
        gpt(layers=3),
        Plan(pipeline=2, context=2, context_exchange="gather", data=2, update="ouroboros"),
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
    "ouroboros2-untied-data2": (gpt(layers=3, tied=False), Plan(pipeline=2, data=2, update="ouroboros"), 4, {}),
    "ouroboros2-untied-bf16": (llama(layers=3), Plan(pipeline=2, update="ouroboros"), 2, {"precision": "bf16"}),
}


# They take longest, and each follows rules that others follow, too.
HEAVY = (
    "2bw3-data2-zero1",
    "ouroboros2-untied-bf16",
    "pipedream2-tensor2-data2",
    "ouroboros2-tensor2-warm-up",
    "replay2-tensor2",
)
# Their rules are followed by others, with fewer processes.
SLOW = (
    *("pipedream2-tensor2-data2", "2bw3-data2-zero1", "replay2-tensor2", "ouroboros4-tied"),
    *("ouroboros2-context2-gather-data2", "ouroboros2-tensor2-warm-up", "ouroboros3-data2-zero1"),
)


def cell(name: str) -> Job:
    model, plan, batch, train = CELLS[name]
    a_job = job(model, plan, batch)
    steps = STEPS if plan.world < 4 else FEWER
    return dataclasses.replace(a_job, train=dataclasses.replace(a_job.train, steps=steps, clip=0.1, **train))


@pytest.mark.parametrize("name", thinned(CELLS, SLOW))
def test_a_run_follows_the_recurrence(world, name):
    a_job, plan = cell(name), CELLS[name][1]
    parallel, *_ = world.run(observe, plan, a_job)
    comparison = conclude(Shrunk(a_job.planned, ()), parallel, 0.0).comparison
    assert len(comparison.losses) == a_job.train.steps
    assert comparison.equal, (comparison.max_loss_diff, comparison.worst, comparison.max_gradient_diff)


DRAINED = {5: "checkpoint", 11: "evaluation"}  # after so many steps


def interrupted(mesh: Mesh, a_job: Job, folder: Path) -> list[float]:
    """Losses of a run that writes a checkpoint on its way, and evaluates."""
    tokens = synthetic_tokens(a_job)
    trainer, saver, losses = make_trainer(a_job, tokens, mesh), Saver(folder, mesh), []
    while trainer.step < a_job.train.steps:
        match DRAINED.get(trainer.step):
            case "checkpoint":
                trainer.save(saver)
            case "evaluation":
                trainer.evaluate(tokens)
        losses.append(trainer.train_step().loss)
    trainer.steps.drain()
    saver.wait()
    return losses


@pytest.mark.parametrize("name", ["pipedream2", "2bw4-few", "replay3", "ouroboros2-tied", "ouroboros2-untied-data2"])
def test_checkpoints_and_evaluations_do_what_the_recurrence_says(world, tmp_path, name):
    """They wait for what is under way, and the step after them is synchronous."""
    a_job, plan = cell(name), CELLS[name][1]
    a_job = dataclasses.replace(a_job, train=dataclasses.replace(a_job.train, steps=16, eval_batches=1))
    losses, *_ = world.run(interrupted, plan, a_job, tmp_path)
    late = LateSchedule(plan.late, plan.pipeline, plan.microbatches(a_job.train.global_batch))
    expected = Recurrence(a_job.planned, late).run(synthetic_tokens(a_job), DRAINED).losses
    assert losses == pytest.approx(expected, rel=LOSS_LIMIT)
    undisturbed = Recurrence(a_job.planned, late).run(synthetic_tokens(a_job)).losses
    assert losses != pytest.approx(undisturbed, rel=10 * LOSS_LIMIT)


def as_documented(a_job: Job, delays: Sequence[int], drained: Collection[int]) -> list[float]:
    """The recurrence of the manual, by a model and an optimizer's loop that share no code with the package."""
    model, train = a_job.model, a_job.train
    whole = Transformer(model)
    initialize(whole, train.seed)
    w = {name: p.detach().clone().requires_grad_() for name, p in whole.named_parameters()}
    chunk_of = {
        name: chunk for chunk in range(len(delays)) for name in names_of_chunk(model, a_job.planned.plan, chunk)
    }
    usual = {"betas": (train.beta1, train.beta2), "eps": train.epsilon}
    adam = {
        name: torch.optim.AdamW([p], weight_decay=train.weight_decay * (p.dim() > 1), **usual) for name, p in w.items()
    }
    samples = Samples(synthetic_tokens(a_job), model.sequence, train.seed)
    gradients: dict[int, dict[str, torch.Tensor]] = {}  # ∇f(w(t); x(t)), by t

    def apply(name: str, of: int, t: int) -> None:
        w[name].grad = gradients[of][name]
        adam[name].param_groups[0]["lr"] = learning_rate(train, min(t, train.steps - 1))
        adam[name].step()

    losses, fresh, origin = [], 0, 1
    for t in range(train.steps):
        if t in drained:
            for name in w:
                delay = delays[chunk_of[name]]
                for of in range(max(origin, t - delay), t):
                    apply(name, of, of + delay)
            fresh, origin = t, t + 1
        ids, targets = (torch.from_numpy(part) for part in samples.batch(t * train.global_batch, train.global_batch))
        loss = torch.nn.functional.cross_entropy(logits(model, w, ids).flatten(0, 1), targets.flatten())
        losses.append(loss.item())
        gradients[t] = dict(zip(w, torch.autograd.grad(loss, list(w.values())), strict=True))
        for name in w:
            of = t if t == fresh else t - delays[chunk_of[name]]
            if of >= (fresh if t == fresh else origin):
                apply(name, of, t)
    return losses


@pytest.mark.parametrize(
    ("name", "delays"), [("pipedream2", (1, 0)), ("2bw2", (1, 1)), ("ouroboros2-untied-data2", (2, 1, 0))]
)
def test_a_run_does_what_the_manual_says(world, tmp_path, name, delays):
    a_job, plan = cell(name), CELLS[name][1]
    train = dataclasses.replace(a_job.train, steps=16, clip=0.0, eval_batches=1)
    a_job = dataclasses.replace(a_job, model=dataclasses.replace(a_job.model, qk_norm=False), train=train)
    losses, *_ = world.run(interrupted, plan, a_job, tmp_path)
    assert losses == pytest.approx(as_documented(a_job, delays, DRAINED), rel=LOSS_LIMIT)


def moved_by_the_first_late_step(mesh: Mesh, a_job: Job) -> set[str]:
    """Names of the parameters that it changed, of this rank's."""
    trainer = make_trainer(a_job, synthetic_tokens(a_job), mesh)
    trainer.train_step()
    pieces = trainer.optimizer.pieces
    before = [piece.master.detach().clone() for piece in pieces]
    trainer.train_step()
    moved = {piece.name for piece, old in zip(pieces, before, strict=True) if not torch.equal(piece.master, old)}
    trainer.steps.drain()
    return moved


@pytest.mark.parametrize("name", [name for name in CELLS if name.startswith("ouroboros2") and "warm" not in name])
def test_what_no_gradient_has_come_back_to_stays_as_it_is(world, name):
    """To the bit: in low precision a comparison of losses would not see it."""
    model, plan, *_ = CELLS[name]
    moved = set.union(*world.run(moved_by_the_first_late_step, plan, cell(name)))
    last = set(names_of_chunk(model, plan, plan.chunks - 1))
    assert moved == last | ({"embed.tokens.weight"} if model.tied else set())


def names_of_chunk(model: ModelSpec, plan: Plan, chunk: int) -> list[str]:
    layers = [f"layers.{layer}." for layer in plan.layers_of(chunk, model.layers)]
    ends = ["embed."] * (chunk == 0) + ["norm.", "head."] * (chunk == plan.chunks - 1)
    return [name for name, _ in Transformer(model).named_parameters() if name.startswith((*layers, *ends))]


@pytest.mark.parametrize("name", UPDATES)
def test_the_recurrence_without_delay_is_training(name):
    rule = dataclasses.replace(UPDATES[name], delay=lambda _chunk, _chunks: 0)
    model = gpt(layers=4, tied=name == "ouroboros")
    a_job = job(model, Plan(pipeline=3, update=name), 4)
    found = Recurrence(a_job.planned, LateSchedule(rule, 3, 4))
    a_job = dataclasses.replace(a_job, train=dataclasses.replace(a_job.train, clip=0.0))
    found.job = a_job.planned
    assert found.run(synthetic_tokens(a_job)).losses == pytest.approx(observe_serial(a_job).losses, rel=1e-6)


def losses_without_delay(mesh: Mesh, a_job: Job) -> list[float]:
    """As a method trains whose every delay is 0: each step is drained before the next begins."""
    rule = a_job.planned.plan.late
    without = dataclasses.replace(rule, delay=lambda _chunk, _chunks: 0)
    with patch.dict(UPDATES, {without.name: without}):
        trainer = make_trainer(a_job, synthetic_tokens(a_job), mesh)
        losses = []
        for _ in range(8):
            losses.append(trainer.train_step().loss)
            trainer.steps.drain()
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
    trainer.steps.drain()
    return losses


@pytest.mark.parametrize(
    "name", thinned(("ouroboros2-tied", "2bw3-data2-zero1", "replay3"), slow=("replay3", "ouroboros2-tied"))
)
def test_a_checkpoint_holds_all_that_is_needed(world, tmp_path, name):
    a_job, plan = cell(name), CELLS[name][1]
    whole = world.run(trained, plan, a_job, tmp_path / "whole", 8, False)
    world.run(trained, plan, a_job, tmp_path / "parts", 4, False)
    rest = world.run(trained, plan, a_job, tmp_path / "parts", 8, True)
    assert [losses[4:] for losses in whole] == rest


@pytest.mark.parametrize("name", thinned(CELLS, slow=CELLS.keys() - (covering(CELLS) - set(HEAVY))))
def test_a_run_goes_by_the_rules_of_nccl(name):
    run = strict_run(cell(name), 5)
    for losses in run.results:
        assert losses == run.results[0]
