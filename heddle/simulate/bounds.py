"""What a plan takes and holds at least: bounds that let a search leave out what cannot be the best.

Stages are as even as can be. Bytes are exact for one chunk per rank, and for interleaved chunks and groups of
microbatches that are all alike; seconds are exact for one stage. Everywhere else both are the longest of a few paths
through the schedule, or the fullest of a few moments of it: what is replayed action by action is never below them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heddle.cost import compute, memory, stage
from heddle.cost.stage import LayerCost
from heddle.cost.work import Column, Work
from heddle.spec.cluster import Cluster


class Ranks(NamedTuple):
    """Layers of some ranks, and of chunks, when stages are as even as can be (`even_stages`)."""

    first: Column
    most: Column
    last: Column
    small: Column  # of a chunk that got no layer more
    extra: Column  # chunks that did
    start: Column  # the first of these

    @property
    def large(self) -> Column:
        """Layers of the largest chunk."""
        return self.small + (self.extra > 0)


def even_ranks(layers: Column, pipeline: Column, virtual: Column) -> Ranks:
    """`even_stages` gives the extra layers to the chunks in the middle: to as many ranks as there are, then again."""
    chunks = pipeline * virtual
    small = np.floor(layers / chunks)
    extra = layers - small * chunks
    start = np.floor((chunks - extra) / 2)
    most = small * virtual + np.ceil(extra / pipeline)
    # the first rank's chunks are those at 0, p, 2p, …, the last one's those at p-1, 2p-1, …
    on_first = np.ceil((start + extra) / pipeline) - np.ceil(start / pipeline)
    on_last = np.floor((start + extra) / pipeline) - np.floor(start / pipeline)
    return Ranks(small * virtual + on_first, most, small * virtual + on_last, small, extra, start)


def recomputed(work: Work) -> Column:
    """Layers of each rank that recompute everything, where a share of all does: each rank its first ones."""
    return np.where(work.full >= 1, np.inf, np.floor(work.full * work.layers / work.pipeline + 1e-9))


def least_seconds(
    work: Work, cluster: Cluster, ranks: Ranks, layer: LayerCost, embedding: Column, head: Column, send: Column
) -> Column:
    """Seconds that a step takes at least."""
    p, v, m = work.pipeline, work.virtual, work.microbatches
    alone = p == 1
    both, count = layer.forward + layer.backward, recomputed(work)
    alike = work.selective * layer.again_selective + work.per_op * layer.again_per_op

    def through(layers: Column) -> Column:  # so many layers of one rank, both ways
        return layers * (both + alike) + np.minimum(layers, count) * layer.again_full

    sends = 2 * send * v - send  # of a rank, at least: the ends send one way less
    first, last = through(ranks.first) + embedding + sends, through(ranks.last) + head + sends
    middle = through(ranks.most) + sends
    full = p * np.minimum(count, ranks.small * v)
    full = np.where(work.full >= 1, work.layers, full) * layer.again_full
    total = work.layers * (both + alike) + full + embedding + head + 2 * send * (p * v - 1)

    # 1F1B. A path goes once through everything, and stays on a rank for all but the microbatches that the rank starts
    # before its first backward; with its last forward it goes down to the last rank and back once more. On the last
    # rank, and where all are alike, that is (m + p - 1)·(f + b) of PTD-P §2.2.1.
    at = np.maximum(ranks.start + ranks.extra - 1, 0)  # the last of those that got a layer more
    below = (p - 1 - at) * (through(ranks.small) + 2 * send) + head - send
    pipe = total + (m - 1) * last
    pipe = np.maximum(pipe, np.where(m > p, 2 * total + (m - p - 1) * first, 0.0))
    pipe = np.maximum(pipe, np.where(m > p - at, total + (m - p + at) * middle + below, 0.0))
    if np.any(work.gpipe):  # all forwards go before all backwards, so the slowest rank delays both
        every = total + (m - 1) * np.maximum(np.maximum(first, last), middle)
        pipe = np.where(work.gpipe, every, pipe)
    if np.any(v > 1):
        pipe = np.where(v > 1, _interleaved(work, ranks, layer, (first, middle, last, total, embedding, send)), pipe)
    pipe = np.where(alone, m * total, pipe)

    pace = stage.pace(cluster, work.world)
    if cluster.cores:  # no core idles while anybody has work, and nobody is faster than with a core of its own
        pipe = np.maximum(pipe / stage.pace(cluster, work.world / p), m / p * total / pace)
    data, update = _tail(work, cluster, ranks, pipe, through(ranks.first), layer, (embedding, head, send))
    return stage.slowdown(cluster, work) * (pipe + (data + update) / pace)


def _interleaved(work: Work, ranks: Ranks, layer: LayerCost, parts: tuple[Column, ...]) -> Column:
    """Several chunks a rank: a rank works through all of its own, after its first input came and before its last output
    has gone; before its first backward it also waits for the microbatch that goes down and back, twice as many forwards
    as there are ranks below it aside. And one group goes through everything, the last chunk taking all of it in turn.
    """
    first, middle, last, total, embedding, send = parts
    p, m = work.pipeline, work.microbatches
    alike = work.selective * layer.again_selective + work.per_op * layer.again_per_op
    alike = alike + np.where(work.full >= 1, layer.again_full, 0.0)
    chunk = ranks.small * (layer.forward + layer.backward + alike) + send
    waits = np.maximum(chunk - 2 * (ranks.large * layer.forward + send + embedding), 0.0)
    pipe = np.maximum(m * last + (p - 1) * chunk, m * np.maximum(first, middle) + (p - 1) * waits)
    pipe = np.where(work.gpipe, m * np.maximum(np.maximum(first, last), middle), pipe)
    group = np.where(work.gpipe, 1, group_size(work))
    return np.maximum(pipe, total + (group - 1) * chunk)


def group_size(work: Work) -> Column:
    """Microbatches of the first group of the interleaved schedule (`heddle.schedule.interleaved`)."""
    m, p = work.microbatches, work.pipeline
    return np.where(m >= p, np.ceil(m / np.maximum(1, np.floor(m / p))), m)


def _tail(
    work: Work,
    cluster: Cluster,
    ranks: Ranks,
    pipe: Column,
    first: Column,
    layer: LayerCost,
    ends: tuple[Column, Column, Column],
) -> tuple[Column, Column]:
    """Seconds of the replicas' exchange that nothing hides, and of the optimizer, at least."""
    embedding, head, send = ends
    m, alone = work.microbatches, work.pipeline == 1
    parameters = most_parameters(work, ranks)
    each, once = stage.shard_exchange(cluster, work, parameters), stage.data_exchange(cluster, work, parameters)
    beside = first - ranks.first * layer.forward + embedding + np.where(alone, head, 0.0) + send * work.virtual
    data = m * (each - stage.hidden(cluster, each, pipe / m))
    data = data + once - work.data_overlap * stage.hidden(cluster, once, beside)
    shared = np.where(work.zero >= 1, work.data, 1)
    return data, compute.optimizer(cluster, parameters / shared, work.element)


def most_parameters(work: Work, ranks: Ranks) -> Column:
    """Parameters of the rank that holds most."""
    alone, each = work.pipeline == 1, memory.layer_parameters(work)
    first = ranks.first * each + memory.end_parameters(work, True, alone)
    last = ranks.last * each + memory.end_parameters(work, alone, True)
    return np.maximum(np.maximum(first, last), ranks.most * each)


class Held(NamedTuple):
    """What a microbatch leaves behind: in a layer, in the last chunk beside that; what is held for a moment."""

    saved: memory.Saved
    left: Column
    briefly: Column
    buffers: Column


class Rank(NamedTuple):
    """What one rank holds at its fullest, or at a moment close to that."""

    layers: Column
    always: Column  # bytes
    flights: Column  # layers × microbatches that it holds the activations of, at least
    likely: Column  # the same, as if its chunks were alike
    each: Column  # microbatches that it holds of one layer, at most


def peak_memory(work: Work, cluster: Cluster, ranks: Ranks, held: Held) -> tuple[Column, Column]:
    """Bytes of the fullest rank, and bytes that it holds at least: the same where a rank's chunks are alike.

    It is the first, the first of those with most layers, or the last.
    """
    saved, count = held.saved, recomputed(work)
    kept = (1 - work.selective - work.per_op) * saved.none
    kept = kept + work.selective * saved.selective + work.per_op * saved.per_op
    gain = saved.none - saved.full
    likely: Column = 0.0
    least: Column = 0.0
    for rank in _ranks(work, ranks, held, saved.moment(work)):
        full = np.minimum(rank.layers, count)
        less = np.minimum(full * rank.each, rank.flights) * gain
        least = np.maximum(least, rank.always + rank.flights * kept - less)
        if rank.likely is rank.flights:
            likely = np.maximum(likely, least)
            continue
        likely = np.maximum(likely, rank.always + rank.likely * (kept - full / rank.layers * gain))
    likely = np.maximum(likely, least)
    return likely + memory.slack(cluster, likely), least + memory.slack(cluster, least)


def fewest_recomputed(work: Work, cluster: Cluster, ranks: Ranks, held: Held, limit: float) -> Column:
    """Layers of each rank that must recompute everything at least so that a plan may fit: bytes fall with each."""
    gain = held.saved.none - held.saved.full
    most: Column = 1.0
    for rank in _ranks(work, ranks, held, gain):
        over = rank.always + rank.flights * held.saved.none - limit / (1 + cluster.efficiency.slack)
        most = np.maximum(most, np.ceil(over / (gain * rank.each) - 1e-9))
    return most


def _ranks(work: Work, ranks: Ranks, held: Held, moment: Column) -> tuple[Rank, Rank, Rank]:
    p, v, m = work.pipeline, work.virtual, work.microbatches
    alone = p == 1
    layer = memory.layer_parameters(work)
    largest = np.maximum(layer, work.padded_vocab * work.hidden)
    at_end = np.maximum(moment, held.briefly) + held.left * np.where(work.gpipe, m, 1)

    def always(layers: Column, first: Column, last: Column, beside: Column) -> Column:
        states = memory.states(work, layers * layer + memory.end_parameters(work, first, last), largest)
        return sum(states) + beside + held.buffers

    one = np.where(work.gpipe, m, np.minimum(p, m))  # of one chunk a rank
    below: Column = np.where(work.gpipe, m, np.minimum(p - ranks.start, m))
    at_last: Column = np.where(work.gpipe, m, 1)
    here: Column = ranks.first * one
    end: Column = ranks.last * at_last
    each: Column = one
    likely, likely_end = here, end
    if np.any(v > 1):
        # Forwards that the first rank has started before its first backward: whole groups of all its chunks but the
        # last, and some more; if its chunks differ, the last may be a smaller one.
        group, started, more = group_size(work), memory.in_flight(work), ranks.first - v * ranks.small
        rest = started - (v - 1) * group
        several = started * ranks.small + np.maximum(more - 1, 0) * group + (more > 0) * np.clip(rest, 0, group)
        all_started, woven = started >= m * v, (v > 1) & (work.gpipe == 0)
        here = np.where(woven, np.where(all_started, m * ranks.first, several), here)
        each = np.where(woven, np.where(all_started, m, np.maximum(group, rest)), each)
        started_last = np.minimum((v - 1) * group + 1, m * v)
        end = np.where(woven, started_last * ranks.small, end)
        at_last = np.where(woven, group, at_last)
        below = np.where(woven, 0.0, below)
        likely = np.where(woven, started / v * ranks.first, here)
        likely_end = np.where(woven, started_last / v * ranks.last, end)
    middle = ranks.most * below
    return (
        Rank(ranks.first, always(ranks.first, True, alone, np.where(alone, at_end, moment)), here, likely, each),
        Rank(ranks.most, always(ranks.most, False, False, moment), middle, middle, np.maximum(below, 1)),
        Rank(ranks.last, always(ranks.last, alone, True, at_end), end, likely_end, at_last),
    )
