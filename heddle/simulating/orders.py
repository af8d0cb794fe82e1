"""What follows from the order of work alone, for many plans at once: how many layers ranks have, and what is in flight.

All of it is counted in layers, microbatches and messages; what they come to in seconds and bytes depends on the rest of
a plan (`heddle.simulating.bounds`, `heddle.simulating.memory_bounds`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heddle.cost import messages
from heddle.cost.work import Work
from heddle.schedule import NAMES, RULES
from heddle.schedule.registry import usual
from heddle.schedule.rule import Column, Mask
from heddle.schedule.rules.interleaved import first_group


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


def even_ranks(layers: Column, pipeline: Column, virtual: Column, folded: Mask = False) -> Ranks:
    """`even_stages` gives the extra layers to the chunks in the middle: to as many ranks as there are, then again.

    In a V (`folded`) the first rank has the first and the last chunk, and the last one the two in the middle.
    """
    chunks = pipeline * virtual
    small = np.floor(layers / chunks)
    extra = layers - small * chunks
    start = np.floor((chunks - extra) / 2)
    most = small * virtual + np.ceil(extra / pipeline)
    # the first rank's chunks are those at 0, p, 2p, …, the last one's those at p-1, 2p-1, …
    on_first = np.ceil((start + extra) / pipeline) - np.ceil(start / pipeline)
    on_last = np.floor((start + extra) / pipeline) - np.floor(start / pipeline)
    if np.any(folded):

        def more(chunk: Column) -> Mask:
            here: Mask = (start <= chunk) & (chunk < start + extra)
            return here & folded

        on_first = np.where(folded, 1.0 * more(0) + more(chunks - 1), on_first)
        on_last = np.where(folded, 1.0 * more(pipeline - 1) + more(pipeline), on_last)
        most = np.where(folded, small * virtual + on_last, most)
    return Ranks(small * virtual + on_first, most, small * virtual + on_last, small, extra, start)


def recomputed(work: Work) -> Column:
    """Layers of each rank that recompute everything, where a share of all does: each rank its first ones."""
    return np.where(work.full >= 1, np.inf, np.floor(work.full * work.layers / work.pipeline + 1e-9))


def in_flight(work: Work, rank: Column, usual: Column) -> Column:
    """Chunks × microbatches that a rank starts before its first backward ends; `usual`: 1F1B's, interleaved or not."""
    p, m, v = work.pipeline, work.microbatches, work.virtual
    started = usual
    for number in work.schedules:
        rule = RULES[NAMES[number]]
        if not rule.starts_like_1f1b:
            started = np.where(work.schedule == number, (rule.started or rule.in_flight)(p, m, v, rank), started)
    return started


class Flights(NamedTuple):
    """Activations that a rank holds at one moment of a step."""

    least: Column  # layers × microbatches
    likely: Column | None  # the same, as if its chunks were alike; None: they are
    each: Column  # microbatches of one layer, at most


class Chunks(NamedTuple):
    """The activations of a rank's chunks in the course of a step."""

    started: Column  # chunks × microbatches at the first backward
    group: Column  # microbatches that go through a chunk before the next one has its turn
    small: Column  # layers of a chunk, at least
    mean: Column
    microbatches: Column
    virtual: Column

    def at(self, backward: Column) -> Column:
        """Chunks × microbatches before a backward; they count from 1."""
        return np.minimum(self.started, np.maximum(self.microbatches * self.virtual - backward + 1, 0))

    def later(self, stashed: Column) -> Flights:
        """When so many chunks × microbatches are left."""
        each = np.where(self.virtual > 1, np.minimum(self.microbatches, self.started), stashed)
        likely = None if self.mean is self.small else stashed * self.mean
        return Flights(stashed * self.small, likely, np.maximum(each, 1))


class RankOrder(NamedTuple):
    """A rank whose bytes are looked at; where there is none, it has no layers and holds less than any other."""

    layers: Column
    first: bool  # whether it holds the embedding
    last: Mask  # whether it holds the output layer
    awaited: Column  # messages that are received ahead
    sends: Column  # messages that have been sent before the first answer
    steady: Column  # messages that were sent and not yet used, once answers come
    at_first: Flights  # backward
    at_embedding: Flights | None  # the first backward of the embedding
    recomputing: Flights | None  # the first backward of the first chunk, where that recomputes
    chunks: Chunks | None  # of plans whose gradients grow with the first backwards


class Orders(NamedTuple):
    """Of each plan."""

    ranks: Ranks
    group: Column  # microbatches that go through a chunk before the next one has its turn
    laps: Column  # microbatches that the slowest rank takes, or waits for
    ahead: Column  # microbatches that the first rank starts before its first backward
    at: Column  # the last rank that has most layers
    ahead_at: Column  # the same of that one
    others: Column  # microbatches that the last chunk has taken before the one it turns round first
    looked_at: tuple[RankOrder, ...]


def orders_of(work: Work, partly: bool) -> Orders:
    """Of plans of which some recompute `partly`: in some of their layers."""
    p, v, m = work.pipeline, work.virtual, work.microbatches
    ranks = even_ranks(work.layers, p, v, work.folded)
    group = np.where(work.gpipe, m, first_group(p, m))
    # With fewer microbatches than ranks each lap still waits for the first of them to come round (`flush_bubble` of
    # heddle.schedule.rule).
    laps = np.where((v > 1) & (m < p), (v - 1) / v * p + m / v, m)
    at = np.maximum(ranks.start + ranks.extra - 1, 0)  # the last of those that got a layer more
    return Orders(
        ranks=ranks,
        group=group,
        laps=laps,
        ahead=in_flight(work, 0, usual=p),
        at=at,
        ahead_at=in_flight(work, at, usual=p - at),
        others=np.where(work.gpipe, m - 1, 0) if np.any(work.gpipe) else 0.0,
        looked_at=tuple(_looked_at(work, ranks, group, partly)),
    )


def _looked_at(work: Work, ranks: Ranks, group: Column, partly: bool) -> list[RankOrder]:
    """The ranks of which one is the fullest: the first one, the second, which has one more neighbor, the first of
    those with most layers, or the last.
    """
    p, v, alone, inner = work.pipeline, work.virtual, work.pipeline == 1, work.pipeline > 2
    end = np.where(alone, 0.0, 1.0 + ((v > 1) & inner))

    def one(number: Column, layers: Column, first: bool, last: Mask, neighbors: Column, exists: Mask) -> RankOrder:
        return _order_of(work, ranks, group, partly, _Rank(number, layers, first, last, neighbors, exists))

    found = [one(0, ranks.first, True, alone, end, True), one(p - 1, ranks.last, False, True, end, ~np.asarray(alone))]
    if np.any(inner):
        second = ranks.small + ((ranks.start <= 1) & (ranks.start + ranks.extra > 1))
        found.append(one(1, second, False, False, 2, inner & (v == 1)))
        found.append(one(ranks.start % p, ranks.most, False, False, 2, inner & ((ranks.start > 0) | (v > 1))))
    return found


class _Rank(NamedTuple):
    number: Column
    layers: Column
    first: bool
    last: Mask
    neighbors: Column
    exists: Mask


def _order_of(work: Work, ranks: Ranks, group: Column, partly: bool, rank: _Rank) -> RankOrder:
    v, m = work.virtual, work.microbatches
    chunks, sends, at_first = _flights(work, ranks, group, rank)

    def here(count: Column, otherwise: Column = 0.0) -> Column:
        return count if rank.exists is True else np.where(rank.exists, count, otherwise)

    def shown(flights: Flights) -> Flights:
        likely = None if flights.likely is None else here(flights.likely)
        return Flights(here(flights.least), likely, here(flights.each, m))

    before_last = (v - 1) * group + 1  # the first backward of a rank's first chunk
    steady = messages.answered_messages(rank.neighbors, v > 1, m)
    return RankOrder(
        layers=here(rank.layers),
        first=rank.first,
        last=rank.last,
        awaited=here(messages.awaited_messages(work, rank.neighbors)),
        sends=here(sends),
        steady=here(steady),
        at_first=shown(at_first),
        at_embedding=shown(chunks.later(chunks.at(before_last) - 1)) if rank.first else None,
        recomputing=shown(chunks.later(chunks.at(before_last))) if partly and np.any(v > 1) else None,
        chunks=chunks._replace(started=here(chunks.started)) if work.element == 4 else None,
    )


def _flights(work: Work, ranks: Ranks, group: Column, rank: _Rank) -> tuple[Chunks, Column, Flights]:
    """Chunks, messages that have been sent before the first answer, and what is in flight at the first backward."""
    p, v, m = work.pipeline, work.virtual, work.microbatches
    # with one chunk per rank this is 1F1B's, too
    started = in_flight(work, rank.number, usual=RULES[usual(2)].in_flight(p, m, v, rank.number))
    sends: Column = np.where(rank.last, (v - 1) * group, started - 1)
    each: Column = np.where(work.gpipe, m, np.minimum(started, m))
    flights: Column = rank.layers * each
    if not np.any(v > 1):
        return Chunks(started, group, rank.layers, rank.layers, m, v), sends, Flights(flights, None, each)
    woven_flights: Column
    woven, mean = (v > 1) & (work.gpipe == 0), rank.layers / v
    small = np.where(v > 1, ranks.small, rank.layers)
    likely: Column = np.where(woven, started * mean, flights)
    if rank.last is False or rank.first:
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
    return Chunks(started, group, small, mean, m, v), sends, Flights(flights, likely, each)
