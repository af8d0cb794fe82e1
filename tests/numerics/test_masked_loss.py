"""Samples that are learned in part: every plan must have the loss of one device, whose mean is over targets alone."""

from __future__ import annotations

import re
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
import torch

from heddle.data.documents import DocumentSamples
from heddle.models import Microbatch
from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.model import IGNORE
from heddle.training.prove.collect import assemble
from heddle.training.prove.compare import LOSS_LIMIT, Comparison, Observed, compare, likely_cause
from heddle.training.prove.prove import gradient_rounding, observe, observe_recurrence, observe_serial, synthetic_tokens
from heddle.training.step.feed import Feed
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.helpers.small_models import gpt, llama
from tests.helpers.world import World

pytestmark = pytest.mark.dist

CELLS: dict[str, tuple[ModelSpec, Plan, int]] = {
    "microbatches": (gpt(), Plan(microbatch=1), 8),
    "tensor2": (gpt(vocab=17), Plan(tensor=2, microbatch=2), 8),
    "tensor2-seq": (llama(dropout=0.1), Plan(tensor=2, sequence=True, microbatch=2), 8),
    "data2": (gpt(), Plan(data=2, microbatch=1), 8),
    "data3-shares": (llama(), Plan(data=3, microbatch=1, shares=(5, 2, 1)), 8),
    "data2-zero1": (gpt(), Plan(data=2, zero=1, microbatch=2), 8),
    "data2-zero2": (gpt(), Plan(data=2, zero=2, microbatch=1), 8),
    "data4-zero3": (llama(), Plan(data=4, zero=3, microbatch=1), 8),
    "pipeline2": (gpt(), Plan(pipeline=2, microbatch=1), 8),
    "pipeline2-virtual2": (llama(layers=4), Plan(pipeline=2, virtual=2, microbatch=1, schedule="interleaved"), 8),
    "zb-h1": (gpt(layers=3), Plan(pipeline=3, microbatch=1, schedule="zb-h1"), 8),
    "context2": (llama(), Plan(context=2, data=2, microbatch=1), 8),
    "all": (
        llama(dropout=0.1),
        Plan(tensor=2, sequence=True, pipeline=2, data=2, zero=1, microbatch=1, recompute="full"),
        8,
    ),
}


def job(model: ModelSpec, plan: Plan, batch: int, steps: int = 3, pack: bool = False) -> Job:
    train = Train(global_batch=batch, steps=steps, precision="fp32", eval_batches=3)
    return Job(model=model, data=Data(chat="-", pack=pack), train=train, plan=plan)


@cache
def serial(model: ModelSpec, batch: int, pack: bool = False) -> tuple[Observed, float]:
    plain = job(model, Plan(), batch, pack=pack)
    found = observe_serial(plain)
    return found, gradient_rounding(plain, found)


def compared(world: World, name: str, work: Any = observe, pack: bool = False) -> Comparison:
    model, plan, batch = CELLS[name]
    parallel = world.run(work, plan, job(model, plan, batch, pack=pack))[0]
    return compare(parallel, *serial(model, batch, pack))


PACKED = ["tensor2-seq", "data4-zero3", "pipeline2-virtual2", "context2", "all"]


def cause(comparison: Comparison, name: str, pack: bool = False) -> str:
    model, plan, batch = CELLS[name]
    return likely_cause(comparison, plan, model, job(model, plan, batch, pack=pack).data)


@pytest.mark.parametrize("name", thinned(CELLS, slow=list(CELLS)[::2]))
def test_every_plan_learns_what_one_device_learns(world, name):
    comparison = compared(world, name)
    assert comparison.max_loss_diff < LOSS_LIMIT
    assert comparison.equal, comparison.worst


@pytest.mark.parametrize("name", thinned(PACKED, slow=PACKED[:-2]))
def test_packed_documents_are_learned_alike_under_every_plan(world, name):
    comparison = compared(world, name, pack=True)
    assert comparison.equal, comparison.worst


def test_packed_documents_give_the_gradients_of_each_by_itself():
    """The same documents one by one, of their own length, through the plain model: the sum over targets, divided."""
    model = llama(sequence=24)
    given = job(model, Plan(), 4, pack=True)
    trainer = Trainer(given, synthetic_tokens(given))
    documents = synthetic_tokens(given)
    samples = documents.samples(given.sequence, given.train.seed)
    assert max(map(len, samples.lengths_of(range(4)))) > 1
    chunk = trainer.parallel.chunks[0]
    ids, targets = (torch.from_numpy(part) for part in samples.batch(0, 4))
    total, count = torch.zeros(()), 0
    for row, lengths in enumerate(samples.lengths_of(range(4))):
        at = 0
        for length in lengths:
            part = slice(at, at + length)
            logits = chunk(ids[row, part], Microbatch(sequence=length))
            total = total + torch.nn.functional.cross_entropy(logits, targets[row, part], reduction="sum")
            count += int((targets[row, part] != IGNORE).sum())
            at += length
    (total / count).backward()
    expected = {name: p.grad.clone() for name, p in chunk.named_parameters()}
    chunk.zero_grad()
    observed, rounding = observe_serial(given), 1e-5
    assert observed.losses[0] == pytest.approx(float(total.detach() / count), rel=1e-5)
    found = assemble(observed.boxes)
    for name, gradient in expected.items():
        difference = abs(torch.from_numpy(found[name]) - gradient).max() / gradient.abs().max()
        assert difference < rounding, name


def test_one_device_has_the_mean_of_pytorch():
    """`gradient_rounding` holds the first gradients against autograd and PyTorch's own ignore_index."""
    _, rounding = serial(gpt(), 8)
    assert rounding < 1e-5


def test_delayed_updates_follow_their_recurrence(world):
    plan = Plan(pipeline=2, microbatch=1, update="pipedream")
    given = job(gpt(tied=False), plan, 8, steps=6)
    parallel = world.run(observe, plan, given)[0]
    expected = observe_recurrence(given.planned, given.planned.plan.late)
    assert compare(parallel, expected, 1e-6, late=True).max_loss_diff < LOSS_LIMIT


def mean_of_means(self: Feed, samples: Any, position: int, training: bool) -> float | None:
    """Each replica divides by its own targets, as a loss averaged by every rank does."""
    first = self.first_sample(position)
    return samples.targets(first, len(self.own)) * self.plan.microbatch / len(self.own)


def observe_mean_of_means(mesh: Mesh, given: Job) -> Observed | None:
    with patch.object(Feed, "targets", mean_of_means):
        return observe(mesh, given)


@pytest.mark.parametrize("name", ["data2", "data3-shares", "data4-zero3"])
def test_a_mean_of_the_means_of_replicas_is_found(world, name):
    comparison = compared(world, name, observe_mean_of_means)
    assert not comparison.equal
    assert comparison.max_loss_diff > 100 * LOSS_LIMIT
    assert re.search("number( of targets that are learned)? in a batch", cause(comparison, name))


def observe_shifted(mesh: Mesh, given: Job) -> Observed | None:
    read = Feed.read

    def wrong(self: Feed, samples: Any, position: int) -> list[Any]:
        return [batch._replace(targets=batch.targets.roll(1)) for batch in read(self, samples, position)]

    with patch.object(Feed, "read", wrong):
        return observe(mesh, given)


def test_a_mask_that_is_off_by_one_is_found(world):
    comparison = compared(world, "data2", observe_shifted)
    assert not comparison.equal
    assert "which targets are learned" in cause(comparison, "data2")


def observe_leaking(mesh: Mesh, given: Job) -> Observed | None:
    with patch.object(DocumentSamples, "lengths_of", lambda _self, _numbers: []):
        return observe(mesh, given)


def test_documents_that_see_each_other_are_found(world):
    assert compared(world, "data2", pack=True).equal
    comparison = compared(world, "data2", observe_leaking, pack=True)
    assert not comparison.equal
    assert "documents of a sample that see each other" in cause(comparison, "data2", pack=True)


def evaluated(mesh: Mesh, given: Job) -> float | None:
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    return trainer.evaluate(synthetic_tokens(given))


def test_the_validation_loss_is_the_mean_over_targets_under_every_plan(world):
    model, plain = gpt(), job(gpt(), Plan(), 8)
    trainer = Trainer(plain, synthetic_tokens(plain))
    samples = synthetic_tokens(plain).samples(plain.sequence, 0)
    ids, targets = (torch.from_numpy(part) for part in samples.batch(0, 24))
    logits = trainer.parallel.chunks[0](ids.flatten(), Microbatch(sequence=plain.sequence))
    expected = float(torch.nn.functional.cross_entropy(logits.detach().double(), targets.flatten()))
    for plan in (Plan(), Plan(data=2, microbatch=1), Plan(pipeline=2, microbatch=2), Plan(tensor=2, data=2)):
        for found in world.run(evaluated, plan, job(model, plan, 8)):
            assert found == pytest.approx(expected, rel=1e-6)
