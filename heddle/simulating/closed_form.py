"""A training step in closed form: seconds and bytes of many plans at once.

Stages are as even as can be, every layer is as the mean of all, and every stage of one kind costs the same. Then the
step is exact for 1F1B, GPipe and the interleaved schedule where all chunks cost alike, and within the unevenness of the
ends elsewhere; `heddle.simulating.replay` replays what this adds up. Bounds hold for layers that differ, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.cost import adapters, compute, memory, muon
from heddle.cost import step as stage
from heddle.cost.breakdown import Breakdown
from heddle.cost.fits import fits
from heddle.cost.network import hidden
from heddle.cost.step import Split
from heddle.cost.work import Work
from heddle.format import GIB
from heddle.schedule.rule import Column, Mask
from heddle.simulating.bounds import least_seconds, split_seconds
from heddle.simulating.memory_bounds import fewest_recomputed, made_by_backwards, peak_memory
from heddle.simulating.orders import Ranks, recomputed
from heddle.simulating.prices import KnownPrices, Prices, slowest_rank
from heddle.simulating.rank_bytes import fullest_rank
from heddle.spec.cluster import Cluster

CHUNK = 8192  # plans that are priced at once: their columns stay in the cache


@dataclass(frozen=True)
class StepCosts:
    """What each plan's step takes and holds."""

    seconds: NDArray[np.floating[Any]]
    breakdown: Breakdown
    bubble: NDArray[np.floating[Any]]  # idle over ideal time (PTD-P §2.2.1)
    at_least: NDArray[np.floating[Any]]  # seconds that a replay is never below
    memory: NDArray[np.floating[Any]]  # bytes of the fullest rank
    memory_at_least: NDArray[np.floating[Any]]  # the same, unless interleaved chunks differ
    fits: NDArray[np.bool_]  # by that

    @property
    def columns(self) -> tuple[Column, ...]:
        """All but whether it fits."""
        return self.seconds, *self.breakdown, self.bubble, self.at_least, self.memory, self.memory_at_least

    @classmethod
    def of(cls, columns: Iterable[Column], cluster: Cluster) -> StepCosts:
        """From these columns."""
        seconds, *parts, bubble, at_least, held, least = map(np.asarray, columns)
        fit = np.asarray(fits(least, cluster.device))
        return cls(seconds, Breakdown(*parts), bubble, at_least, held, least, fit)


def closed_form(work: Work, cluster: Cluster) -> StepCosts:
    """Price every plan of `work` on a cluster; with numbers in all columns the answer has arrays without dims."""
    if work.arrays and not len(work):  # no plan at all
        return StepCosts.of(np.zeros((len(Breakdown._fields) + 5, 0)), cluster)
    return StepCosts.of(_in_chunks(work, cluster, _price, seconds=True, held=True), cluster)


def step_seconds(work: Work, cluster: Cluster) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each plan's step, and seconds that a replay is never below."""
    if not len(work):
        return np.zeros(0), np.zeros(0)
    seconds, *_, least = _in_chunks(work, cluster, _seconds, seconds=True)
    return np.asarray(seconds), np.asarray(least)


def step_bytes(work: Work, cluster: Cluster) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of the fullest rank of each plan, and bytes that it holds at least."""
    if not len(work):
        return np.zeros(0), np.zeros(0)
    held, least = _in_chunks(work, cluster, _held, held=True)
    return np.asarray(held), np.asarray(least)


def _in_chunks(
    work: Work, cluster: Cluster, columns: Callable[..., Sequence[Any]], seconds: bool = False, held: bool = False
) -> Sequence[Column]:
    """`columns(some, cluster, prices)` of all plans, of as many at once as stay in cache; with the prices asked for."""
    known, work = KnownPrices.of(work, cluster, seconds, held), work.as_floats()
    if len(work) <= CHUNK:
        return columns(work, cluster, known.plans(slice(None), work))
    found: np.ndarray | None = None
    for start in range(0, len(work), CHUNK):
        chunk = slice(start, start + CHUNK)
        some = work.take(chunk)
        parts = columns(some, cluster, known.plans(chunk, some))
        if found is None:
            found = np.empty((len(parts), len(work)))  # in one block, which is mapped at once
        for column, part in zip(found, parts, strict=True):
            column[chunk] = part
    assert found is not None
    return list(found)


def balancing_saves(work: Work, cluster: Cluster) -> Column:
    """Seconds that a step takes less, about, if layers move between ranks until the slowest is as quick as can be."""
    return _in_chunks(work, cluster, _saved_by_balancing, seconds=True)[0]


def _saved_by_balancing(work: Work, _: Cluster, prices: Prices) -> tuple[Column]:
    orders, split, layer = prices.orders, prices.split, prices.seconds.layer.mean
    ranks, p, head, embedding = orders.ranks, work.pipeline, prices.seconds.head, prices.seconds.embedding
    one = layer.forward + layer.backward + stage.recompute_seconds(work, layer)
    even = np.maximum(ranks.most * one, ranks.last * one + head)
    least = np.maximum((work.layers * one + embedding + head) / p, work.virtual * one + np.maximum(embedding, head))
    quick = even
    for end in (0.0, embedding, head):  # the slowest rank has one of the ends, or none
        for more in (1, 0):
            slowest = (np.ceil((least - end) / one - 1e-9) + more) * one + end
            inner, first, last = (np.floor((slowest - own) / one + 1e-9) for own in (0.0, embedding, head))
            enough = (p - 2) * inner + first + last >= work.layers
            quick = np.where(enough & (slowest < quick), slowest, quick)
    return (np.where(p > 1, split.slowdown * orders.laps * (even - quick), 0.0),)


def recomputing_least(work: Work, cluster: Cluster) -> tuple[Column, Mask]:
    """For plans that recompute nothing: layers of each rank that must recompute everything, at least, so that they fit
    into their devices; and whether they may need to at all.
    """
    count, needed = _in_chunks(work, cluster, _recomputing_least, held=True)
    return count, np.asarray(needed, dtype=bool)


def _recomputing_least(work: Work, cluster: Cluster, prices: Prices) -> tuple[Column, Mask]:
    _, (held, _), orders, split, smallest = prices
    ranks = orders.ranks
    limit = cluster.device.memory_gib * GIB
    count = fewest_recomputed(smallest, cluster, orders, split, held.least, held.most, limit)
    # A plan whose chunks differ holds at most as much as if all of them were as large as the largest. Groups of
    # microbatches that differ may hold more than that, or gradients that come with the backwards: there it is for the
    # replay to say.
    m, p = work.microbatches, work.pipeline
    alike = (m <= p) | (m % np.maximum(np.floor(m / p), 1) == 0)
    sharded = (work.zero >= 2) & (work.replicas > 1)  # of which only what they hold at least is known
    apart = work.splits | sharded
    alike = alike & ~made_by_backwards(work) & ~apart
    larger = np.where(alike, ranks.large / ranks.small, np.inf)
    factor = np.where((work.virtual > 1) | apart, larger, 1.0)
    most = peak_memory(work.largest, cluster, orders, split, held.most, recomputed(work))[1] * factor
    return count, (most > limit) & (count < ranks.most)


def _price(work: Work, cluster: Cluster, prices: Prices) -> tuple[Column, ...]:
    return *_seconds(work, cluster, prices), *_held(work, cluster, prices)


def _seconds(work: Work, cluster: Cluster, prices: Prices) -> tuple[Column, ...]:
    """A step's seconds, where they go, its bubble, and what it takes at least."""
    of, _, orders, split, smallest = prices
    layer, embedding, head = of.layer.mean, of.embedding, of.head
    p, v, m, layers, ranks = work.pipeline, work.virtual, work.microbatches, work.layers, orders.ranks
    alone = p == 1
    again, recomputing = stage.recompute_seconds(work, layer), recomputed(work)
    one = layer.forward + layer.backward + again
    send, ends = stage.message(cluster, work, layer.forward, of.message), embedding + head

    # Seconds of one microbatch on all ranks together, and on the rank that everybody waits for.
    sends = 2 * send * (p * v - 1 - work.folded)
    aside = cluster.efficiency.microbatch_us * 1e-6 * v  # of a rank
    total = layers * one + ends + sends + aside * p
    slowest = np.maximum(ranks.most * one, ranks.last * one + head) + 2 * send * v + aside
    if work.shapes:  # which rank has the slower layers is known
        with_ends = slowest_rank(of.each, work, (embedding, head)) + 2 * send * v + aside
        slowest = np.where(work.folded, slowest, with_ends)
    slowest = np.where(alone, total, slowest)
    # (m-1) times the slowest rank, and once through all: Piper (NeurIPS 2021) §3, (m + p - 1)·(f + b) of PTD-P §2.2.1
    # where all are equal. With v chunks a rank fills and drains v times as fast (§2.2.2).
    pipe = orders.laps * slowest + (total - slowest) / v
    if np.any(work.splits):
        pipe = np.where(work.splits & ~alone, split_seconds(work, ranks, layer, embedding, head, send), pipe)

    # Where devices share cores, no core idles while anybody has work, and nobody is faster than with a core of its own.
    pace = stage.pace(cluster, work.world)
    pipe = np.maximum(pipe / stage.pace(cluster, work.world / p), m / p * total / pace) if cluster.cores else pipe

    data, update = (seconds / pace for seconds in _tail(work, cluster, ranks, split, slowest, layer.backward + again))
    late = split.slowdown

    per_rank, tensor_again = m / p / pace, work.full * layer.tensor_again
    tensor = per_rank * layers * (layer.tensor_forward + layer.tensor_backward + tensor_again)
    context_again = (work.full + work.selective) * layer.context_forward
    context = per_rank * layers * (layer.context_forward + layer.context_backward + context_again)
    expert_again = (work.full + work.elementwise) * layer.expert_forward
    expert = per_rank * layers * (layer.expert_forward + layer.expert_backward + expert_again)
    recompute = per_rank * layers * (again - tensor_again - context_again - expert_again)
    busy, pipeline = per_rank * total, per_rank * sends
    pipe = np.maximum(pipe, busy)  # but for rounding it never is shorter
    step = pipe + data + update
    seconds = late * step
    breakdown = Breakdown(
        compute=busy - tensor - recompute - pipeline - context - expert,
        recompute=recompute,
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        optimizer=update,
        bubble=pipe - busy,
        jitter=(late - 1) * step,
        context=context + 0.0 * busy,
        expert=expert + 0.0 * busy,
        offload=0.0 * busy,
    )
    times = (embedding, head, send)
    bound = least_seconds(work, smallest, cluster, orders, split, of.layer, times, of.slowest, recomputing)
    return seconds, *breakdown, pipe / busy - 1, bound


def _held(work: Work, cluster: Cluster, prices: Prices) -> tuple[Column, Column]:
    """Bytes of the fullest rank, and bytes that it holds at least."""
    _, of, orders, split, smallest = prices
    recomputing = recomputed(work)
    held, least = peak_memory(work, cluster, orders, split, of.held.mean, recomputing)
    if work.shapes:
        least = peak_memory(smallest, cluster, orders, split, of.held.least, recomputing)[1]
        beside = of.held.mean.ends
        fullest = fullest_rank(work, split, of.each, beside.left + beside.briefly)
        least = np.maximum(least, fullest + memory.slack(cluster, fullest))
        held = np.maximum(held, least)
    return held, least


def _tail(
    work: Work, cluster: Cluster, ranks: Ranks, split: Split, slowest: Column, backward: Column
) -> tuple[Column, Column]:
    """Seconds of the replicas' exchange that nothing hides, and of the optimizer; `backward`: seconds of a layer's."""
    parameters = memory.layer_parameters(work) * ranks.most + split.first_end
    data = stage.exposed_exchange(cluster, work, parameters, ranks.most * backward, split.exchange)
    if np.any(work.zero >= 2):
        frozen = adapters.frozen_layer(work) * ranks.most + adapters.frozen_end(work, True, work.pipeline == 1)
        per_microbatch = stage.shard_exchange(cluster, work, parameters, frozen)
        data = data + work.microbatches * (per_microbatch - hidden(cluster, per_microbatch, slowest))
    aside = cluster.efficiency.step_us * 1e-6 + muon.seconds(cluster, work, ranks.most)
    return data, compute.optimizer(cluster, work, parameters / split.sharing) + aside
