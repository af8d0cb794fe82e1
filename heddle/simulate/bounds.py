"""What a plan takes and holds at least: bounds that let a search leave out what cannot be the best.

Stages are as even as can be. Bytes are exact for one chunk per rank, and for interleaved chunks and groups of
microbatches that are all alike, unless gradients are made in their course (one replica in fp32); seconds are exact for
one stage. Everywhere else both are the longest of a few paths through the schedule, or the fullest of a few moments of
it: what is replayed action by action is never below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from heddle.cost import compute, memory
from heddle.cost import step as stage
from heddle.cost.step import LayerCost
from heddle.cost.work import Column, Work
from heddle.schedule import RULES
from heddle.schedule.interleaved import first_group
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
    """Several chunks per rank: a rank works through all of its own, after its first input came and before its last
    output has gone; before its first backward it also waits for the microbatch that goes down and back, twice as many
    forwards as there are ranks below it aside. And one group goes through everything, the last chunk taking all of it.
    """
    first, middle, last, total, embedding, send = parts
    p, m = work.pipeline, work.microbatches
    alike = work.selective * layer.again_selective + work.per_op * layer.again_per_op
    alike = alike + np.where(work.full >= 1, layer.again_full, 0.0)
    chunk = ranks.small * (layer.forward + layer.backward + alike) + send
    waits = np.maximum(chunk - 2 * (ranks.large * layer.forward + send + embedding), 0.0)
    pipe = np.maximum(m * last + (p - 1) * chunk, m * np.maximum(first, middle) + (p - 1) * waits)
    pipe = np.where(work.gpipe, m * np.maximum(np.maximum(first, last), middle), pipe)
    group = np.where(work.gpipe, 1, first_group(p, m))
    return np.maximum(pipe, total + (group - 1) * chunk)


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


class HeldBytes(NamedTuple):
    """Bytes of a microbatch: what it leaves in a layer, what the end of the model holds, what a stage sends on."""

    saved: memory.Saved
    ends: memory.Ends
    sent: Column


class Rank(NamedTuple):
    """A rank whose bytes are looked at."""

    number: Column
    layers: Column
    first: Column  # whether it holds the embedding
    last: Column  # whether it holds the output layer
    neighbours: Column
    exists: Column


class Briefly(NamedTuple):
    """Bytes that a layer holds for a moment on its way back. Where some of a rank's recompute, its first chunk's do."""

    first: Column
    others: Column


class Moment(NamedTuple):
    """What one rank holds at one moment of a step."""

    layers: Column  # of the rank
    always: Column  # bytes, all but what microbatches left in layers
    flights: Column  # layers × microbatches that it holds the activations of, at least
    likely: Column  # the same, as if its chunks were alike
    each: Column  # microbatches that it holds of one layer, at most


def peak_memory(work: Work, cluster: Cluster, ranks: Ranks, held: HeldBytes) -> tuple[Column, Column]:
    """Bytes of the fullest rank, and bytes that it holds at least: the same where a rank's chunks are alike."""
    saved, count = held.saved, recomputed(work)
    kept = (1 - work.selective - work.per_op) * saved.none
    kept = kept + work.selective * saved.selective + work.per_op * saved.per_op
    gain = saved.none - saved.full
    likely: Column = 0.0
    least: Column = 0.0
    briefly = Briefly(saved.moment(work), saved.moment(replace(work, full=np.where(work.full < 1, 0.0, work.full))))
    for moment in _moments(work, ranks, held, briefly):
        full = np.minimum(moment.layers, count)
        less = np.minimum(full * moment.each, moment.flights) * gain
        bytes_at_least = moment.always + moment.flights * kept - less
        least = np.maximum(least, bytes_at_least)
        if moment.likely is not moment.flights:
            share = full / np.maximum(moment.layers, 1)
            likely = np.maximum(likely, moment.always + moment.likely * (kept - share * gain))
    likely = np.maximum(likely, least)
    return likely + memory.slack(cluster, likely), least + memory.slack(cluster, least)


def fewest_recomputed(work: Work, cluster: Cluster, ranks: Ranks, held: HeldBytes, limit: float) -> Column:
    """Layers of each rank that must recompute everything at least so that a plan may fit: bytes fall with each."""
    saved = held.saved
    gain = saved.none - saved.full
    most: Column = 1.0
    for moment in _moments(work, ranks, held, Briefly(gain + saved.backward, saved.backward)):
        over = moment.always + moment.flights * saved.none - limit / (1 + cluster.efficiency.slack)
        most = np.maximum(most, np.ceil(over / (gain * np.maximum(moment.each, 1)) - 1e-9))
    return most


def made_by_backwards(work: Work) -> Column:
    """Whether gradients are not there before a step's first backwards make them: those of one replica in fp32."""
    return (work.data == 1) & (work.element == 4)


def _moments(work: Work, ranks: Ranks, held: HeldBytes, briefly: Briefly) -> Iterator[Moment]:
    """The moments of which one is the fullest of a step.

    It is on the first rank, on the second, which has one more neighbour, on the first of those with most layers, or on
    the last. There it is at the first backward, or before it when most messages are on their way; at the embedding's
    backward; when gradients are summed; or as soon as a chunk's gradients have been made.
    """
    p, v, alone, inner = work.pipeline, work.virtual, work.pipeline == 1, work.pipeline > 2
    end = np.where(alone, 0.0, 1.0 + ((v > 1) & inner))
    yield from _moments_of(Rank(0, ranks.first, True, alone, end, True), work, ranks, held, briefly)
    yield from _moments_of(Rank(p - 1, ranks.last, alone, True, end, ~alone), work, ranks, held, briefly)
    if np.any(inner):
        second = ranks.small + ((ranks.start <= 1) & (ranks.start + ranks.extra > 1))
        yield from _moments_of(Rank(1, second, False, False, 2, inner & (v == 1)), work, ranks, held, briefly)
        exists = inner & ((ranks.start > 0) | (v > 1))
        yield from _moments_of(Rank(ranks.start % p, ranks.most, False, False, 2, exists), work, ranks, held, briefly)


def _moments_of(rank: Rank, work: Work, ranks: Ranks, held: HeldBytes, briefly: Briefly) -> Iterator[Moment]:
    v, m, ends, sent = work.virtual, work.microbatches, held.ends, held.sent
    middle = rank.first is False and rank.last is False
    layer = memory.layer_parameters(work)
    parameters = rank.layers * layer + memory.end_parameters(work, rank.first, rank.last)
    weights, gradients, optimizer, gathered = memory.states(
        work, parameters, np.maximum(layer, work.padded_vocab * work.hidden)
    )
    base = weights + optimizer + gathered + memory.exchange_buffers(work, rank.neighbours)
    made = made_by_backwards(work)
    grows = memory.made_gradients(work, rank.layers * layer, rank.first, rank.last)
    present = np.where(made, gradients - grows, gradients)
    steady = memory.answered_messages(rank.neighbours, v > 1, m) * sent
    chunks = _chunks_of(rank, work, ranks, middle)

    def found(always: Column, flights: Column, likely: Column, each: Column) -> Moment:
        if rank.exists is True:
            return Moment(rank.layers, always, flights, likely, each)
        here = np.where(rank.exists, 1.0, 0.0)
        shown = flights * here
        return Moment(rank.layers, always * here, shown, shown if likely is flights else likely * here, each)

    def later(always: Column, stashed: Column) -> Moment:  # when so many chunks × microbatches are left
        each = np.where(v > 1, np.minimum(m, chunks.started), stashed)
        return found(always, stashed * chunks.small, stashed * chunks.mean, np.maximum(each, 1))

    moment = np.where(v > 1, briefly.others, briefly.first)

    def at_end(others: Column) -> Column:  # what the last chunk holds, if so many other microbatches are in it
        return np.where(rank.last, others * ends.left + memory.last_moment(work, ends, moment), moment)

    others = np.where(work.gpipe, m - 1, 0)
    going = chunks.sends * sent + np.where(rank.last, (others + 1) * ends.left, 0.0)
    at_first = base + present + np.maximum(steady + at_end(others), going)
    yield found(at_first, chunks.flights, chunks.likely, chunks.each)
    if np.any(work.gloo):
        yield found(base + gradients + memory.update_buffers(work, gradients), 0.0, 0.0, 1.0)
    table = memory.embedding_backward(work, 0.0)  # what it takes beside what other microbatches left
    table = table + np.where(rank.last, memory.last_moment(work, ends._replace(briefly=-ends.left), 0.0), 0.0)
    if rank.first is True:
        stashed = chunks.at((v - 1) * chunks.group + 1) - 1
        already = np.where(made, (v - 1) * ranks.small * layer * work.gradient_bytes, 0.0)
        always = base + present + already + steady + table + np.where(rank.last, others * ends.left, 0.0)
        yield later(always, stashed)
    if np.any((v > 1) & (work.full > 0) & (work.full < 1)):
        stashed = chunks.at((v - 1) * chunks.group + 1)
        always = base + present + steady + briefly.first
        yield later(always, stashed)
    if not np.any(made):
        return
    # one backward after the first of each chunk's: gradients come while activations go
    saved, some = held.saved, (work.full > 0) & (work.full < 1)
    one_layer = np.where(some, saved.none + saved.backward, saved.mean(work) + saved.moment(work))
    turning = (m * v - chunks.started - 1) / chunks.group
    for lap in (0, np.floor(turning), np.ceil(turning), v - 1):
        done = np.clip(lap, 0, v - 1)
        k = done * chunks.group + 2
        stashed = chunks.at(k)
        ends_made = np.where(rank.last, grows - rank.layers * layer * work.gradient_bytes, 0.0)
        grown = (done + 1) * ranks.small * layer * work.gradient_bytes + ends_made
        grown = present + np.where(done == v - 1, grows, grown)
        here = np.where((done == 0) & (m > 1), at_end(np.where(work.gpipe, m - 2, 0)), briefly.others)
        always = base + np.where(made, grown, 0.0) + steady + np.where(k <= m * v, here, 0.0)
        yield later(always, stashed)
        # and at the end of that first one
        stashed = chunks.at(k - 1) - 1
        lately = memory.last_layer(work, one_layer, (done == v - 1) & np.asarray(rank.first))
        always = base + np.where(made, grown, 0.0) + steady + lately
        always = always + np.where(rank.last & (work.gpipe > 0) & (done == 0), (m - 1) * ends.left, 0.0)
        yield later(always, stashed)
    if rank.first is True:
        stashed = chunks.at((v - 1) * chunks.group + 2) - 1
        always = base + gradients + steady + table + np.where(rank.last & (work.gpipe > 0), (m - 2) * ends.left, 0.0)
        always = np.where(m > 1, always, 0.0)
        stashed = np.maximum(stashed, 0)
        yield later(always, stashed)


class Chunks(NamedTuple):
    """The activations of a rank's chunks in the course of a step."""

    started: Column  # chunks × microbatches at the first backward
    group: Column  # microbatches that go through a chunk before the next one has its turn
    sends: Column  # messages that have been sent before the first answer
    flights: Column  # layers × microbatches at the first backward, at least
    likely: Column
    each: Column  # microbatches of one layer, at most
    small: Column  # layers of a chunk, at least
    mean: Column
    all_of_them: Column  # chunks × microbatches of a step

    def at(self, backward: Column) -> Column:
        """Chunks × microbatches before a backward; they count from 1."""
        return np.minimum(self.started, np.maximum(self.all_of_them - backward + 1, 0))


def _chunks_of(rank: Rank, work: Work, ranks: Ranks, middle: bool) -> Chunks:
    p, v, m = work.pipeline, work.virtual, work.microbatches
    # with one chunk per rank this is 1F1B's, too
    started: Column = RULES["interleaved"].in_flight(p, m, v, rank.number)
    for number, rule in enumerate(RULES.values()):
        if rule.name not in ("1f1b", "interleaved") and np.any(own := work.schedule == number):
            started = np.where(own, rule.in_flight(p, m, v, rank.number), started)
    group = np.where(work.gpipe, m, first_group(p, m))
    sends: Column = np.where(rank.last, (v - 1) * group, started - 1)
    each: Column = np.where(work.gpipe, m, np.minimum(started, m))
    flights: Column = rank.layers * each
    if not np.any(v > 1):
        return Chunks(started, group, sends, flights, flights, each, rank.layers, rank.layers, m)
    woven_flights: Column
    woven, mean = (v > 1) & (work.gpipe == 0), rank.layers / v
    small = np.where(v > 1, ranks.small, rank.layers)
    likely: Column = np.where(woven, started * mean, flights)
    if middle:  # which of them it is has not been looked for
        woven_flights = 0.0
        sends, likely = np.where(v > 1, 0.0, sends), np.where(woven, 0.0, likely)
    elif rank.first is True:
        # Whole groups of all its chunks but the last, and some more; if chunks differ, the last may be a smaller one.
        more, rest = rank.layers - v * ranks.small, started - (v - 1) * group
        several = started * ranks.small + np.maximum(more - 1, 0) * group + (more > 0) * np.clip(rest, 0, group)
        all_started = started >= m * v
        woven_flights = np.where(all_started, m * rank.layers, several)
        each = np.where(woven, np.where(all_started, m, np.maximum(group, rest)), each)
    else:
        woven_flights = started * ranks.small
        each = np.where(woven, group, each)
    flights = np.where(woven, woven_flights, flights)
    return Chunks(started, group, sends, flights, likely, each, small, mean, m * v)
