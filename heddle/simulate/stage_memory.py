"""What one rank of each stage of one plan holds at its fullest moment: stages may be uneven, and layers differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

from heddle.cost import memory, messages
from heddle.cost.fits import MemoryVerdict, fits, verdict
from heddle.cost.layers import Chunk, LayerKind, chunk_layers, recomputing
from heddle.cost.memory import MemoryBreakdown
from heddle.cost.offload import Gathered, States, gathered, states
from heddle.cost.work import Work, work_of
from heddle.schedule import Placement, Schedule
from heddle.simulate.fullest import ActionBytes, fullest_moment
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.layer_memory import LayerMemory, Recompute
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan, even_stages


def of_a_layer(work: Work) -> Work:
    """The same for all works whose layers cost the same: a search looks at many of them."""
    batch = work.microbatch * min(2, work.microbatches)  # gradients are added up from the second microbatch on
    return replace(work, batch=batch, pipeline=1, virtual=1, data=1, zero=0, schedule=0, full=1.0, selective=0.0)


def parts_of(model: ModelSpec, plan: Plan, work: Work) -> Iterator[tuple[int, LayerKind, float]]:
    """The parameters of every layer and of both ends, with the stage that holds them and what it does with them."""
    each = [float(memory.layer_parameters(one)) for _, one in work.each_shape]
    for chunk, layers in enumerate(chunk_layers(model, plan)):
        for kind, count in layers:
            yield from [(plan.rank_of(chunk), kind, each[kind.shape])] * count
    ends = LayerKind(0, LayerMemory("none", plan.zero, plan.ends_offload))
    yield 0, ends, float(memory.end_parameters(work, True, plan.last_rank == 0))
    if plan.last_rank > 0:
        yield plan.last_rank, ends, float(memory.end_parameters(work, False, True))


def parameters_of(model: ModelSpec, plan: Plan, work: Work) -> list[float]:
    """Parameters of one rank of each stage."""
    each = [float(memory.layer_parameters(one)) for _, one in work.each_shape]
    held = [0.0] * plan.pipeline
    if len(each) == 1:
        for chunk, count in enumerate(plan.stages or even_stages(model.layers, plan.chunks)):
            held[plan.rank_of(chunk)] += count * each[0]
    else:
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
    held, bills = _stages(job, plan, work, schedule, cluster)
    return tuple(bills), LeftBytes(tuple(chunk.saved for chunk in held), tuple(chunk.owed for chunk in held))


def every_stage_fits(job: Job, plan: Plan, work: Work, schedule: Schedule, cluster: Cluster) -> bool:
    """Whether all of them have room in their devices: for searches, which need not know how much the others hold."""
    _, bills = _stages(job, plan, work, schedule, cluster)
    return all(fits(float(bill.total), cluster.device) for bill in bills)


def _stages(
    job: Job, plan: Plan, work: Work, schedule: Schedule, cluster: Cluster
) -> tuple[list[_ChunkBytes], Iterator[MemoryBreakdown]]:
    """What each chunk leaves, and what one rank of each stage holds, as they are asked for."""
    layers = chunk_layers(job.model, plan)
    shapes = [bytes_of(of_a_layer(one)) for _, one in work.each_shape]
    alone = plan.data == 1 and work.element == 4  # whose gradients are made by the first backward of a step
    by_rank = _states_by_layer(job.model, plan, work) if plan.by_layer else None
    moments = [by_rank[plan.rank_of(chunk)][3].moment if by_rank else 0.0 for chunk in range(plan.chunks)]
    held = _ChunkBytes.of_each(work, layers, shapes, alone, moments, ordered=plan.by_layer)
    sent = float(messages.sent_message(work))
    largest = max(float(work.padded_vocab * work.hidden), *(shape.parameters for shape in shapes))
    parameters = parameters_of(job.model, plan, work)

    tables = ActionBytes.of(held)

    @cache  # of many stages most are alike
    def whole(parameters: float) -> tuple[float, float, float, float]:
        weights, gradients, optimizer, in_use = map(float, memory.states(work, parameters, largest))
        return weights, gradients, optimizer, in_use

    @cache
    def buffers(gradients: float) -> float:
        return float(messages.update_buffers(work, gradients))

    @cache
    def waits_for(neighbours: int, end: bool) -> tuple[int, float]:
        steady = int(messages.answered_messages(neighbours, plan.virtual > 1, schedule.microbatches))
        return steady, float(messages.exchange_buffers(work, neighbours, end))

    def bills() -> Iterator[MemoryBreakdown]:
        for rank, order in enumerate(schedule.places):
            own = whole(parameters[rank]) if by_rank is None else (*by_rank[rank][:3], by_rank[rank][3].always)
            weights, gradients, optimizer, in_use = own
            loops = plan.virtual > 1 and schedule.placement is Placement.LOOP
            inner = plan.pipeline > 2 and (loops or 0 < rank < plan.pipeline - 1)
            end = (rank == 0) != (rank == plan.last_rank)
            steady, waiting = waits_for(0 if plan.pipeline == 1 else 2 if inner else 1, end)
            peak = fullest_moment(order, tables, sent, steady)
            most, briefly = peak.activations, peak.briefly
            made = sum(held[chunk].made for chunk in plan.chunks_of(rank)) if alone else 0.0
            present = gradients - made + peak.made
            update = gradients + buffers(gradients) - present - most
            bill = MemoryBreakdown(weights, present, optimizer, most, max(briefly, update) + in_use + waiting, 0.0)
            yield bill._replace(slack=memory.slack(cluster, bill.total))

    return held, bills()


def _states_by_layer(model: ModelSpec, plan: Plan, work: Work) -> list[tuple[float, float, float, Gathered]]:
    """Weights, gradients, optimizer and what is gathered, of one rank of each stage."""
    units: list[list[States]] = [[] for _ in range(plan.pipeline)]
    for rank, kind, parameters in parts_of(model, plan, work):
        units[rank].append(states(work, parameters, kind.memory))
    return [
        (
            sum(unit.weights for unit in own),
            sum(unit.gradients for unit in own),
            sum(unit.optimizer for unit in own),
            gathered(own, plan.prefetch),
        )
        for own in units
    ]


class LeftBytes(NamedTuple):
    """Bytes that a microbatch leaves in each chunk: for its way back, and where that is taken in two, for the rest."""

    saved: tuple[float, ...]
    owed: tuple[float, ...]


class LayerBytes(NamedTuple):
    """Of the layers of one shape, by what they recompute."""

    saved: dict[Recompute, float]  # that a microbatch leaves behind
    moment: dict[Recompute, float]  # that one on its way back holds for a moment
    parameters: float
    owed: float  # that a microbatch's weight gradients hold where they are put off

    def left(self, kind: LayerKind) -> float:
        """What a microbatch leaves on the device."""
        return 0.0 if kind.leaves else self.saved[kind.recompute]

    def back(self, kind: LayerKind) -> float:
        """What the way back holds for a moment; what had left is there again.

        So is the memory that autograd would have used again: what was read belongs to the tier's slot until the layer's
        backward is over, its input at least, and with activations the sum beside it.
        """
        if not kind.leaves:
            return self.moment[kind.recompute]
        again = self.saved["full"] * (1 if kind.recompute == "full" else 2)
        return self.moment[kind.recompute] + self.saved[kind.recompute] + again


@lru_cache(maxsize=1024)
def bytes_of(work: Work) -> LayerBytes:
    """Plain numbers; `work` is that `of_a_layer`."""
    kept = memory.layer_activations(work)
    saved: dict[Recompute, float] = {
        "none": float(kept.none),
        "selective": float(kept.selective),
        "full": float(kept.full),
    }
    moment = {word: float(kept.moment(recomputing(work, word))) for word in saved}
    return LayerBytes(saved, moment, float(memory.layer_parameters(work)), float(memory.owed_products(work)))


@lru_cache(maxsize=1024)
def _ends_of(work: Work) -> memory.Ends:
    """Plain numbers of the output layer and the loss, which are the same for all plans of such layers."""
    return memory.Ends(*map(float, memory.end_activations(work)))


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
    def of_each(
        cls,
        work: Work,
        chunks: Sequence[Chunk],
        shapes: list[LayerBytes],
        alone: bool,
        gathered: Sequence[float],
        ordered: bool,
    ) -> list[_ChunkBytes]:
        """Of each chunk; chunks of the same layers, and there are many of them, are alike.

        `gathered`: bytes that are there while a layer that is sharded, or fetched, computes.
        """
        known: dict[Any, _ChunkBytes] = {}
        ends = _ends_of(of_a_layer(work))
        found = []
        for number, layers in enumerate(chunks):
            key = layers, number == 0, number == len(chunks) - 1, gathered[number]
            if key not in known:
                known[key] = cls.of_one(work, shapes, ends, alone, ordered, *key)
            found.append(known[key])
        return found

    @staticmethod
    def fullest_layer(layers: Chunk, shapes: list[LayerBytes], ordered: bool, gathered: float) -> float:
        """Bytes on top of what a microbatch left, in the layer where a backward has most of them.

        Where it is `ordered`, layers that the backward has passed have let go of their own; else each layer may be the
        first, which is what bounds assume.
        """
        most, gone = 0.0, 0.0
        for kind, count in reversed(layers):
            brief = gathered if kind.memory.zero >= 2 or kind.memory.tier("weights") else 0.0
            most = max(most, shapes[kind.shape].back(kind) + brief - gone)
            gone += count * shapes[kind.shape].left(kind) * ordered
        return most

    @classmethod
    def of_one(
        cls,
        work: Work,
        shapes: list[LayerBytes],
        ends: memory.Ends,
        alone: bool,
        ordered: bool,
        layers: Chunk,
        first: bool,
        last: bool,
        gathered: float,
    ) -> _ChunkBytes:
        """Of one chunk; `alone`: whose gradients are made by the first backward of a step."""
        left = sum(count * shapes[kind.shape].left(kind) for kind, count in layers)
        moment = cls.fullest_layer(layers, shapes, ordered, gathered)
        if not first and layers[0][0].leaves:  # what another stage sent stays until its gradient is sent back
            left += shapes[layers[0][0].shape].saved["full"]
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
        own = shape.left(begins) + shape.back(begins)
        if begins.memory.zero >= 2 or begins.memory.tier("weights"):
            own += gathered
        lately = memory.last_layer(work, own, shape.parameters, first)
        return cls(left, moment, float(memory.made_gradients(work, parameters, first, last)), float(lately), owed)
