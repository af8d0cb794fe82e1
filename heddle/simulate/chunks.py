"""What each chunk and each stage of one plan takes and holds: stages may be uneven, and layers differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from heddle.cost import compute, memory, network
from heddle.cost import step as stage
from heddle.cost.fits import MemoryVerdict, verdict
from heddle.cost.layers import Chunk, chunk_layers
from heddle.cost.memory import MemoryBreakdown
from heddle.cost.step import LayerCost
from heddle.cost.work import Work, recomputing, work_of
from heddle.schedule import Kind, Placement, Schedule
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job, PlannedJob
from heddle.spec.layer_memory import Recompute
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan


class PassCosts(NamedTuple):
    """Seconds of one microbatch's way through a chunk, one direction, and what is part of them."""

    seconds: float
    again: float = 0.0  # recomputing
    tensor: float = 0.0  # collectives along the tensor axis
    tensor_again: float = 0.0  # the same, of `again`
    send: float = 0.0  # the message to the next chunk
    weight: float = 0.0  # weight gradients, which may be made apart


class ChunkCosts(NamedTuple):
    """Both ways of one microbatch through one chunk."""

    forward: PassCosts
    backward: PassCosts

    def of(self, kind: Kind) -> PassCosts:
        """What an action takes: one way, or one half of the way back."""
        if kind.owes < 0:
            return PassCosts(self.backward.weight)
        if kind.owes > 0:
            return self.backward._replace(seconds=self.backward.seconds - self.backward.weight)
        return self.forward if kind.direction > 0 else self.backward


def chunk_costs(job: Job, plan: Plan, work: Work, cluster: Cluster) -> list[ChunkCosts]:
    """What one microbatch takes in each chunk: the sum over its layers, its end of the model, its messages."""
    seconds = float(network.between_stages(cluster, work))
    message = PassCosts(seconds, send=seconds)
    prices = [_priced(cluster, _of_a_layer(one)) for _, one in work.each_shape]

    @cache  # of a hundred chunks most are alike
    def one(layers: Chunk, first: bool, last: bool, onward: bool, homeward: bool) -> ChunkCosts:
        ways = []
        for way, sends in enumerate((onward, homeward)):
            ends = [PassCosts(price[way]) for price, here in zip(prices[0][1:], (first, last), strict=True) if here]
            passes = [(_passes(prices[kind.shape][0], kind.recompute)[way], count) for kind, count in layers]
            summed = [PassCosts(*(count * value for value in each)) for each, count in passes]
            ways.append(PassCosts(*map(sum, zip(*summed, *ends, *[message] * sends, strict=True))))
        return ChunkCosts(*ways)

    chunks = chunk_layers(job.model, plan)
    return [
        one(
            layers, chunk == 0, chunk == len(chunks) - 1, _apart(plan, chunk, chunk + 1), _apart(plan, chunk, chunk - 1)
        )
        for chunk, layers in enumerate(chunks)
    ]


def _apart(plan: Plan, chunk: int, other: int) -> bool:
    """Whether a chunk has that neighbour, on another rank."""
    return 0 <= other < plan.chunks and (plan.pipeline == 1 or plan.rank_of(chunk) != plan.rank_of(other))


def _passes(price: LayerCost, recompute: Recompute) -> tuple[PassCosts, PassCosts]:
    """Both ways through one layer."""
    again = {"none": 0.0, "selective": price.again_selective, "full": price.again_full}[recompute]
    repeated = price.tensor_again * (recompute == "full")
    return PassCosts(price.forward, tensor=price.tensor_forward), PassCosts(
        price.backward + again, again, price.tensor_backward, repeated, weight=price.weight
    )


def not_compute(chunks: list[ChunkCosts]) -> dict[str, float]:
    """What of all chunks' seconds is not compute, by the name of the item of a step."""
    passes = [way for chunk in chunks for way in chunk]
    return {
        "recompute": sum(way.again - way.tensor_again for way in passes),
        "tensor": sum(way.tensor + way.tensor_again for way in passes),
        "pipeline": sum(way.send for way in passes),
    }


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
    job: PlannedJob, work: Work, cluster: Cluster, pipe: float, microbatches: int, backward: list[float]
) -> tuple[float, float]:
    """Seconds that replicas' communication adds to a step, and those of the optimizer, on the stage that has most."""
    plan = job.plan
    most = max(_parameters(job.model, plan, work))
    each = stage.shard_exchange(cluster, work, most)
    once = stage.data_exchange(cluster, work, most)
    last = sum(backward[chunk] for chunk in plan.chunks_of(0))
    data = microbatches * (each - stage.hidden(cluster, each, pipe / microbatches))
    data = data + once - work.data_overlap * stage.hidden(cluster, once, last)
    shared = plan.data if plan.zero else 1
    return float(data), float(compute.optimizer(cluster, most / shared, work.element))


def _parameters(model: ModelSpec, plan: Plan, work: Work) -> list[float]:
    """Parameters of one rank of each stage."""
    each = [float(memory.layer_parameters(one)) for _, one in work.each_shape]
    held = [0.0] * plan.pipeline
    for chunk, layers in enumerate(chunk_layers(model, plan)):
        held[plan.rank_of(chunk)] += sum(count * each[kind.shape] for kind, count in layers)
    held[0] += float(memory.end_parameters(work, True, plan.last_rank == 0))
    if plan.last_rank > 0:
        held[plan.last_rank] += float(memory.end_parameters(work, False, True))
    return held


def memory_verdict(job: Job, cluster: Cluster) -> MemoryVerdict:
    """Whether a job's plan fits, for which nothing needs to be known of how fast the cluster is."""
    job = job.planned
    plan = job.plan
    schedule = plan.order_of_work(job.train.global_batch)
    return verdict(stage_memory(job, plan, work_of(job, cluster), schedule, cluster)[0], cluster.device)


def stage_memory(
    job: Job, plan: Plan, work: Work, schedule: Schedule, cluster: Cluster
) -> tuple[tuple[MemoryBreakdown, ...], LeftBytes]:
    """What one rank of each stage holds at its peak, and what a microbatch leaves in each chunk."""
    layers = chunk_layers(job.model, plan)
    shapes = [_bytes_of(_of_a_layer(one)) for _, one in work.each_shape]
    alone = plan.data == 1 and work.element == 4  # whose gradients are made by the first backward of a step
    held = _ChunkBytes.of_each(work, layers, shapes, alone)
    sent = float(memory.sent_message(work))
    largest = max(float(work.padded_vocab * work.hidden), *(shape.parameters for shape in shapes))
    parameters = _parameters(job.model, plan, work)
    found = []
    for rank, order in enumerate(schedule.places):
        weights, gradients, optimizer, gathered = (
            float(value) for value in memory.states(work, parameters[rank], largest)
        )
        loops = plan.virtual > 1 and schedule.placement is Placement.LOOP
        inner = plan.pipeline > 2 and (loops or 0 < rank < plan.pipeline - 1)
        neighbours = 0 if plan.pipeline == 1 else 2 if inner else 1
        steady = int(memory.answered_messages(neighbours, plan.virtual > 1, schedule.microbatches))
        peak = _fullest(order, held, sent, steady)
        most, briefly = peak.activations, peak.briefly
        present = gradients - sum(held[chunk].made for chunk in plan.chunks_of(rank)) + peak.made
        update = gradients + float(memory.update_buffers(work, gradients)) - present - most
        waiting = float(memory.exchange_buffers(work, neighbours))
        bill = MemoryBreakdown(weights, present, optimizer, most, max(briefly, update) + gathered + waiting, 0.0)
        found.append(bill._replace(slack=memory.slack(cluster, bill.total)))
    return tuple(found), LeftBytes(tuple(chunk.saved for chunk in held), tuple(chunk.owed for chunk in held))


class LeftBytes(NamedTuple):
    """Bytes that a microbatch leaves in each chunk: for its way back, and where that is taken in two, for the rest."""

    saved: tuple[float, ...]
    owed: tuple[float, ...]


class _LayerBytes(NamedTuple):
    """Of the layers of one shape, by what they recompute."""

    saved: dict[Recompute, float]  # that a microbatch leaves behind
    moment: dict[Recompute, float]  # that one on its way back holds for a moment
    parameters: float
    owed: float  # that a microbatch's weight gradients hold where they are put off


@lru_cache(maxsize=1024)
def _bytes_of(work: Work) -> _LayerBytes:
    """Plain numbers; `work` is that `_of_a_layer`."""
    kept = memory.layer_activations(work)
    saved: dict[Recompute, float] = {
        "none": float(kept.none),
        "selective": float(kept.selective),
        "full": float(kept.full),
    }
    moment = {word: float(kept.moment(recomputing(work, word))) for word in saved}
    return _LayerBytes(saved, moment, float(memory.layer_parameters(work)), float(memory.owed_products(work)))


class _ChunkBytes(NamedTuple):
    """Bytes of a chunk: what a microbatch leaves, what a backward holds for a moment, gradients that its first one
    makes, and what that one holds in its last layer.
    """

    saved: float
    moment: float
    made: float
    lately: float
    owed: float  # that weight gradients hold where they are put off

    @classmethod
    def of_each(cls, work: Work, chunks: Sequence[Chunk], shapes: list[_LayerBytes], alone: bool) -> list[_ChunkBytes]:
        """Of each chunk; chunks of the same layers, and there are many of them, are alike."""
        known: dict[Any, _ChunkBytes] = {}
        ends = memory.end_activations(work)
        found = []
        for number, layers in enumerate(chunks):
            key = layers, number == 0, number == len(chunks) - 1
            if key not in known:
                known[key] = cls.of_one(work, shapes, ends, alone, *key)
            found.append(known[key])
        return found

    @classmethod
    def of_one(
        cls,
        work: Work,
        shapes: list[_LayerBytes],
        ends: memory.Ends,
        alone: bool,
        layers: Chunk,
        first: bool,
        last: bool,
    ) -> _ChunkBytes:
        """Of one chunk; `alone`: whose gradients are made by the first backward of a step."""
        left = sum(count * shapes[kind.shape].saved[kind.recompute] for kind, count in layers)
        moment = max(shapes[kind.shape].moment[kind.recompute] for kind, _ in layers)
        if first:
            moment = max(moment, float(memory.embedding_backward(work, left)))
        if last:
            moment = float(memory.last_moment(work, ends, moment)) - float(ends.left)
            left += float(ends.left)
        owed = sum(count * shapes[kind.shape].owed for kind, count in layers)
        if not alone:
            return cls(left, moment, 0.0, 0.0, owed)
        parameters = sum(count * shapes[kind.shape].parameters for kind, count in layers)
        begins = layers[0][0]  # the layer that its backward ends with
        shape = shapes[begins.shape]
        own = shape.saved[begins.recompute] + shape.moment[begins.recompute]
        lately = memory.last_layer(work, own, shape.parameters, first)
        return cls(left, moment, float(memory.made_gradients(work, parameters, first, last)), float(lately), owed)


class _Peak(NamedTuple):
    """What a stage holds at its fullest moment, and of gradients what backwards have made by then."""

    activations: float
    briefly: float
    made: float


def _fullest(order: np.ndarray, held_bytes: Sequence[_ChunkBytes], sent: float, steady: int) -> _Peak:
    """The fullest moment of a stage; `order`: what it does, as places among all chunks' actions of each kind.

    What was sent to the next stage lives until the first answer from there; from then on `steady` messages do.
    """
    saved, moments, made, lately, owed = map(np.array, zip(*held_bytes, strict=True))
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
    # A backward holds most when it begins, or where it leaves more than it found, when it ends; a chunk's first one may
    # when it ends, with the gradients it has made.
    briefly = sending + each(lambda kind: moments if kind.direction < 0 else nothing)
    activations = np.maximum(held - change, held)
    if not any(made):
        index = int(np.argmax(activations + briefly))
        return _Peak(float(activations[index]), float(briefly[index]), 0.0)
    first, makes = np.zeros(len(order)), each(lambda kind: made if kind.gradients else nothing)
    adds = np.flatnonzero(makes)
    at = adds[np.unique(order[adds] % chunks, return_index=True)[1]]
    first[at] = makes[at]
    grown = np.cumsum(first)
    ending = sending + each(lambda kind: lately if kind.gradients else nothing)
    moment = np.array([activations, briefly, grown - first])
    later = np.where(first > 0, np.array([held, ending, grown]), 0.0)
    totals = np.stack([moment.sum(axis=0), later.sum(axis=0)], axis=1)
    index, which = divmod(int(np.argmax(totals)), 2)
    return _Peak(*map(float, (moment, later)[which][:, index]))
