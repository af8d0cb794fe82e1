"""A check that never fails checks nothing: mistakes that people make in parallel training, made on purpose.

Each is planted in the processes of a plan that is otherwise proved equal to one device; the comparison must find it,
and say where to look.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

import heddle.parallel.apply
import heddle.parallel.pipeline.inbox
import heddle.parallel.pipeline.transformer
import heddle.parallel.replicas.bucket
import heddle.parallel.replicas.reducer
import heddle.parallel.shards
import heddle.parallel.tensor.linear
import heddle.train.step.trainer
from heddle.parallel.collectives import Handle
from heddle.parallel.mesh import Axis, Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.train.prove.compare import Comparison, Observed, compare, likely_cause
from heddle.train.prove.prove import gradient_rounding, observe, observe_serial
from tests.helpers.world import World

pytestmark = pytest.mark.dist

GPT = ModelSpec(layers=2, hidden=16, heads=4, vocab=61, sequence=8, ffn=32)
UNTIED = dataclasses.replace(GPT, tied=False)
LLAMA = dataclasses.replace(GPT, norm="rmsnorm", positions="rotary", tied=False, qk_norm=True, dropout=0.1)
BATCH = 4


def row_forward_without_all_reduce() -> Any:
    return patch.object(heddle.parallel.tensor.linear, "all_reduce", lambda x, axis: x)


def row_forward_sum_of_the_wrong_slices() -> Any:
    """A reduce-scatter whose ranks keep each other's slices."""
    scatter = heddle.parallel.tensor.linear.reduce_scatter

    def wrong(x, axis):
        return scatter(x.flip(0), axis)

    return patch.object(heddle.parallel.tensor.linear, "reduce_scatter", wrong)


def column_backward_without_all_reduce() -> Any:
    return patch.object(heddle.parallel.tensor.linear, "start_all_reduce", lambda x, axis: Handle([], x))


def messages_swapped() -> Any:
    """The second stage takes the first microbatch's activations for the second's, and the other way round."""
    take = heddle.parallel.pipeline.inbox.Inbox.take

    def wrong(self, message):
        if message.kind == "activation" and message.microbatch < 2:
            other = (message.kind, message.chunk, 1 - message.microbatch)
            message = next(known for known in (*self.posted, *self.expected) if known[:3] == other)
        return take(self, message)

    return patch.object(heddle.parallel.pipeline.inbox.Inbox, "take", wrong)


def gradients_not_scaled_over_replicas() -> Any:
    run = heddle.parallel.pipeline.transformer.Pipeline.run

    def wrong(self, works, scale=1.0, listener=None):
        return run(self, works, scale * self.mesh.data.size, listener)

    return patch.object(heddle.parallel.pipeline.transformer.Pipeline, "run", wrong)


def _sums_over(**axes: Axis) -> Any:
    """The reducer with some axes of the mesh gone."""
    sums_of = heddle.parallel.replicas.reducer.sums_of

    def wrong(parameter, mesh):
        return sums_of(parameter, dataclasses.replace(mesh, **axes))

    return patch.object(heddle.parallel.replicas.reducer, "sums_of", wrong)


def norms_not_summed_over_tensor() -> Any:
    return _sums_over(tensor=Axis())


def tied_embedding_not_summed_over_the_ends() -> Any:
    return _sums_over(ends=Axis())


def padding_in_the_softmax() -> Any:
    right = heddle.parallel.apply.SplitVocabulary

    def wrong(axis, vocab, sequence):
        return right(axis, vocab + -vocab % axis.size, sequence)

    return patch.object(heddle.parallel.apply, "SplitVocabulary", wrong)


def norm_counts_replicated_parameters_twice() -> Any:
    make_piece = heddle.parallel.replicas.bucket.make_piece

    def wrong(*arguments):
        return dataclasses.replace(make_piece(*arguments), counted=True)

    return patch.object(heddle.parallel.replicas.bucket, "make_piece", wrong)


def replicas_not_summed() -> Any:
    return patch.object(heddle.parallel.replicas.bucket, "start_all_reduce", lambda x, axis: Handle([], x))


def replicas_do_not_share_updates() -> Any:
    return patch.object(heddle.parallel.replicas.reducer.Bucket, "start_sharing", lambda self: None)


def every_replica_reads_the_same() -> Any:
    return patch.object(heddle.train.step.trainer.Trainer, "_first_sample", lambda _self, position: position)


def dropout_by_place_in_the_slice() -> Any:
    """Every tensor rank drops what the first one drops."""
    return patch.object(heddle.train.step.trainer, "slice_of", lambda keys, axis: keys.chunk(axis.size)[0])


class Case(NamedTuple):
    model: ModelSpec
    plan: Plan
    cause: str  # what the verdict must say


TENSOR = Plan(tensor=2, microbatch=2)
SEQUENCE = Plan(tensor=2, sequence=True, microbatch=2)
PIPELINE = Plan(pipeline=2, microbatch=1, schedule="gpipe")
DATA = Plan(data=2, microbatch=1)
ZERO = Plan(data=2, zero=1, microbatch=1)

FAULTS: dict[Callable[[], AbstractContextManager[Any]], Case] = {
    row_forward_without_all_reduce: Case(GPT, TENSOR, "the forward pass (a sum over the tensor axis"),
    row_forward_sum_of_the_wrong_slices: Case(GPT, SEQUENCE, "the forward pass (a sum over the tensor axis"),
    column_backward_without_all_reduce: Case(UNTIED, TENSOR, "wrong from norm.bias back to the input"),
    messages_swapped: Case(GPT, PIPELINE, "the forward pass (a message between stages"),
    gradients_not_scaled_over_replicas: Case(GPT, DATA, "every gradient is 2 times the serial one: scaling"),
    norms_not_summed_over_tensor: Case(GPT, SEQUENCE, "only parameters that tensor ranks hold whole differ"),
    tied_embedding_not_summed_over_the_ends: Case(GPT, PIPELINE, "only the tied embedding differs"),
    padding_in_the_softmax: Case(GPT, TENSOR, "the vocabulary's padding in the softmax"),
    norm_counts_replicated_parameters_twice: Case(GPT, SEQUENCE, "every gradient is right, their norm is not"),
    replicas_not_summed: Case(GPT, DATA, "every gradient differs: the sum over replicas"),
    replicas_do_not_share_updates: Case(GPT, ZERO, "the loss differs from step 2 on: the update"),
    every_replica_reads_the_same: Case(GPT, DATA, "which samples each replica reads"),
    dropout_by_place_in_the_slice: Case(LLAMA, SEQUENCE, "what dropout depends on"),
}


def job(model: ModelSpec, plan: Plan | None) -> Job:
    train = Train(steps=5, global_batch=BATCH, learning_rate=1e-2, clip=0.1)
    return Job(model=model, data=Data(text="-"), train=train, plan=plan)


@cache
def serial(model: ModelSpec) -> Observed:
    return observe_serial(job(model, None))


def observe_with(mesh: Mesh, a_job: Job, fault: Callable[[], AbstractContextManager[Any]]) -> Observed | None:
    with fault():
        return observe(mesh, a_job)


def laid_beside(world: World, case: Case, fault: Callable[[], AbstractContextManager[Any]] | None) -> Comparison:
    a_job = job(case.model, case.plan)
    work, more = (observe, ()) if fault is None else (observe_with, (fault,))
    parallel, *_ = world.run(work, case.plan, a_job, *more)
    return compare(parallel, serial(case.model), gradient_rounding(a_job, serial(case.model)))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(world, fault):
    case = FAULTS[fault]
    comparison = laid_beside(world, case, fault)
    assert not comparison.equal
    assert case.cause in likely_cause(comparison, case.plan, case.model)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_same_plan_without_its_fault_is_equal(world, fault):
    """In the same processes, after all faults: none of them stayed."""
    assert equal_without_fault(world, FAULTS[fault].model, FAULTS[fault].plan)


@cache
def equal_without_fault(world: World, model: ModelSpec, plan: Plan) -> bool:
    return laid_beside(world, Case(model, plan, ""), None).equal
