"""Seconds that a step takes at least: bounds that let a search leave out what cannot be the best.

Stages are as even as can be. They are exact for one stage, and elsewhere the longest of a few paths through the
schedule: what is replayed action by action is never below them. Bytes are in `heddle.simulating.memory_bounds`. For
schedules that take backwards in two there is an estimate, too.
"""

from __future__ import annotations

import numpy as np

from heddle.cost import adapters, compute, memory
from heddle.cost import step as stage
from heddle.cost.network import hidden
from heddle.cost.step import LayerCost, Split
from heddle.cost.work import Work
from heddle.schedule import RULES
from heddle.schedule.rule import Column
from heddle.simulating.among import Among
from heddle.simulating.orders import Orders, Ranks, recomputed
from heddle.spec.cluster import Cluster


def least_seconds(
    work: Work,
    smallest: Work,
    cluster: Cluster,
    orders: Orders,
    split: Split,
    layers: Among[LayerCost[Column]],
    ends: tuple[Column, Column, Column],
    slowest: Column,
    count: Column,
) -> Column:
    """Seconds that a step takes at least.

    Where layers differ, it is not known which are on which rank: a rank's own are as quick, and as small, as any that
    follow each other, and all together take what they take. `ends`: seconds of the embedding, the head, and a message;
    `slowest`: of one microbatch in the layers of the slowest rank, where layers differ; `count`: layers of each rank
    that recompute everything.
    """
    embedding, head, send = ends
    p, v, m, alone = work.pipeline, work.virtual, work.microbatches, work.pipeline == 1
    ranks, layer = orders.ranks, layers.least
    # ways through a layer, without what only some recompute
    both = layers.map(lambda each: each.forward + each.backward + stage.partly_recomputed(work, each))

    def through(number: Column) -> Column:  # so many layers of one rank, both ways
        return number * both.least + np.minimum(number, count) * layer.again_full

    sends = 2 * send * v - send  # of a rank, at least: the ends send one way less
    first, last = through(ranks.first) + embedding + sends, through(ranks.last) + head + sends
    middle = through(ranks.most) + sends
    full = p * np.minimum(count, ranks.small * v) * layer.again_full
    full = np.where(work.full >= 1, work.layers * layers.mean.again_full, full)
    total = work.layers * both.mean + full + embedding + head + 2 * send * (p * v - 1 - work.folded)

    # 1F1B. A path goes once through everything, and stays on a rank for all but the microbatches that the rank starts
    # before its first backward; with its last forward it goes down to the last rank and back once more. On the last
    # rank, and where all are alike, that is (m + p - 1)·(f + b) of PTD-P §2.2.1.
    at, ahead, ahead_at = orders.at, orders.ahead, orders.ahead_at
    below = (p - 1 - at) * (through(ranks.small) + 2 * send) + head - send
    pipe = total + (m - 1) * last
    pipe = np.maximum(pipe, np.where(m > ahead, 2 * total + (m - ahead - 1) * first, 0.0))
    pipe = np.maximum(pipe, np.where(m > ahead_at, total + (m - ahead_at) * middle + below, 0.0))
    if np.any(work.gpipe):  # all forwards go before all backwards, so the slowest rank delays both
        pipe = np.where(work.gpipe, total + (m - 1) * np.maximum(np.maximum(first, last), middle), pipe)
    if np.any(v > 1):
        pipe = np.where(v > 1, _interleaved(work, orders, layers, (first, middle, last, total, embedding, send)), pipe)
    if np.any(work.splits):
        pipe = np.where(work.splits, least_split_seconds(work, ranks, layers, ends, total), pipe)
    pipe = np.where(alone, m * total, pipe)
    if work.shapes:  # the rank that has the slower layers works through all of them
        pipe = np.maximum(pipe, np.maximum(m / p * total, m * (slowest + np.where(alone, 0.0, sends))))

    pace = stage.pace(cluster, work.world)
    if cluster.cores:  # no core idles while anybody has work, and nobody is faster than with a core of its own
        pipe = np.maximum(pipe / stage.pace(cluster, work.world / p), m / p * total / pace)
    backward = _first_backward(work, ranks, layers, both, count)
    data, update = _tail(work, cluster, split, pipe, (most_parameters(work, smallest, ranks, split), backward), ends)
    return split.slowdown * (pipe + (data + update) / pace)


def _interleaved(work: Work, orders: Orders, layers: Among[LayerCost[Column]], parts: tuple[Column, ...]) -> Column:
    """Several chunks per rank: a rank works through all of its own, after its first input came and before its last
    output has gone; before its first backward it also waits for the microbatch that goes down and back, twice as many
    forwards as there are ranks below it aside. And one group goes through everything, the last chunk taking all of it.
    """
    first, middle, last, total, embedding, send = parts
    p, m, ranks, layer = work.pipeline, work.microbatches, orders.ranks, layers.least
    alike = stage.partly_recomputed(work, layer) + np.where(work.full >= 1, layer.again_full, 0.0)
    chunk = ranks.small * (layer.forward + layer.backward + alike) + send
    waits = np.maximum(chunk - 2 * (ranks.large * layers.most.forward + send + embedding), 0.0)
    pipe = np.maximum(m * last + (p - 1) * chunk, m * np.maximum(first, middle) + (p - 1) * waits)
    several = np.maximum(pipe, total + (orders.group - 1) * chunk)
    if not np.any(work.gpipe):
        return several
    return np.where(work.gpipe, np.maximum(m * np.maximum(np.maximum(first, last), middle), total), several)


def _first_backward(
    work: Work, ranks: Ranks, layers: Among[LayerCost[Column]], both: Among[Column], count: Column
) -> Column:
    """Seconds of the backward of the first rank's layers, at most; `both`: of both ways through one, `count`: layers of
    each rank that recompute everything.
    """
    again = layers.map(lambda each: np.minimum(ranks.first, count) * each.again_full)
    slow = ranks.first * (both.most - layers.most.forward) + again.most
    if not work.shapes:
        return slow
    mean = ranks.first * (both.mean - layers.mean.forward) + again.mean
    return np.where((work.pipeline == 1) & ((work.full == 0) | (work.full >= 1)), mean, slow)


def _tail(
    work: Work,
    cluster: Cluster,
    split: Split,
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
    beside = backward + embedding + np.where(alone | work.folded, head, 0.0) + send * work.virtual
    data = stage.exposed_exchange(cluster, work, parameters, beside, split.exchange)
    if np.any(work.zero >= 2):
        each = stage.shard_exchange(cluster, work, parameters, least_frozen(work))
        data = data + m * (each - hidden(cluster, each, pipe / m))
    return data, compute.optimizer(cluster, work, parameters / split.sharing)


def least_frozen(work: Work) -> Column:
    """Bytes of weights that nobody updates, on the rank that has most of them: at least the mean of all."""
    if not np.any(work.frozen):
        return 0.0
    layers = work.layers * adapters.frozen_layer(work)
    return (layers + adapters.frozen_end(work, True, True)) / work.pipeline


def most_parameters(work: Work, smallest: Work, ranks: Ranks, split: Split) -> Column:
    """Parameters of the rank that holds most; where layers differ, at least."""
    each, first, last = memory.layer_parameters(smallest), split.first_end, split.last_end
    if np.any(work.folded):  # the first rank has both ends
        alone = work.pipeline == 1
        first = np.where(work.folded, memory.end_parameters(work, True, True), first)
        last = np.where(work.folded, memory.end_parameters(work, alone, False), last)
    most = np.maximum(np.maximum(ranks.first * each + first, ranks.last * each + last), ranks.most * each)
    if not work.shapes:
        return most
    whole = work.layers * memory.layer_parameters(work) + memory.end_parameters(work, True, True)
    return np.maximum(most, whole / work.pipeline)


def split_seconds(
    work: Work, ranks: Ranks, layer: LayerCost[Column], embedding: Column, head: Column, send: Column
) -> Column:
    """A step, about: the slowest rank's work, and what a schedule leaves idle where all stages are alike.

    (p-1)(F+B-W) for ZB-H1 (arXiv 2401.10241 Table 2), the last rank's late start for the others.
    """
    p, v, m = work.pipeline, work.virtual, work.microbatches
    soon = layer.backward + stage.recompute_seconds(work, layer) - layer.weight
    one = layer.forward + soon + layer.weight
    first = ranks.first * one + embedding + np.where(work.folded, head, 0.0)
    last = ranks.last * one + np.where(work.folded, 0.0, head)
    slowest = np.maximum(np.maximum(first, last), ranks.most * one) + 2 * send * v
    waits = work.has(lambda rule: rule.waits_for_input)
    idle = work.layers / p / v * np.where(waits, layer.forward + soon - layer.weight, layer.forward) + send
    return m * slowest + (p - 1) * idle


def least_split_seconds(
    work: Work, ranks: Ranks, layers: Among[LayerCost[Column]], ends: tuple[Column, Column, Column], total: Column
) -> Column:
    """The longest of a few paths; `ends`: of the embedding, the head, and a message, `total`: of a microbatch in all.

    A rank has all its work to do, once the first microbatch has come down to it. The first rank has but as many
    forwards to do as it starts before its first backward, which then has come down all ranks and up again.
    """
    embedding, head, send = ends
    p, v, m, layer = work.pipeline, work.virtual, work.microbatches, layers.least
    alike = stage.partly_recomputed(work, layer)
    both, count = layer.forward + layer.backward + alike, recomputed(work)

    def through(number: Column) -> Column:  # so many layers of one rank, both ways
        return number * both + np.minimum(number, count) * layer.again_full

    sends = 2 * send * (v - np.where(work.folded, 0.5, 0.0)) - send  # of a rank, at least
    first = through(ranks.first) + embedding + np.where(work.folded, head, 0.0) + sends
    last = through(ranks.last) + np.where(work.folded, 0.0, head) + sends
    down = ranks.small * layer.forward + send
    mean = m * total / p + (p - 1) / 2 * down
    late = (p - 1) * down + m * last
    most = m * (through(ranks.most) + sends)
    started: Column = np.inf
    for number, rule in enumerate(RULES.values()):
        if rule.started is not None:
            started = np.where(work.schedule == number, rule.started(p, m, v, 0), started)
    soon = layer.backward + alike - np.minimum(layers.most.weight, layer.backward)
    there_and_back = work.layers * layer.forward + (work.layers - ranks.first) * soon + head + 2 * send * (p - 1)
    own = ranks.first * layers.most.forward + embedding + send
    idle = there_and_back - np.where(np.isinf(started), 0.0, started) * own
    waits = m * first + np.where(np.isinf(started), 0.0, np.maximum(idle, 0.0))
    return np.maximum(np.maximum(mean, late), np.maximum(most, waits))
