"""Replicas that learn by themselves and meet: what they agree on, what they send, and how they go on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from heddle.checkpoint.checkpoint import Saver, newest_good
from heddle.checkpoint.index import read_index
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.ranks import coordinates, rank_of
from heddle.train.prove.compare import relative
from heddle.train.prove.prove import synthetic_tokens
from heddle.train.step.optimizer import Optimizer
from heddle.train.step.trainer import Trainer
from tests.helpers.small_models import GPT, gpt, llama

dist = pytest.mark.dist


def job(plan: Plan | None, model: ModelSpec = GPT, **train: object) -> Job:
    fields = {"steps": 12, "global_batch": 4, "learning_rate": 1e-2, "clip": 0.0, "weight_decay": 0.1} | train
    return Job(model=model, data=Data(text="-"), train=Train(**fields), plan=plan)


class Plain(Optimizer):
    """SGD in place of AdamW: its steps are linear in the gradients, so that their mean is the step of the mean."""

    def __init__(self, old: Optimizer) -> None:
        super().__init__(old.pieces, old.train)
        groups = [{key: group[key] for key in ("params", "share", "delay", "late")} for group in self.adam.param_groups]
        self.adam = torch.optim.SGD(groups, lr=0.1, fused=True)


def learn(mesh: Mesh, a_job: Job, plain: bool = False) -> tuple[list[float], dict[str, torch.Tensor]]:
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    if plain:
        trainer.optimizer = Plain(trainer.optimizer)
    losses = [trainer.train_step().loss for _ in range(a_job.train.steps)]
    return losses, {name: parameter.detach().clone() for parameter, name in trainer.parallel.names.items()}


@dist
@pytest.mark.parametrize(
    "plan",
    [
        Plan(data=2, microbatch=1),
        Plan(tensor=2, sequence=True, data=2, microbatch=1),
        Plan(pipeline=2, data=2, microbatch=1),
    ],
    ids=["data", "tensor", "pipeline"],
)
def test_meeting_after_every_step_with_plain_sgd_is_data_parallelism(world, plan):
    """Where outer SGD has the rate 1, and an inner step is linear in its gradient."""
    together = world.run(learn, plan, job(plan, learning_rate=0.1), True)
    apart = dataclasses.replace(plan, local_steps=1)
    met = world.run(learn, apart, job(apart, learning_rate=0.1, outer_learning_rate=1.0, outer_momentum=0.0), True)
    assert together[0][0][0] - together[0][0][-1] > 0.02
    for (losses, held), (expected, weights) in zip(met, together, strict=True):
        assert max(map(relative, losses, expected)) < 1e-5
        for name, values in weights.items():
            torch.testing.assert_close(held[name], values, rtol=1e-4, atol=1e-6)


def outer_by_hand(mesh: Mesh, a_job: Job) -> bool:
    """Two meetings, computed again from the weights before and after them."""
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    pieces, plan, train = trainer.optimizer.pieces, trainer.plan, a_job.train
    before = [piece.master.clone() for piece in pieces]
    velocity = [torch.zeros_like(each) for each in before]
    meet = trainer.outer.meet
    own: list[torch.Tensor] = []

    def watched() -> None:
        own[:] = [piece.master.clone() for piece in pieces]
        meet()

    trainer.outer.meet = watched
    for _ in range(2):
        for _ in range(plan.local_steps):
            trainer.train_step()
        for piece, start, momentum, local in zip(pieces, before, velocity, own, strict=True):
            everyone = [torch.empty_like(local) for _ in mesh.data.ranks]
            torch.distributed.all_gather(everyone, local, group=mesh.data.group)
            assert not torch.equal(everyone[0], everyone[1])
            difference = (start - torch.stack(everyone)).mean(0)
            momentum.mul_(train.outer_momentum).add_(difference)
            start.sub_(train.outer_learning_rate * (difference + train.outer_momentum * momentum))
            torch.testing.assert_close(piece.master, start, rtol=1e-5, atol=1e-7)
    return True


@dist
def test_a_meeting_is_a_step_of_nesterov_along_the_mean_difference(world):
    plan = Plan(data=3, microbatch=1, local_steps=4)
    assert all(world.run(outer_by_hand, plan, job(plan, global_batch=3)))


CELLS = {
    "data2": (gpt(), Plan(data=2, microbatch=1, local_steps=4)),
    "data4-int8": (gpt(dropout=0.1), Plan(data=4, microbatch=1, local_steps=4, compress_gradients="int8")),
    "tensor2-int4": (
        llama(),
        Plan(tensor=2, sequence=True, data=2, microbatch=2, local_steps=4, compress_gradients="int4"),
    ),
    "pipeline2-tied-int8": (gpt(), Plan(pipeline=2, data=2, microbatch=1, local_steps=4, compress_gradients="int8")),
}


@dist
@pytest.mark.parametrize("name", CELLS)
def test_after_a_meeting_all_replicas_have_the_same_weights_and_have_learned(world, name):
    model, plan = CELLS[name]
    results = world.run(learn, plan, job(plan, model, steps=14))  # two more than meetings; the last step is one
    for rank, (losses, held) in enumerate(results):
        first = results[rank_of(plan, coordinates(plan, rank)._replace(data=0))]
        assert all(torch.equal(values, held[key]) for key, values in first[1].items())
        assert losses[3::4] == first[0][3::4]  # of a meeting, the mean is known everywhere
    if plan.tensor > 1:
        norms = [key for key in results[0][1] if "norm" in key]
        assert all(torch.equal(results[0][1][key], results[1][1][key]) for key in norms)
    if plan.pipeline > 1:
        assert torch.equal(results[0][1]["embed.tokens.weight"], results[2][1]["embed.tokens.weight"])


def save_and_go_on(mesh: Mesh, a_job: Job, folder: Path) -> list[float]:
    trainer, saver = Trainer(a_job, synthetic_tokens(a_job), mesh), Saver(folder, mesh)
    for _ in range(8):
        trainer.train_step()
    trainer.save(saver)
    losses = [trainer.train_step().loss for _ in range(8)]
    saver.wait()
    return losses


def go_on(mesh: Mesh, a_job: Job, folder: Path) -> list[float]:
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    trainer.load(newest_good(folder, mesh, pytest.fail))
    return [trainer.train_step().loss for _ in range(8)]


# with as many ranks as the tests' world has: a saver makes a group, and all of it take part in that
SAVED = {
    "data8-int4": (gpt(dropout=0.1), Plan(data=8, microbatch=1, local_steps=4, compress_gradients="int4")),
    "all-tied": (gpt(), Plan(tensor=2, pipeline=2, data=2, microbatch=1, local_steps=4)),
    "all-int8": (
        llama(),
        Plan(tensor=2, sequence=True, pipeline=2, data=2, microbatch=1, local_steps=4, compress_gradients="int8"),
    ),
}


@dist
@pytest.mark.parametrize("name", SAVED)
def test_a_resumed_run_goes_on_to_the_bit(world, tmp_path, name):
    model, plan = SAVED[name]
    a_job = job(plan, model, steps=16, global_batch=8)
    went_on = world.run(save_and_go_on, plan, a_job, tmp_path)
    assert world.run(go_on, plan, a_job, tmp_path) == went_on
    names = set(read_index(next(tmp_path.glob("step-*"))))
    assert {"embed.tokens.weight:outer_momentum", "embed.tokens.weight:exp_avg@1"} <= names
    other = Plan(data=4, tensor=2, microbatch=1)  # any other plan goes on from it, too
    (losses, *_) = world.run(go_on, other, job(other, model, steps=16, global_batch=8), tmp_path)
    assert abs(losses[0] - went_on[0][0]) < 0.5


def stopped_at(mesh: Mesh, a_job: Job) -> list[bool]:
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    return [trainer.train_step(stop=step == 1 and mesh.data.rank == 1).stop for step in range(8)]


@dist
def test_who_is_asked_to_stop_tells_the_others_when_they_meet(world):
    plan = Plan(data=2, microbatch=1, local_steps=4)
    assert world.run(stopped_at, plan, job(plan)) == 2 * [[False, False, False, True, False, False, False, False]]


@pytest.mark.parametrize(
    ("plan", "train", "said"),
    [
        ({"local_steps": 4}, {}, "local_steps = 4 needs replicas"),
        ({"local_steps": 4, "data": 2, "zero": 1}, {}, "cannot be combined with zero = 1"),
        ({"local_steps": 4, "data": 2}, {"save_every": 6}, "train.save_every = 6 is not a multiple"),
        ({"local_steps": 4, "data": 2}, {"eval_every": 3}, "train.eval_every = 3 is not a multiple"),
    ],
)
def test_what_does_not_go_together_is_told(plan, train, said):
    with pytest.raises(HeddleError, match=said):
        job(Plan(**plan), **train)
