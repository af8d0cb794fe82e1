"""Replicas that take local steps and meet: what they agree on, what they send, and how they go on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from heddle.checkpoint.checkpoint import Saver, newest_good
from heddle.checkpoint.index import read_index
from heddle.errors import HeddleError
from heddle.parallel.collectives import all_reduce
from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.ranks import coordinates, rank_of
from heddle.training.outer.outer_step import fragment_of
from heddle.training.prove.compare import relative
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.optimizer import Optimizer
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
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
    meet = trainer.outer.meet  # type: ignore[attr-defined]
    own: list[torch.Tensor] = []

    def watched() -> None:
        own[:] = [piece.master.clone() for piece in pieces]
        meet()

    trainer.outer.meet = watched  # type: ignore[attr-defined]
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
    "context2-int8": (llama(), Plan(context=2, data=2, microbatch=2, local_steps=4, compress_gradients="int8")),
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


def save_and_go_on(mesh: Mesh, a_job: Job, folder: Path, after: int) -> list[float]:
    trainer, saver = Trainer(a_job, synthetic_tokens(a_job), mesh), Saver(folder, mesh)
    for _ in range(after):
        trainer.train_step()
    trainer.save(saver)
    losses = to_the_end(trainer)
    saver.wait()
    return losses


def go_on(mesh: Mesh, a_job: Job, folder: Path) -> list[float]:
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    trainer.load(newest_good(folder, mesh, pytest.fail))
    return to_the_end(trainer)


def to_the_end(trainer: Trainer) -> list[float]:
    return [trainer.train_step().loss for _ in range(trainer.job.train.steps - trainer.step)]


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
@pytest.mark.parametrize("name", thinned(SAVED, slow=("data8-int4", "all-tied")))
def test_a_resumed_run_goes_on_to_the_bit(world, tmp_path, name):
    model, plan = SAVED[name]
    batch = max(4, plan.data)
    a_job = job(plan, model, steps=9, global_batch=batch)  # a step by themselves, and two meetings
    went_on = world.run(save_and_go_on, plan, a_job, tmp_path, 4)
    assert world.run(go_on, plan, a_job, tmp_path) == went_on
    names = set(read_index(next(tmp_path.glob("step-*"))))
    assert {"embed.tokens.weight:outer_momentum", "embed.tokens.weight:exp_avg@1"} <= names
    other = Plan(data=4, tensor=2, microbatch=1)  # any other plan goes on from it, too
    (losses, *_) = world.run(go_on, other, job(other, model, steps=5, global_batch=batch), tmp_path)
    assert abs(losses[0] - went_on[0][0]) < 0.5


def overflow_and_go_on(mesh: Mesh, a_job: Job, folder: Path) -> tuple[list[float], int]:
    """In fp16, where the second replica's gradients overflow for some steps, and the first one's do not."""
    trainer, saver = Trainer(a_job, synthetic_tokens(a_job), mesh), Saver(folder, mesh)
    trainer.optimizer.scale.value = 2.0**21 if mesh.data.rank else 2.0**7
    for _ in range(8):
        trainer.train_step()
    updates = trainer.optimizer.updates
    trainer.save(saver)
    losses = to_the_end(trainer)
    saver.wait()
    return losses, updates


@dist
def test_each_replica_keeps_its_own_loss_scale_and_number_of_updates(world, tmp_path):
    plan = Plan(tensor=2, pipeline=2, data=2, microbatch=1, local_steps=4)
    a_job = job(plan, gpt(), steps=14, precision="fp16")
    went_on, updates = zip(*world.run(overflow_and_go_on, plan, a_job, tmp_path), strict=True)
    assert {*updates} == {8, min(updates)}
    assert 0 < min(updates) < 8
    assert tuple(world.run(go_on, plan, a_job, tmp_path)) == went_on


STREAMS = {
    "fragments": (gpt(layers=4), Plan(data=2, microbatch=1, local_steps=6, fragments=3)),
    "overlap": (gpt(), Plan(data=2, microbatch=1, local_steps=6, overlap_steps=3)),
    "both-int8-tied": (
        gpt(layers=4),
        Plan(
            pipeline=2, data=2, microbatch=1, local_steps=8, fragments=2, overlap_steps=2, compress_gradients="int8"
        ),
    ),
}  # fmt: skip


def streamed_by_hand(mesh: Mesh, a_job: Job) -> bool:
    """Every fragment's meetings, computed again from the weights when it left and when its outcome came."""
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    pieces, plan, train = trainer.optimizer.pieces, trainer.plan, a_job.train
    fragments = [fragment_of(piece.name, plan.fragments) for piece in pieces]
    before = [piece.master.clone() for piece in pieces]
    velocity = [torch.zeros_like(each) for each in before]
    left: dict[int, list[torch.Tensor]] = {}
    turn, met = plan.local_steps // plan.fragments, 0
    own: list[torch.Tensor] = []
    meet = trainer.outer.after_step

    def watched(*arguments: object) -> object:  # after the inner step, before anything that replicas agree on
        own[:] = [piece.master.clone() for piece in pieces]
        return meet(*arguments)

    trainer.outer.after_step = watched
    for step in range(1, 19):
        trainer.train_step()
        for number in range(plan.fragments):
            if (step - (number + 1) * turn) % plan.local_steps == 0 and step >= turn:
                left[number] = [each.clone() for each in own]
            due = (step - (number + 1) * turn - plan.overlap_steps) % plan.local_steps == 0
            if not (due and number in left):
                continue
            met += 1
            for index, piece in enumerate(pieces):
                if fragments[index] != number:
                    continue
                everyone = [torch.empty_like(before[index]) for _ in mesh.data.ranks]
                torch.distributed.all_gather(everyone, left[number][index], group=mesh.data.group)
                difference = (before[index] - torch.stack(everyone)).mean(0)
                velocity[index].mul_(train.outer_momentum).add_(difference)
                before[index] -= train.outer_learning_rate * (difference + train.outer_momentum * velocity[index])
                kept = train.outer_mixing if plan.overlap_steps else 0.0
                expected = kept * own[index] + (1 - kept) * before[index]
                torch.testing.assert_close(piece.master, expected, rtol=1e-5, atol=1e-6)
            del left[number]
    assert met >= 2
    return True


@dist
@pytest.mark.parametrize("name", ["fragments", "overlap"])
def test_fragments_meet_in_turn_and_what_comes_late_is_mixed_in(world, name):
    model, plan = STREAMS[name]
    assert all(world.run(streamed_by_hand, plan, job(plan, model, steps=100)))


@dist
@pytest.mark.parametrize("name", thinned(STREAMS, slow=("fragments", "overlap")))
def test_after_the_last_step_all_replicas_have_the_same_weights_and_learned_as_if_all_had_met_at_once(world, name):
    model, plan = STREAMS[name]
    results = world.run(learn, plan, job(plan, model, steps=40, learning_rate=3e-3))
    at_once = dataclasses.replace(plan, fragments=1, overlap_steps=0)
    expected, _ = world.run(learn, at_once, job(at_once, model, steps=40, learning_rate=3e-3))[0]
    learned = sum(expected[:5]) / 5 - sum(expected[-5:]) / 5
    assert abs(sum(results[0][0][-5:]) - sum(expected[-5:])) / 5 < learned / 2
    for rank, (losses, held) in enumerate(results):
        first = results[rank_of(plan, coordinates(plan, rank)._replace(data=0))]
        assert all(torch.equal(values, held[key]) for key, values in first[1].items())
        assert losses[-1] == first[0][-1]
    if plan.pipeline > 1:
        assert torch.equal(results[0][1]["embed.tokens.weight"], results[2][1]["embed.tokens.weight"])


@dist
@pytest.mark.parametrize("code", ["none", "int8"])
def test_one_fragment_without_overlap_is_the_outer_step_to_the_bit(world, code):
    """By the formula of a meeting, in the operations of the first version of it."""
    plan = Plan(data=2, microbatch=1, local_steps=4, compress_gradients=code)
    spelled = dataclasses.replace(plan, fragments=1, overlap_steps=0)
    a_job = job(plan)
    assert spelled == plan
    for rank, (losses, held) in enumerate(world.run(learn, plan, a_job)):
        expected, weights = world.run(learn_at_once, plan, a_job)[rank]
        assert losses == expected
        assert all(torch.equal(held[name], values) for name, values in weights.items())


def learn_at_once(mesh: Mesh, a_job: Job) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Meetings as one blocking sum over everything, as they were before there were fragments."""
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    outer = trainer.outer

    def meet() -> None:
        for parcel in outer.parcels:  # type: ignore[attr-defined]
            for (piece, before), (_, difference) in zip(
                parcel.beside(parcel.before), parcel.beside(parcel.difference), strict=True
            ):
                torch.sub(before, piece.master, out=difference)
            if parcel.compressed is None:
                all_reduce(parcel.difference, mesh.data)
            else:
                parcel.compressed.start().wait()
                parcel.compressed.read(parcel.compressed.share().wait())
            mean = parcel.difference[: len(parcel.before)].div_(mesh.data.size)
            parcel.velocity.mul_(outer.momentum).add_(mean)  # type: ignore[attr-defined]
            parcel.before.sub_(mean.add_(parcel.velocity, alpha=outer.momentum), alpha=outer.rate)  # type: ignore[attr-defined]
            for piece, before in parcel.beside(parcel.before):
                piece.master.copy_(before)

    with torch.no_grad():
        outer.meet = torch.no_grad()(meet)  # type: ignore[attr-defined]
    losses = [trainer.train_step().loss for _ in range(a_job.train.steps)]
    return losses, {name: parameter.detach().clone() for parameter, name in trainer.parallel.names.items()}


@dist
@pytest.mark.parametrize("code", [pytest.param("none", marks=pytest.mark.slow), "int8"])
def test_a_run_that_is_resumed_has_what_was_under_way_to_the_bit(world, tmp_path, code):
    plan = Plan(
        tensor=2, pipeline=2, data=2, microbatch=1, local_steps=6, fragments=2, overlap_steps=2, compress_gradients=code
    )  # fmt: skip
    a_job = job(plan, gpt(layers=4), steps=11)  # to where the next one is applied
    went_on = world.run(save_and_go_on, plan, a_job, tmp_path, 7)  # one left after the sixth, and is not applied yet
    assert world.run(go_on, plan, a_job, tmp_path) == went_on
    names = set(read_index(next(tmp_path.glob("step-*"))))
    assert {"embed.tokens.weight:outer_sum", "embed.tokens.weight:own_weights@1"} <= names
    for other in (Plan(data=4, tensor=2, microbatch=1), dataclasses.replace(plan, fragments=1, overlap_steps=0)):
        (losses, *_) = world.run(go_on, other, job(other, gpt(layers=4), steps=8), tmp_path)
        assert abs(losses[0] - went_on[0][0]) < 0.5


def evaluated(mesh: Mesh, a_job: Job) -> tuple[float, ...]:
    """The validation loss, and the losses of a step after it with and without that."""
    tokens = synthetic_tokens(a_job)
    trainers = [Trainer(a_job, tokens, mesh) for _ in range(2)]
    for trainer in trainers:
        for _ in range(5):
            trainer.train_step()
    loss = trainers[0].evaluate(tokens)
    return loss, *(trainer.train_step().loss for trainer in trainers)


@dist
def test_weights_are_evaluated_that_all_agreed_on_and_nothing_changes_by_it(world):
    model, plan = STREAMS["overlap"]
    results = world.run(evaluated, plan, job(plan, model))
    assert results[0][0] == results[1][0]
    for _, after, without in results:
        assert after == without


def stopped_at(mesh: Mesh, a_job: Job) -> list[bool]:
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    return [trainer.train_step(stop=step == 1 and mesh.data.rank == 1).stop for step in range(8)]


@dist
def test_who_is_asked_to_stop_tells_the_others_when_an_overlapped_meeting_is_applied(world):
    plan = Plan(data=2, microbatch=1, local_steps=4, overlap_steps=2)
    assert world.run(stopped_at, plan, job(plan)) == 2 * [[False, False, False, False, False, True, False, False]]


@dist
def test_who_is_asked_to_stop_tells_the_others_when_they_meet(world):
    plan = Plan(data=2, microbatch=1, local_steps=4)
    assert world.run(stopped_at, plan, job(plan)) == 2 * [[False, False, False, True, False, False, False, False]]


@pytest.mark.parametrize(
    ("plan", "train", "said"),
    [
        ({"fragments": 2, "data": 2}, {}, "fragments = 2 needs local_steps"),
        ({"overlap_steps": 2, "data": 2}, {}, "overlap_steps = 2 needs local_steps"),
        ({"local_steps": 8, "fragments": 3, "data": 2}, {}, "fragments = 3 is more than 2"),
        ({"local_steps": 8, "fragments": 2, "overlap_steps": 4, "data": 2}, {}, "overlap_steps = 4 is not less than"),
        ({"local_steps": 4}, {}, "local_steps = 4 needs replicas"),
        ({"local_steps": 4, "data": 2, "zero": 1}, {}, "cannot be combined with zero = 1"),
        ({"local_steps": 4, "data": 2}, {"save_every": 6}, "train.save_every = 6 is not a multiple"),
        ({"local_steps": 4, "data": 2}, {"eval_every": 3}, "train.eval_every = 3 is not a multiple"),
    ],
)
def test_what_does_not_go_together_is_told(plan, train, said):
    with pytest.raises(HeddleError, match=said):
        job(Plan(**plan), **train)
