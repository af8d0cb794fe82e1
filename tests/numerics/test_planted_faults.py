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
import torch

import heddle.parallel.context.attention
import heddle.parallel.context.held
import heddle.parallel.experts.exchange
import heddle.parallel.native_chunks
import heddle.parallel.pipeline.inbox
import heddle.parallel.pipeline.transformer
import heddle.parallel.replicas.bucket
import heddle.parallel.replicas.reducer
import heddle.parallel.shards
import heddle.parallel.tensor.linear
import heddle.training.step.feed
import heddle.training.step.trainer
from heddle.parallel.collectives import Handle
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.parameter_layout import place_of
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.prove.compare import Comparison, Observed, compare, likely_cause
from heddle.training.prove.prove import gradient_rounding, observe, observe_serial
from tests.helpers.cases import thinned
from tests.helpers.small_models import experts, latent
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
    right = heddle.parallel.native_chunks.SplitVocabulary

    def wrong(axis, vocab, sequence):
        return right(axis, vocab + -vocab % axis.size, sequence)

    return patch.object(heddle.parallel.native_chunks, "SplitVocabulary", wrong)


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
    return patch.object(heddle.training.step.feed.Feed, "first_sample", lambda _self, position: position)


def dropout_by_place_in_the_slice() -> Any:
    """Every tensor rank drops what the first one drops."""
    return patch.object(heddle.training.step.feed, "slice_of", lambda keys, axis: keys.chunk(axis.size)[0])


def targets_shifted_after_the_cut() -> Any:
    """What follows a token is taken from the tokens of its own rank."""
    read = heddle.training.step.feed.Feed.read

    def wrong(self, samples, position):
        batches = read(self, samples, position)
        rows = [each.ids.view(self.plan.microbatch, -1).roll(-1, dims=1).flatten() for each in batches]
        return [each._replace(targets=targets) for each, targets in zip(batches, rows, strict=True)]

    return patch.object(heddle.training.step.feed.Feed, "read", wrong)


def keys_gathered_in_the_order_of_ranks() -> Any:
    """Not in that of tokens."""

    def wrong(slices, dim):
        return slices.movedim(0, dim).flatten(dim, dim + 1)

    return patch.object(heddle.parallel.context.attention, "in_order", wrong)


def positions_counted_on_each_rank() -> Any:
    held = heddle.parallel.context.held.Held

    class Wrong(held):  # type: ignore[valid-type]
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.plain = dataclasses.replace(self.plain, positions=None)

    return patch.object(heddle.training.step.feed, "Held", Wrong)


def keys_of_one_turn_too_early() -> Any:
    """Attention of a turn to the keys of the turn before."""
    wants = heddle.parallel.context.attention.Shared.pieces

    def wrong(self, queries, keys):
        return wants(self, queries, (keys + 1) % self.axis.size)

    return patch.object(heddle.parallel.context.attention.Shared, "pieces", wrong)


def gradients_of_keys_not_sent_back() -> Any:
    return patch.object(heddle.parallel.context.attention, "_take", lambda of_kv, coming: coming and coming.wait())


def a_sum_that_leaves_out_who_shares_samples() -> Any:
    return patch.object(heddle.parallel.replicas.reducer, "replicas_of", lambda _parameter, mesh: mesh.data)


def tokens_of_others_counted_as_own() -> Any:
    """Every rank's mean counts as if it were that of all tokens of its samples."""
    weight = heddle.training.step.trainer.Trainer.weight

    def wrong(self):
        return weight.fget(self) * self.plan.context  # type: ignore[attr-defined]

    return patch.object(heddle.training.step.trainer.Trainer, "weight", property(wrong))


class Case(NamedTuple):
    model: ModelSpec
    plan: Plan
    cause: str  # what the verdict must say


TENSOR = Plan(tensor=2, microbatch=2)
SEQUENCE = Plan(tensor=2, sequence=True, microbatch=2)
PIPELINE = Plan(pipeline=2, microbatch=1, schedule="gpipe")
CONTEXT = Plan(context=2, microbatch=2)
GATHER = Plan(context=2, context_exchange="gather", microbatch=2)
DATA = Plan(data=2, microbatch=1)
ZERO = Plan(data=2, zero=1, microbatch=1)

MIXTURE = experts(qk_norm=False, shared_experts=1, shared_gate=True)


def experts_not_summed_over_tensor() -> Any:
    return patch.object(heddle.parallel.tensor.region, "all_reduce", lambda x, axis: x)


def routers_not_summed_over_tensor() -> Any:
    return _sums_over(tensor=Axis())


def router_losses_counted_by_every_tensor_rank() -> Any:
    right = heddle.parallel.native_chunks.split_experts

    def wrong(mlp, axis, sequence):
        right(mlp, axis, sequence)
        mlp.router.share = 1.0

    return patch.object(heddle.parallel.native_chunks, "split_experts", wrong)


def uses_of_experts_by_a_part_of_each_sample() -> Any:
    return patch.object(heddle.parallel.native_chunks, "all_reduce", lambda x, axis: x)


def router_losses_without_scale_before_the_last_stage() -> Any:
    right = heddle.parallel.pipeline.transformer.replace

    def wrong(batch, **changes):
        return right(batch, **changes | ({} if changes.get("targets") is not None else {"scale": 1.0}))

    return patch.object(heddle.parallel.pipeline.transformer, "replace", wrong)


EXPERT = Plan(data=2, expert=2, microbatch=1)
EXPERT_DATA = Plan(data=4, expert=2, microbatch=1)
EXPERT_CONTEXT = Plan(context=2, expert=2, microbatch=2)


def balance_by_the_tokens_of_a_rank() -> Any:
    return uses_of_experts_by_a_part_of_each_sample()


def gradients_of_experts_scaled_by_their_axis() -> Any:
    right = heddle.parallel.native_chunks.share_experts

    def stretched(x, factor):
        return x * factor + x.detach() * (1 - factor)

    def wrong(experts, axis):
        compute = experts.compute
        experts.compute = lambda rows, counts: stretched(
            compute(stretched(rows, 1 / axis.size), counts), float(axis.size)
        )
        right(experts, axis)

    return patch.object(heddle.parallel.native_chunks, "share_experts", wrong)


def _counts_experts(counted: Callable[[Any], bool]) -> Any:
    right = heddle.parallel.shards.is_counted

    def wrong(layout, mesh, sharded):
        return counted(mesh) if "expert" in layout.split else right(layout, mesh, sharded)

    return patch.object(heddle.parallel.shards, "is_counted", wrong)


def norm_counts_experts_on_every_rank() -> Any:
    return _counts_experts(lambda _mesh: True)


def norm_counts_experts_of_the_first_rank() -> Any:
    return _counts_experts(lambda mesh: mesh.gradients.rank == 0)


def _sums_of_experts(axis: Callable[[Any], Axis]) -> Any:
    right = heddle.parallel.replicas.reducer.replicas_of

    def wrong(parameter, mesh):
        return axis(mesh) if "expert" in place_of(parameter).split else right(parameter, mesh)

    return patch.object(heddle.parallel.replicas.reducer, "replicas_of", wrong)


def experts_not_summed_over_those_that_hold_the_same() -> Any:
    return _sums_of_experts(lambda mesh: Axis(ranks=(mesh.rank,)))


def experts_summed_over_all_replicas() -> Any:
    return _sums_of_experts(lambda mesh: mesh.gradients)


WHOLE = Plan(tensor=2, data=2, expert=2, expert_tensor=1, microbatch=1)
LATENT = latent()


def latents_not_summed_over_tensor() -> Any:
    """The key that all heads share gets the gradient of this rank's heads only."""
    return patch.object(heddle.parallel.tensor.latent, "enter_region", lambda x, axis, sequence: x)


def norm_counts_whole_experts_of_the_first_tensor_rank() -> Any:
    return _counts_experts(lambda mesh: mesh.expert_data.rank == 0 and mesh.tensor.rank == 0)


def routers_of_whole_experts_not_summed() -> Any:
    return _sums_over(tensor=Axis())


def tokens_sorted_by_rank_alone() -> Any:
    """Experts take what came from other ranks in the order in which it came."""
    exchange = heddle.parallel.experts.exchange
    return patch.object(exchange, "_by_expert", lambda _arriving, rows: torch.arange(rows))


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
    targets_shifted_after_the_cut: Case(GPT, CONTEXT, "what ranks that share a sample read of it"),
    keys_gathered_in_the_order_of_ranks: Case(GPT, GATHER, "or see of each other's keys"),
    positions_counted_on_each_rank: Case(UNTIED, CONTEXT, "what ranks that share a sample read of it"),
    keys_of_one_turn_too_early: Case(GPT, CONTEXT, "or see of each other's keys"),
    gradients_of_keys_not_sent_back: Case(UNTIED, CONTEXT, "back to the input: the backward pass behind it"),
    a_sum_that_leaves_out_who_shares_samples: Case(GPT, CONTEXT, "the sum over ranks that share a sample"),
    tokens_of_others_counted_as_own: Case(GPT, CONTEXT, "the loss of step 1 differs"),
    experts_not_summed_over_tensor: Case(MIXTURE, TENSOR, "the forward pass (a sum over the tensor axis"),
    routers_not_summed_over_tensor: Case(MIXTURE, TENSOR, "only parameters that tensor ranks hold whole differ"),
    router_losses_counted_by_every_tensor_rank: Case(MIXTURE, TENSOR, "or a router's losses"),
    uses_of_experts_by_a_part_of_each_sample: Case(MIXTURE, CONTEXT, "or a router's losses"),
    router_losses_without_scale_before_the_last_stage: Case(MIXTURE, PIPELINE, "or a router's losses"),
    gradients_of_experts_scaled_by_their_axis: Case(
        MIXTURE, EXPERT_DATA, "whose gradients are 2 times the serial ones"
    ),
    latents_not_summed_over_tensor: Case(LATENT, TENSOR, "back to the input: the backward pass behind it"),
    norm_counts_whole_experts_of_the_first_tensor_rank: Case(MIXTURE, WHOLE, "each expert counts once"),
    routers_of_whole_experts_not_summed: Case(LATENT, WHOLE, "only parameters that tensor ranks hold whole differ"),
    norm_counts_experts_on_every_rank: Case(MIXTURE, EXPERT_DATA, "each expert counts once"),
    norm_counts_experts_of_the_first_rank: Case(MIXTURE, EXPERT, "each expert counts once"),
    experts_not_summed_over_those_that_hold_the_same: Case(MIXTURE, EXPERT_DATA, "the sum over the 2 ranks that hold"),
    experts_summed_over_all_replicas: Case(MIXTURE, EXPERT, "only experts differ"),
    tokens_sorted_by_rank_alone: Case(MIXTURE, EXPERT, "tokens on their way to experts and back"),
    balance_by_the_tokens_of_a_rank: Case(MIXTURE, EXPERT_CONTEXT, "or a router's losses"),
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


@pytest.mark.parametrize("fault", thinned(FAULTS, slow=list(FAULTS)[::2]), ids=lambda fault: fault.__name__)
def test_the_same_plan_without_its_fault_is_equal(world, fault):
    """In the same processes, after all faults: none of them stayed."""
    assert equal_without_fault(world, FAULTS[fault].model, FAULTS[fault].plan)


@cache
def equal_without_fault(world: World, model: ModelSpec, plan: Plan) -> bool:
    return laid_beside(world, Case(model, plan, ""), None).equal
