"""What each chunk and each stage of one plan takes and holds: uneven stages, a word of recompute for each layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from heddle.cost import compute, memory, network
from heddle.cost import step as stage
from heddle.cost.fits import MemoryVerdict, verdict
from heddle.cost.memory import MemoryBreakdown
from heddle.cost.step import LayerCost
from heddle.cost.work import Work, recomputing, work_of
from heddle.schedule import Kind, Placement, Schedule, build
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.plan import Plan, Recompute


class ChunkSeconds(NamedTuple):
    """Seconds of one microbatch through each chunk, both ways, and what they are."""

    forward: list[float]
    backward: list[float]
    weight: list[float]  # of these, what makes weight gradients
    repeats: list[float]  # of these, what is recomputing
    parts: dict[str, float]  # of all chunks', what is not compute


def chunk_costs(job: Job, plan: Plan, work: Work, cluster: Cluster) -> ChunkSeconds:
    """What one microbatch takes in each chunk."""
    price, *ends = _priced(cluster, _of_a_layer(work))
    again = {"none": 0.0, "selective": price.again_selective, "full": price.again_full}
    send = float(network.between_stages(cluster, work))
    forward, backward, weight, repeats = [], [], [], []
    parts = {"recompute": 0.0, "tensor": 0.0, "pipeline": 0.0}
    for chunk in range(plan.chunks):
        layers = plan.layers_of(chunk, job.model.layers)
        words = [plan.recompute_of(layer) for layer in layers]
        repeat = sum(again[word] for word in words)
        is_first, is_last = chunk == 0, chunk == plan.chunks - 1
        there, back = len(layers) * price.forward, len(layers) * price.backward + repeat
        for at_end, (f, b) in zip((is_first, is_last), ends, strict=True):
            there, back = there + at_end * f, back + at_end * b
        onward, homeward = (_apart(plan, chunk, other) * send for other in (chunk + 1, chunk - 1))
        forward.append(there + onward)
        backward.append(back + homeward)
        weight.append(len(layers) * price.weight)
        repeats.append(repeat)
        in_tensor = words.count("full") * price.tensor_again
        parts["recompute"] += repeat - in_tensor
        parts["tensor"] += len(layers) * (price.tensor_forward + price.tensor_backward) + in_tensor
        parts["pipeline"] += onward + homeward
    return ChunkSeconds(forward, backward, weight, repeats, parts)


def _apart(plan: Plan, chunk: int, other: int) -> bool:
    """Whether a chunk has that neighbour, on another rank."""
    return 0 <= other < plan.chunks and (plan.pipeline == 1 or plan.rank_of(chunk) != plan.rank_of(other))


def _of_a_layer(work: Work) -> Work:
    """The same for all works whose layers cost the same: a search looks at many of them."""
    batch = work.microbatch * min(2, work.microbatches)  # gradients are added up from the second microbatch on
    return recomputing(replace(work, batch=batch, pipeline=1, virtual=1, data=1, zero=0, schedule=0), "full")


@lru_cache(maxsize=1024)
def _priced(cluster: Cluster, work: Work) -> tuple[LayerCost, tuple[float, float], tuple[float, float]]:
    """A layer that recomputes everything, the embedding, and the head, both ways: plain numbers."""
    layer = LayerCost(*map(float, stage.layer_cost(cluster, work)))
    (a, b), (c, d) = compute.embedding(cluster, work), compute.head(cluster, work)
    return layer, (float(a), float(b)), (float(c), float(d))


def step_tail_seconds(
    plan: Plan, work: Work, cluster: Cluster, pipe: float, microbatches: int, backward: list[float]
) -> tuple[float, float]:
    """Seconds that replicas' communication adds to a step, and those of the optimizer, on the stage that has most."""
    held = [_parameters(plan, work, rank) for rank in range(plan.pipeline)]
    most = max(held)
    each = stage.shard_exchange(cluster, work, most)
    once = stage.data_exchange(cluster, work, most)
    last = sum(backward[chunk] for chunk in plan.chunks_of(0))
    data = microbatches * (each - stage.hidden(cluster, each, pipe / microbatches))
    data = data + once - work.data_overlap * stage.hidden(cluster, once, last)
    shared = plan.data if plan.zero else 1
    return float(data), float(compute.optimizer(cluster, most / shared, work.element))


def _parameters(plan: Plan, work: Work, rank: int) -> float:
    """Parameters of one rank of a stage."""
    layers = sum(plan.stages[chunk] for chunk in plan.chunks_of(rank))
    ends = memory.end_parameters(work, rank == 0, rank == plan.last_rank)
    return float(layers * memory.layer_parameters(work) + ends)


def memory_verdict(job: Job, cluster: Cluster) -> MemoryVerdict:
    """Whether a job's plan fits, for which nothing needs to be known of how fast the cluster is."""
    job = job.planned
    plan = job.plan
    schedule = build(plan.schedule, plan.pipeline, plan.microbatches(job.train.global_batch), plan.virtual)
    return verdict(stage_memory(job, plan, work_of(job, cluster), schedule, cluster)[0], cluster.device)


def stage_memory(
    job: Job, plan: Plan, work: Work, schedule: Schedule, cluster: Cluster
) -> tuple[tuple[MemoryBreakdown, ...], LeftBytes]:
    """What one rank of each stage holds at its peak, and what a microbatch leaves in each chunk."""
    kept = memory.layer_activations(work)
    bytes_of: dict[Recompute, float] = {
        "none": float(kept.none),
        "selective": float(kept.selective),
        "full": float(kept.full),
    }
    ends, sent = memory.end_activations(work), float(memory.sent_message(work))
    moment_of = {word: float(kept.moment(recomputing(work, word))) for word in bytes_of}
    saved, moments, made, lately = [], [], [], []
    layer = float(memory.layer_parameters(work))
    alone = plan.data == 1 and work.element == 4  # whose gradients are made by the first backward of a step
    for chunk in range(plan.chunks):
        words = [plan.recompute_of(layer) for layer in plan.layers_of(chunk, job.model.layers)]
        left = sum(bytes_of[word] for word in words)
        moment = max(moment_of[word] for word in words)
        if chunk == 0:
            moment = max(moment, float(memory.embedding_backward(work, left)))
        if chunk == plan.chunks - 1:
            moment = float(memory.last_moment(work, ends, moment)) - float(ends.left)
            left += float(ends.left)
        saved.append(left)
        moments.append(moment)
        grown = memory.made_gradients(work, len(words) * layer, chunk == 0, chunk == plan.chunks - 1)
        made.append(float(grown) * alone)
        first = bytes_of[words[0]] + moment_of[words[0]]
        lately.append(float(memory.last_layer(work, first, chunk == 0)) * alone)
    owed = [layers * float(memory.owed_products(work)) for layers in plan.stages]
    left_bytes = LeftBytes(tuple(saved), tuple(owed))
    of_chunks = _OfChunks(left_bytes, moments, made, lately, float(work.hidden * work.ffn / work.tensor * work.element))
    largest = max(layer, float(work.padded_vocab * work.hidden))
    found = []
    for rank, order in enumerate(schedule.places):
        weights, gradients, optimizer, gathered = (
            float(value) for value in memory.states(work, _parameters(plan, work, rank), largest)
        )
        loops = plan.virtual > 1 and schedule.placement is Placement.LOOP
        inner = plan.pipeline > 2 and (loops or 0 < rank < plan.pipeline - 1)
        neighbours = 0 if plan.pipeline == 1 else 2 if inner else 1
        steady = int(memory.answered_messages(neighbours, plan.virtual > 1, schedule.microbatches))
        peak = _fullest(order, of_chunks, sent, steady)
        most, briefly = peak.activations, peak.briefly
        present = gradients - sum(made[chunk] for chunk in plan.chunks_of(rank)) + peak.made
        update = gradients + float(memory.update_buffers(work, gradients)) - present - most
        waiting = float(memory.exchange_buffers(work, neighbours))
        bill = MemoryBreakdown(weights, present, optimizer, most, max(briefly, update) + gathered + waiting, 0.0)
        found.append(bill._replace(slack=memory.slack(cluster, bill.total)))
    return tuple(found), left_bytes


class LeftBytes(NamedTuple):
    """Bytes that a microbatch leaves in each chunk: for its way back, and where that is taken in two, for the rest."""

    saved: tuple[float, ...]
    owed: tuple[float, ...]


class _OfChunks(NamedTuple):
    """Bytes of one microbatch in each chunk."""

    left: LeftBytes
    moments: list[float]  # on its way back, for a moment
    made: list[float]  # gradients that the first way back makes
    lately: list[float]  # for a moment at the end of that
    product: float  # of one weight's gradient


class _Peak(NamedTuple):
    """What a stage holds at its fullest moment, and of gradients what backwards have made by then."""

    activations: float
    briefly: float
    made: float


def _fullest(order: np.ndarray, of: _OfChunks, sent: float, steady: int) -> _Peak:
    """The fullest moment of a stage; `order`: what it does, as places among all chunks' actions of each kind.

    What was sent to the next stage lives until the first answer from there; from then on `steady` messages do.
    """
    saved, owed = map(np.array, of.left)
    chunks, place = len(saved), np.arange(len(order))
    nothing = np.zeros(chunks)

    def each(of_kind: Callable[[Kind], np.ndarray]) -> np.ndarray:
        return np.asarray(np.concatenate([of_kind(kind) for kind in Kind])[order])

    change = each(lambda kind: kind.holds * saved + kind.owes * owed)
    held = np.cumsum(change)
    back = each(lambda kind: nothing + (kind.direction < 0)) > 0
    sends = sent * (order < chunks - 1)
    reached = np.cumsum(sends)
    answered = np.maximum.accumulate(np.where(back, place, -1))  # the last backward so far
    before = reached - sends
    sending = np.where(answered < 0, before, before - reached[answered] + steady * sent)
    # A backward holds most when it begins, or where it leaves more than it found, when it ends; a chunk's first one
    # may when it ends, with the gradients it has made.
    moments = each(lambda kind: np.array(of.moments) if kind.direction < 0 else nothing + of.product * (kind.owes < 0))
    makes = each(lambda kind: np.array(of.made) if kind.gradients else nothing)
    first = np.zeros(len(order))
    if any(of.made):
        adds = np.flatnonzero(makes)
        at = adds[np.unique(order[adds] % chunks, return_index=True)[1]]
        first[at] = makes[at]
    grown = np.cumsum(first)
    forwards = each(lambda kind: nothing + (kind.direction > 0)) > 0
    during = np.where(forwards, held, np.maximum(held - change, held)), sending + moments, grown - first
    ending = sending + each(lambda kind: np.array(of.lately) if kind.gradients else nothing)
    after = np.where(first > 0, held, 0.0), np.where(first > 0, ending, 0.0), np.where(first > 0, grown, 0.0)
    moment, later = (np.array(each) for each in (during, after))
    totals = np.stack([moment.sum(axis=0), later.sum(axis=0)], axis=1)
    index, which = divmod(int(np.argmax(totals)), 2)
    return _Peak(*map(float, (moment, later)[which][:, index]))
