"""What a plan holds at least: bounds that let a search leave out what cannot fit.

Stages are as even as can be. Bytes are exact for one chunk per rank, and for interleaved chunks and groups of
microbatches that are all alike, unless gradients are made in their course (one replica in fp32). Everywhere else they
are the fullest of a few moments of the schedule: what is replayed action by action is never below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from heddle.cost import memory
from heddle.cost.offload import gathered_at_least, sharded_by_layer
from heddle.cost.work import Column, Work
from heddle.schedule import RULES
from heddle.schedule.interleaved import first_group
from heddle.simulate.even_ranks import Ranks, in_flight, recomputed
from heddle.spec.cluster import Cluster


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
    if np.any(work.folded):
        folded = _in_a_v(work, ranks, held, kept, count * gain)
        likely, least = np.where(work.folded, folded, likely), np.where(work.folded, folded, least)
    return likely + memory.slack(cluster, likely), least + memory.slack(cluster, least)


def fewest_recomputed(
    work: Work, cluster: Cluster, ranks: Ranks, held: HeldBytes, most_held: HeldBytes, limit: float
) -> Column:
    """Layers of each rank that must recompute everything at least so that a plan may fit: bytes fall with each.

    Where layers differ, all hold as little as the smallest, and one that recomputes spares as much as the largest.
    """
    saved, gain = held.saved, most_held.saved.none - most_held.saved.full
    most: Column = 1.0
    for moment in _moments(work, ranks, held, Briefly(saved.none - saved.full + saved.backward, saved.backward)):
        over = moment.always + moment.flights * saved.none - limit / (1 + cluster.efficiency.slack)
        most = np.maximum(most, np.ceil(over / (gain * moment.each) - 1e-9))
    return np.where(work.folded, 1.0, most)


def _in_a_v(work: Work, ranks: Ranks, held: HeldBytes, kept: Column, less: Column) -> Column:
    """The first rank of a V at its first backward, which is of its last chunk: at least.

    By then it has taken two microbatches of its first chunk for each rank, less one, and one of its last chunk. `less`:
    bytes that the rank's recomputing layers do not keep of a microbatch.
    """
    layer = memory.layer_parameters(work)
    parameters = ranks.first * layer + memory.end_parameters(work, True, True)
    weights, gradients, optimizer, gathered = memory.states(
        work, parameters, np.maximum(layer, work.padded_vocab * work.hidden)
    )
    always = weights + optimizer + gathered + np.where(made_by_backwards(work), 0.0, gradients)
    started = np.minimum(2 * work.pipeline - 1, work.microbatches) + 1
    gain = held.saved.none - held.saved.full
    chunk = ranks.small * kept - np.minimum(less, ranks.small * gain)
    return always + started * chunk + held.ends.left


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


class RankBytes(NamedTuple):
    """A rank, and what it holds at every moment of a step."""

    rank: Rank
    work: Work
    ranks: Ranks
    held: HeldBytes
    briefly: Briefly
    chunks: Chunks
    base: Column  # weights, optimizer, gathered parameters, messages that are awaited
    gradients: Column  # at the end of the step
    grows: Column  # of these, what the first backwards make
    present: Column  # of these, what was there before
    steady: Column  # messages that were sent and not yet used

    def moment(self, always: Column, flights: Column, likely: Column, each: Column) -> Moment:
        """That moment, of which nothing is to be seen where there is no such rank."""
        if self.rank.exists is True:
            return Moment(self.rank.layers, always, flights, likely, each)
        here = np.where(self.rank.exists, 1.0, 0.0)
        shown = flights * here
        likely = shown if likely is flights else likely * here
        return Moment(self.rank.layers, always * here, shown, likely, np.where(self.rank.exists, each, 1.0))

    def later(self, always: Column, stashed: Column) -> Moment:
        """A moment when so many chunks × microbatches are left."""
        each = np.where(self.work.virtual > 1, np.minimum(self.work.microbatches, self.chunks.started), stashed)
        return self.moment(always, stashed * self.chunks.small, stashed * self.chunks.mean, np.maximum(each, 1))

    def at_end(self, others: Column) -> Column:
        """What the last chunk holds, if so many other microbatches are in it."""
        ends, moment = self.held.ends, np.where(self.work.virtual > 1, self.briefly.others, self.briefly.first)
        return np.where(self.rank.last, others * ends.left + memory.last_moment(self.work, ends, moment), moment)

    def embedding_backward(self) -> Column:
        """What the embedding's backward takes beside what other microbatches left."""
        table, ends = memory.embedding_backward(self.work, 0.0), self.held.ends
        last = memory.last_moment(self.work, ends._replace(briefly=-ends.left), 0.0)
        return table + np.where(self.rank.last, last, 0.0)


def _moments_of(rank: Rank, work: Work, ranks: Ranks, held: HeldBytes, briefly: Briefly) -> Iterator[Moment]:
    layer = memory.layer_parameters(work)
    parameters = rank.layers * layer + memory.end_parameters(work, rank.first, rank.last)
    weights, gradients, optimizer, gathered = memory.states(
        work, parameters, np.maximum(layer, work.padded_vocab * work.hidden)
    )
    if np.any(sharded := sharded_by_layer(work)):
        end = memory.end_parameters(work, rank.first, rank.last)
        always, moment = gathered_at_least(work, rank.layers, layer, end)
        gathered = np.where(sharded, always, gathered)
        # layers that the backward has passed have let go, so one that recomputes need not be the fullest
        least = np.minimum(*briefly) + moment
        briefly = Briefly(*(np.where(sharded, least, each) for each in briefly))
    made = made_by_backwards(work)
    grows = memory.made_gradients(work, rank.layers * layer, rank.first, rank.last)
    end = np.logical_xor(rank.first, rank.last)
    of_rank = RankBytes(
        rank=rank,
        work=work,
        ranks=ranks,
        held=held,
        briefly=briefly,
        chunks=_chunks_of(rank, work, ranks),
        base=weights + optimizer + gathered + memory.exchange_buffers(work, rank.neighbours, end),
        gradients=gradients,
        grows=grows,
        present=np.where(made, gradients - grows, gradients),
        steady=memory.answered_messages(rank.neighbours, work.virtual > 1, work.microbatches) * held.sent,
    )
    yield from _first_moments(of_rank)
    if np.any(made):
        yield from _moments_of_growth(of_rank)


def _first_moments(of: RankBytes) -> Iterator[Moment]:
    """At the first backward, at the update, at the embedding's first backward, and where the first chunk recomputes."""
    rank, work, chunks, ends = of.rank, of.work, of.chunks, of.held.ends
    v, m = work.virtual, work.microbatches
    others = np.where(work.gpipe, m - 1, 0)
    going = chunks.sends * of.held.sent + np.where(rank.last, (others + 1) * ends.left, 0.0)
    at_first = of.base + of.present + np.maximum(of.steady + of.at_end(others), going)
    yield of.moment(at_first, chunks.flights, chunks.likely, chunks.each)
    if np.any(work.gloo):
        yield of.moment(of.base + of.gradients + memory.update_buffers(work, of.gradients), 0.0, 0.0, 1.0)
    if rank.first is True:
        stashed = chunks.at((v - 1) * chunks.group + 1) - 1
        already = (v - 1) * of.ranks.small * memory.layer_parameters(work) * work.gradient_bytes
        always = of.base + of.present + np.where(made_by_backwards(work), already, 0.0) + of.steady
        always = always + of.embedding_backward() + np.where(rank.last, others * ends.left, 0.0)
        yield of.later(always, stashed)
    if np.any((v > 1) & (work.full > 0) & (work.full < 1)):
        stashed = chunks.at((v - 1) * chunks.group + 1)
        yield of.later(of.base + of.present + of.steady + of.briefly.first, stashed)


def _moments_of_growth(of: RankBytes) -> Iterator[Moment]:
    """One backward after the first of each chunk's: gradients come while activations go."""
    rank, work, chunks, ends, saved = of.rank, of.work, of.chunks, of.held.ends, of.held.saved
    v, m, made = work.virtual, work.microbatches, made_by_backwards(work) & ~work.splits
    layer = memory.layer_parameters(work)
    some = (work.full > 0) & (work.full < 1)
    one_layer = np.where(some, saved.none + saved.backward, saved.mean(work) + saved.moment(work))
    whole = 1.0 - work.splits  # where backwards are taken in two, gradients come later than that
    turning = (m * v - chunks.started - 1) / chunks.group
    for lap in (0, np.floor(turning), np.ceil(turning), v - 1):
        done = np.clip(lap, 0, v - 1)
        k = done * chunks.group + 2
        ends_made = np.where(rank.last, of.grows - rank.layers * layer * work.gradient_bytes, 0.0)
        grown = (done + 1) * of.ranks.small * layer * work.gradient_bytes + ends_made
        grown = of.present + np.where(done == v - 1, of.grows, grown)
        here = np.where((done == 0) & (m > 1), of.at_end(np.where(work.gpipe, m - 2, 0)), of.briefly.others)
        always = of.base + np.where(made, grown, 0.0) + of.steady + np.where(k <= m * v, here, 0.0)
        yield of.later(always * whole, chunks.at(k) * whole)
        # and at the end of that first one
        lately = memory.last_layer(work, one_layer, layer, (done == v - 1) & np.asarray(rank.first))
        always = of.base + np.where(made, grown, 0.0) + of.steady + lately
        always = always + np.where(rank.last & (work.gpipe > 0) & (done == 0), (m - 1) * ends.left, 0.0)
        yield of.later(always * whole, (chunks.at(k - 1) - 1) * whole)
    if rank.first is True:
        stashed = chunks.at((v - 1) * chunks.group + 2) - 1
        always = of.base + of.gradients + of.steady + of.embedding_backward()
        always = always + np.where(rank.last & (work.gpipe > 0), (m - 2) * ends.left, 0.0)
        yield of.later(np.where(m > 1, always, 0.0) * whole, np.maximum(stashed, 0) * whole)


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


def _chunks_of(rank: Rank, work: Work, ranks: Ranks) -> Chunks:
    p, v, m = work.pipeline, work.virtual, work.microbatches
    # with one chunk per rank this is 1F1B's, too
    started = in_flight(work, rank.number, usual=RULES["interleaved"].in_flight(p, m, v, rank.number))
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
    if rank.last is False or rank.first is True:
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
