"""Seconds that a step takes at least: bounds that let a search leave out what cannot be the best.

Stages are as even as can be. They are exact for one stage, and elsewhere the longest of a few paths through the
schedule: what is replayed action by action is never below them. Bytes are in `heddle.simulate.memory_bounds`.
"""

from __future__ import annotations

import numpy as np

from heddle.cost import compute, memory
from heddle.cost import step as stage
from heddle.cost.network import hidden
from heddle.cost.step import LayerCost
from heddle.cost.work import Column, Work
from heddle.schedule.interleaved import first_group
from heddle.simulate.even_ranks import Ranks, in_flight, recomputed
from heddle.simulate.layer_range import Among
from heddle.simulate.split_bounds import least_split_seconds
from heddle.spec.cluster import Cluster


def least_seconds(
    work: Work,
    smallest: Work,
    cluster: Cluster,
    ranks: Ranks,
    layers: Among[LayerCost],
    ends: tuple[Column, Column, Column],
    slowest: Column,
) -> Column:
    """Seconds that a step takes at least.

    Where layers differ, it is not known which are on which rank: a rank's own are as quick, and as small, as any that
    follow each other, and all together take what they take. `ends`: seconds of the embedding, the head, and a message;
    `slowest`: of one microbatch in the layers of the slowest rank, where layers differ.
    """
    embedding, head, send = ends
    p, v, m, alone = work.pipeline, work.virtual, work.microbatches, work.pipeline == 1
    layer, count = layers.least, recomputed(work)

    def both(each: LayerCost) -> Column:  # ways through a layer, without what only some recompute
        again = work.selective * each.again_selective + work.per_op * each.again_per_op
        return each.forward + each.backward + again

    def through(number: Column, each: LayerCost = layer) -> Column:  # so many layers of one rank, both ways
        return number * both(each) + np.minimum(number, count) * each.again_full

    sends = 2 * send * v - send  # of a rank, at least: the ends send one way less
    first, last = through(ranks.first) + embedding + sends, through(ranks.last) + head + sends
    middle = through(ranks.most) + sends
    full = p * np.minimum(count, ranks.small * v) * layer.again_full
    full = np.where(work.full >= 1, work.layers * layers.mean.again_full, full)
    total = work.layers * both(layers.mean) + full + embedding + head + 2 * send * (p * v - 1 - work.folded)

    # 1F1B. A path goes once through everything, and stays on a rank for all but the microbatches that the rank starts
    # before its first backward; with its last forward it goes down to the last rank and back once more. On the last
    # rank, and where all are alike, that is (m + p - 1)·(f + b) of PTD-P §2.2.1.
    at = np.maximum(ranks.start + ranks.extra - 1, 0)  # the last of those that got a layer more
    ahead, ahead_at = in_flight(work, 0, usual=p), in_flight(work, at, usual=p - at)
    below = (p - 1 - at) * (through(ranks.small) + 2 * send) + head - send
    pipe = total + (m - 1) * last
    pipe = np.maximum(pipe, np.where(m > ahead, 2 * total + (m - ahead - 1) * first, 0.0))
    pipe = np.maximum(pipe, np.where(m > ahead_at, total + (m - ahead_at) * middle + below, 0.0))
    if np.any(work.gpipe):  # all forwards go before all backwards, so the slowest rank delays both
        pipe = np.where(work.gpipe, total + (m - 1) * np.maximum(np.maximum(first, last), middle), pipe)
    if np.any(v > 1):
        pipe = np.where(v > 1, _interleaved(work, ranks, layers, (first, middle, last, total, embedding, send)), pipe)
    if np.any(work.splits):
        pipe = np.where(work.splits, least_split_seconds(work, ranks, layers, ends, total), pipe)
    pipe = np.where(alone, m * total, pipe)
    if work.shapes:  # the rank that has the slower layers works through all of them
        pipe = np.maximum(pipe, np.maximum(m / p * total, m * (slowest + np.where(alone, 0.0, sends))))

    pace = stage.pace(cluster, work.world)
    if cluster.cores:  # no core idles while anybody has work, and nobody is faster than with a core of its own
        pipe = np.maximum(pipe / stage.pace(cluster, work.world / p), m / p * total / pace)
    slow, mean = (through(ranks.first, each) - ranks.first * each.forward for each in (layers.most, layers.mean))
    backward = np.where(alone & ((work.full == 0) | (work.full >= 1)), mean, slow)
    parameters = most_parameters(work, smallest, ranks)
    data, update = _tail(work, cluster, pipe, (parameters, backward), ends)
    return stage.slowdown(cluster, work) * (pipe + (data + update) / pace)


def _interleaved(work: Work, ranks: Ranks, layers: Among[LayerCost], parts: tuple[Column, ...]) -> Column:
    """Several chunks per rank: a rank works through all of its own, after its first input came and before its last
    output has gone; before its first backward it also waits for the microbatch that goes down and back, twice as many
    forwards as there are ranks below it aside. And one group goes through everything, the last chunk taking all of it.
    """
    first, middle, last, total, embedding, send = parts
    p, m, layer = work.pipeline, work.microbatches, layers.least
    alike = work.selective * layer.again_selective + work.per_op * layer.again_per_op
    alike = alike + np.where(work.full >= 1, layer.again_full, 0.0)
    chunk = ranks.small * (layer.forward + layer.backward + alike) + send
    waits = np.maximum(chunk - 2 * (ranks.large * layers.most.forward + send + embedding), 0.0)
    pipe = np.maximum(m * last + (p - 1) * chunk, m * np.maximum(first, middle) + (p - 1) * waits)
    pipe = np.where(work.gpipe, m * np.maximum(np.maximum(first, last), middle), pipe)
    group = np.where(work.gpipe, 1, first_group(p, m))
    return np.maximum(pipe, total + (group - 1) * chunk)


def _tail(
    work: Work,
    cluster: Cluster,
    pipe: Column,
    first: tuple[Column, Column],
    ends: tuple[Column, Column, Column],
) -> tuple[Column, Column]:
    """Seconds of the replicas' exchange that nothing hides, and of the optimizer, at least.

    `first`: parameters of the rank that holds most, and seconds of the backward of the first rank's layers.
    """
    parameters, backward = first
    embedding, head, send = ends
    m, alone = work.microbatches, work.pipeline == 1
    each = stage.shard_exchange(cluster, work, parameters)
    beside = backward + embedding + np.where(alone | work.folded, head, 0.0) + send * work.virtual
    data = m * (each - hidden(cluster, each, pipe / m))
    data = data + stage.exposed_exchange(cluster, work, parameters, beside)
    shared = np.where(work.zero >= 1, work.replicas, 1)
    return data, compute.optimizer(cluster, parameters / shared, work.element)


def most_parameters(work: Work, smallest: Work, ranks: Ranks) -> Column:
    """Parameters of the rank that holds most; where layers differ, at least."""
    alone, each = work.pipeline == 1, memory.layer_parameters(smallest)
    first = ranks.first * each + memory.end_parameters(work, True, alone | work.folded)
    last = ranks.last * each + memory.end_parameters(work, alone, ~np.asarray(work.folded))
    most = np.maximum(np.maximum(first, last), ranks.most * each)
    if not work.shapes:
        return most
    whole = work.layers * memory.layer_parameters(work) + memory.end_parameters(work, True, True)
    return np.maximum(most, whole / work.pipeline)
