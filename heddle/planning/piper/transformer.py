"""Piper's input for a transformer, from Heddle's own costs, and the plan file for Piper's answer.

The graph is a line: the embedding, the layers, the output layer. A published workload has one number for what replicas
synchronize and one bandwidth; here Adam's state, ZeRO-1, sequence parallelism and the hierarchy of links make the
costs of a stage depend on all its degrees, so each tensor and data degree has options of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, get_args

import numpy as np

from heddle.cost import adapters, compute, end_memory, memory, messages, network
from heddle.cost import step as stage
from heddle.cost.layers import recomputing
from heddle.cost.measured.local_machine import measured_machine
from heddle.cost.work import Work, work_of
from heddle.errors import HeddleError, divisors, nearest_number
from heddle.format import GIB
from heddle.graph.dag import Dag, Floats
from heddle.planning.piper.workload import LayerOptions, Tie, Workload
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.layer_memory import Recompute
from heddle.spec.model import ModelSpec

WORDS: tuple[Recompute, ...] = get_args(Recompute)


def model_workload(job: Job, devices: int | None = None, microbatch: int | None = None) -> Workload:
    """The layers of a job's model on its cluster, a stage of any degrees and options priced by `heddle.cost`.

    Args:
        job: its [plan], if it has one, says nothing but how many samples a microbatch has.
        devices: how many of the cluster's there are to plan for; all if left out.
        microbatch: samples of a microbatch.
    """
    cluster = measured_machine(job.cluster)
    devices = cluster.world if devices is None else devices
    if devices > cluster.world:
        raise HeddleError(
            f"Cluster '{cluster.name}' has {cluster.world} devices, not {devices}.",
            "The links beyond them are not described.",
            f"Set cluster.nodes = {-(-devices // cluster.devices)}, or plan for {cluster.world} devices.",
        )
    samples = (job.plan.microbatch if job.plan else 1) if microbatch is None else microbatch
    batch = job.train.global_batch
    if samples < 1 or batch % samples:
        near = nearest_number(samples, divisors(batch))
        raise HeddleError(
            f"global_batch = {batch} is not divisible by a microbatch of {samples}.",
            "A step is a whole number of microbatches.",
            f"Use --microbatch {near}.",
        )
    model = job.model
    work = work_of(job, cluster, {"microbatch": samples})
    nodes = model.layers + 2
    workload = Workload(
        graph=Dag.from_edges(nodes, [(v, v + 1) for v in range(nodes - 1)]),
        layers=["embedding", *range(model.layers), "head"],
        names=["the embedding", *(f"layer {v}" for v in range(model.layers)), "the output layer"],
        degrees=list(_degrees(cluster, model, work, max(devices, 1))),
        devices=devices,
        memory=cluster.device.memory_gib * GIB,
        bandwidth=1.0,  # links differ: messages are given in seconds
        microbatches=batch // samples,
        core=np.array([False, *[True] * model.layers, False]),
    )
    return workload.replace()  # which refuses what leaves nothing to plan


def tensor_degrees(cluster: Cluster, model: ModelSpec, devices: int) -> list[int]:
    """Degrees that split heads and MLP evenly, and that tile a node or are tiled by nodes."""
    node = cluster.devices
    return [t for t in model.tensor_degrees if t <= devices and (node % t == 0 or t % node == 0)]


def _degrees(cluster: Cluster, model: ModelSpec, work: Work, devices: int) -> Iterator[LayerOptions]:
    """The options of every pair of degrees, ascending; how else a stage works where it may be of use."""
    microbatches = int(work.batch / work.microbatch)
    for t in tensor_degrees(cluster, model, devices):
        for d in divisors(microbatches, devices // t):
            # `pipeline` only tells how far stages lie apart
            spread = replace(work, tensor=t, data=d, pipeline=devices / (t * d))
            offered = [
                _variants(cluster, model, replace(spread, sequence_parallel=sequence, zero=zero))
                for sequence in ((0, 1) if t > 1 and work.sequence % t == 0 else (0,))
                for zero in ((0, 1) if d > 1 else (0,))
            ]
            for number, one in enumerate(offered):
                others = [(place, other) for place, other in enumerate(offered) if place != number]
                if not any(_dominates(other[-1], one[-1], strictly=place > number) for place, other in others):
                    yield from one


def _dominates(one: LayerOptions, other: LayerOptions, strictly: bool) -> bool:
    """Whether the first is nowhere slower or larger; if it must be better, somewhere."""
    assert one.peaks is not None
    assert other.peaks is not None
    pairs = [
        (one.seconds, other.seconds),
        (one.stashed, other.stashed),
        (one.fixed, other.fixed),
        (one.peaks, other.peaks),
        (one.receive + one.start, other.receive + other.start),
    ]
    better = any(bool((a < b).any()) for a, b in pairs)
    return all(bool((a <= b).all()) for a, b in pairs) and (better or not strictly)


def _variants(cluster: Cluster, model: ModelSpec, work: Work) -> list[LayerOptions]:
    """Options without recomputation, with selective, and so on up to full: what a layer holds for a moment differs."""
    t, d, layers = int(work.tensor), int(work.data), int(work.layers)
    ends = [(float(f), float(b)) for f, b in (compute.embedding(cluster, work), compute.head(cluster, work))]
    begins, finishes = (float(memory.end_parameters(work, first, not first)) for first in (True, False))
    shared = begins + finishes - float(memory.end_parameters(work, True, True))  # a tied embedding, once
    held = _ends_held(cluster, work, begins, finishes, shared)
    a_step = d * float(work.microbatch) / float(work.batch)  # what is done once per step, for each of a stage's d·time
    start = float(stage.exposed_exchange(cluster, work, 0.0, 0.0))

    def once(parameters: float, backward: float) -> float:
        return _once_per_step(cluster, work, parameters, backward, start)

    def seconds(forward: float, backward: float, parameters: float) -> float:
        return forward + backward + a_step * once(parameters, backward)

    spared = once(finishes, ends[1][1]) - once(finishes - shared, ends[1][1])
    tie = Tie((0, layers + 1), a_step * spared, held.shared)
    message = np.full(layers + 1, float(network.between_stages(cluster, work)))
    shapes = [_of_a_layer(cluster, one, seconds) for _, one in work.each_shape]

    def rows(name: str, first: float, count: int, last: float) -> Floats:  # an option in each column
        each = np.array([getattr(shapes[place], name)[:count] for place in model.shape_of])
        return _rows(first, each, last)

    found = []
    for count in range(1, len(WORDS) + 1):
        peaks = [max(shapes[place].peak[:count]) for place in model.shape_of]
        found.append(
            LayerOptions(
                tensor=t,
                names=[["none"], *[[str(word) for word in WORDS[:count]]] * layers, ["none"]],
                seconds=rows("seconds", seconds(*ends[0], begins), count, seconds(*ends[1], finishes)),
                parameters=np.zeros((layers + 2, count)),
                stashed=rows("saved", 0.0, count, 0.0),
                fixed=rows("fixed", held.begins, count, held.finishes),
                receive=message,
                send=message,
                data=(d,),
                how=", ".join(["sequence"] * int(work.sequence_parallel) + [f"zero {work.zero}"] * bool(work.zero)),
                peaks=held.buffers + np.array([held.embedding, *peaks, held.loss]),
                start=a_step * start,
                tie=tie if shared else None,
            )
        )
    return found


class _LayerOptions(NamedTuple):
    """One layer under each of WORDS: seconds per microbatch, bytes that it keeps, always holds, holds for a moment."""

    seconds: list[float]
    saved: list[float]
    fixed: list[float]
    peak: list[float]


def _of_a_layer(cluster: Cluster, work: Work, seconds: Callable[[float, float, float], float]) -> _LayerOptions:
    """Of a layer of one shape."""
    price, kept = stage.layer_cost(cluster, work), memory.layer_activations(work)
    own, forward, backward = float(memory.layer_parameters(work)), float(price.forward), float(price.backward)
    again = [float(price.again(word)) for word in WORDS]
    saved = [float(kept.by_word[word]) for word in WORDS]
    scale = 1 + float(memory.slack(cluster, 1.0))
    frozen = float(adapters.held(work, adapters.frozen_layer(work)))
    return _LayerOptions(
        [seconds(forward, backward + more, own) for more in again],
        [scale * size for size in saved],
        [scale * (_states(work, own) + frozen - min(size, _made_in_turn(work, own))) for size in saved],
        [scale * float(kept.moment(recomputing(work, word))) for word in WORDS],
    )


class _EndsHeld(NamedTuple):
    """Bytes of the two ends of the line, and of what every stage holds."""

    begins: float  # held anyway by the embedding, and by the output layer
    finishes: float
    loss: float  # for a moment, as is what the embedding's backward takes
    embedding: float
    buffers: float  # of messages, in every stage
    shared: float  # of what a stage that has both ends of a tied embedding holds once


def _ends_held(cluster: Cluster, work: Work, begins: float, finishes: float, shared: float) -> _EndsHeld:
    """What the ends hold, given their parameters."""
    scale = 1 + float(memory.slack(cluster, 1.0))
    output = end_memory.end_activations(work)
    # Messages that are awaited, and one that was sent, for two neighbors; the ends of the line have one less each.
    none, one = (float(messages.exchange_buffers(work, neighbors)) for neighbors in (0, 1))
    neighbor = one - none + float(messages.sent_message(work))
    frozen = [float(adapters.held(work, adapters.frozen_end(work, first, not first))) for first in (True, False)]
    waits = float(work.tied * output.table)  # a tied embedding's gradient, where one stage has both ends
    # A stage has a layer at least, and what that left is gone when the embedding goes back.
    last = end_memory.embedding_backward(replace(work, pipeline=1), float(memory.layer_activations(work).full))
    return _EndsHeld(
        begins=scale * max(0.0, _states(work, begins) + frozen[0] - neighbor),
        finishes=scale * max(0.0, _states(work, finishes) + frozen[1] - neighbor),
        # What it left is gone when layers go back, and its stage, the last one, has one microbatch in flight. Its
        # gradients, which are no others', are then still to be made.
        loss=scale * max(0.0, float(output.left + output.briefly) - _made_in_turn(work, finishes - shared)),
        embedding=scale * max(0.0, float(last) - _made_in_turn(work, begins)),
        buffers=scale * (none + 2 * neighbor),
        shared=scale * (_states(work, shared) - waits),
    )


def _states(work: Work, parameters: float) -> float:
    """Weights, gradients and optimizer."""
    return float(sum(memory.states(work, parameters, 0.0)))


def _made_in_turn(work: Work, parameters: float) -> float:
    """Gradients that are made while what was saved is let go of: the larger of the two is what counts.

    One replica in fp32 makes its gradients in a step's first backward; where that is the only one, layer by layer.
    """
    return (
        parameters
        * float(work.gradient_bytes)
        * (work.data == 1 and work.element == 4 and work.batch == work.microbatch)
    )


def _once_per_step(cluster: Cluster, work: Work, parameters: float, backward: float, start: float) -> float:
    """Seconds per step: what of the replicas' exchange the backward does not hide, and the optimizer.

    `start`: what the exchange of nothing takes, which a stage pays once for all its layers.
    """
    exchange = float(stage.exposed_exchange(cluster, work, parameters, backward)) - start
    updated = parameters / int(work.data) if work.zero else parameters
    return exchange + float(compute.optimizer(cluster, work, updated))


def _rows(first: float, each: Floats, last: float) -> Floats:
    """(layers, options) where the two ends have one option, and the others are never to be taken."""
    ends = np.full((2, each.shape[1]), np.inf)
    ends[:, 0] = first, last
    return np.concatenate([ends[:1], each, ends[1:]])
