"""What one rank of each stage of one plan holds at its fullest moment: stages may be uneven, and layers differ."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from heddle.cost import adapters, memory, messages
from heddle.cost.fits import MemoryVerdict, fits, verdict
from heddle.cost.layers import LayerKind, chunk_layers
from heddle.cost.memory import MemoryBreakdown
from heddle.cost.offload import States, states
from heddle.cost.work import Work, work_of
from heddle.schedule import Schedule
from heddle.schedule.transit import transit
from heddle.simulating.chunk_memory import ChunksOf, chunks_of
from heddle.simulating.fullest import ActionBytes, ChunkBytes, fullest_moment
from heddle.simulating.layer_bytes import bytes_of as bytes_of
from heddle.simulating.layer_bytes import of_a_layer as of_a_layer
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.layer_memory import LayerMemory
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan, even_stages


class ModelPart(NamedTuple):
    """A layer, or an end of the model, on one rank of a stage."""

    stage: int
    kind: LayerKind
    parameters: float  # that learn
    frozen: float  # bytes of weights that do not


def parts_of(model: ModelSpec, plan: Plan, work: Work) -> Iterator[ModelPart]:
    """The parameters of every layer and of both ends, with the stage that holds them and what it does with them."""
    each = [(float(memory.layer_parameters(one)), float(adapters.frozen_layer(one))) for _, one in work.each_shape]
    for chunk, layers in enumerate(chunk_layers(model, plan)):
        for kind, count in layers:
            yield from [ModelPart(plan.rank_of(chunk), kind, *each[kind.shape])] * count
    ends = LayerKind(0, LayerMemory("none", plan.zero, plan.ends_offload))
    for stage, first, last in _ends(plan):
        held = float(memory.end_parameters(work, first, last)), float(adapters.frozen_end(work, first, last))
        yield ModelPart(stage, ends, *held)


def _ends(plan: Plan) -> Iterator[tuple[int, bool, bool]]:
    """The stages that begin and end the model, and which of the two each does."""
    yield 0, True, plan.last_rank == 0
    if plan.last_rank > 0:
        yield plan.last_rank, False, True


def frozen_of(model: ModelSpec, plan: Plan, work: Work) -> list[float]:
    """Bytes of weights that nobody updates, of one rank of each stage, as if all were held whole."""
    held = [0.0] * plan.pipeline
    if work.frozen:
        for part in parts_of(model, plan, work):
            held[part.stage] += part.frozen
    return held


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
    for stage, first, last in _ends(plan):
        held[stage] += float(memory.end_parameters(work, first, last))
    return held


def memory_verdict(job: Job, cluster: Cluster) -> MemoryVerdict:
    """Whether a job's plan fits, for which nothing needs to be known of how fast the cluster is."""
    job = job.planned
    plan = job.plan
    schedule = plan.order_of_work(job.train.global_batch)
    return verdict(stage_memory(job, plan, work_of(job, cluster), schedule, cluster)[0], cluster.device)


def stage_memory(
    job: Job, plan: Plan, work: Work, schedule: Schedule, cluster: Cluster, known: ChunksOf | None = None
) -> tuple[tuple[MemoryBreakdown, ...], LeftBytes]:
    """What one rank of each stage holds at its peak, and what a microbatch leaves in each chunk.

    `known`: chunks of plans that differ from this one in what their layers do.
    """
    held, breakdowns = _stages(job, plan, work, schedule, cluster, known)
    return tuple(breakdowns), LeftBytes(tuple(chunk.saved for chunk in held), tuple(chunk.owed for chunk in held))


def every_stage_fits(job: Job, plan: Plan, work: Work, schedule: Schedule, cluster: Cluster) -> bool:
    """Whether all of them have room in their devices: for searches, which need not know how much the others hold."""
    _, breakdowns = _stages(job, plan, work, schedule, cluster)
    return all(fits(float(breakdown.total), cluster.device) for breakdown in breakdowns)


def _stages(
    job: Job, plan: Plan, work: Work, schedule: Schedule, cluster: Cluster, known: ChunksOf | None = None
) -> tuple[list[ChunkBytes], Iterator[MemoryBreakdown]]:
    """What each chunk leaves, and what one rank of each stage holds, as they are asked for."""
    held = chunks_of(job.model, plan, work, known)
    parameters, frozen = parameters_of(job.model, plan, work), frozen_of(job.model, plan, work)
    by_rank = (
        _states_by_layer(job.model, plan, work) if plan.by_layer or (plan.zero >= 2 and plan.replicas > 1) else None
    )
    tables = ActionBytes.of(held)
    sent, slices = float(messages.sent_message(work)), float(messages.awaited_message(work))

    @cache  # of many stages most are alike
    def whole(parameters: float) -> States:
        weights, gradients, optimizer, coded = map(float, memory.states(work, parameters, 0.0))
        return States(weights, gradients, optimizer, summed=coded)

    @cache
    def buffers(gradients: float) -> float:
        return float(messages.update_buffers(work, gradients))

    samples = float(messages.step_samples(work))
    waiting = float(messages.awaited_table(work))

    def breakdowns() -> Iterator[MemoryBreakdown]:
        for rank, order in enumerate(schedule.places):
            own = whole(parameters[rank]) if by_rank is None else by_rank[rank]
            weights = own.weights + (frozen[rank] if by_rank is None else 0.0)
            under_way = transit(schedule)[rank]
            moving = sent * under_way.sent
            for source, awaited in under_way.awaited.items():
                ahead = messages.received_ahead(work, source, rank)
                moving = moving + slices * np.minimum(ahead, awaited)
            peak = fullest_moment(order, tables, moving)
            made = sum(held[chunk].made for chunk in plan.chunks_of(rank))
            present = own.gradients - made + min(made, peak.made)
            always = samples + waiting * ((rank == 0) != (rank == plan.last_rank)) + own.summed
            briefly = always + peak.briefly + peak.made - min(made, peak.made)
            update = own.gradients + buffers(own.gradients) - present - peak.activations - peak.gathered - own.kept
            breakdown = MemoryBreakdown(
                weights=weights,
                gradients=present,
                optimizer=own.optimizer,
                fetched=own.kept + peak.gathered,
                activations=peak.activations,
                buffers=max(briefly, update + always),
                slack=0.0,
            )
            yield breakdown._replace(slack=float(memory.slack(cluster, breakdown.total)))

    return held, breakdowns()


def _states_by_layer(model: ModelSpec, plan: Plan, work: Work) -> list[States]:
    """What one rank of each stage keeps, its layers and ends added up; the way back counts what is gathered."""
    units: list[list[States]] = [[] for _ in range(plan.pipeline)]
    known: dict[tuple[object, ...], States] = {}  # of many parts most are alike
    for part in parts_of(model, plan, work):
        if (key := part[1:]) not in known:
            known[key] = states(work, part.parameters, part.kind.memory, part.frozen)
        units[part.stage].append(known[key])
    return [States(*map(sum, zip(*own, strict=True)))._replace(unit=0.0, summed=0.0) for own in units]


class LeftBytes(NamedTuple):
    """Bytes that a microbatch leaves in each chunk: for its way back, and where that is taken in two, for the rest."""

    saved: tuple[float, ...]
    owed: tuple[float, ...]
