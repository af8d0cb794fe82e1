"""A training step in closed form: seconds and bytes of many plans at once.

Stages are as even as can be, every layer is as the mean of all, and every stage of one kind costs the same. Then the
step is exact for 1F1B, GPipe and the interleaved schedule where all chunks cost alike, and within the unevenness of the
ends elsewhere; `heddle.simulating.replay` replays what this adds up. Bounds hold for layers that differ, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heddle.cost import adapters, compute, end_memory, memory, messages, muon
from heddle.cost import step as stage
from heddle.cost.breakdown import Breakdown
from heddle.cost.fits import fits
from heddle.cost.network import between_stages, hidden
from heddle.cost.step import LayerCost, Split, split_of
from heddle.cost.work import Work
from heddle.format import GIB
from heddle.schedule.rule import Column, Mask
from heddle.simulating.among import Among, among
from heddle.simulating.bounds import least_seconds, split_seconds
from heddle.simulating.distinct import Once, once
from heddle.simulating.layer_range import most_of_a_rank, of_runs
from heddle.simulating.memory_bounds import HeldBytes, fewest_recomputed, made_by_backwards, peak_memory
from heddle.simulating.orders import Orders, Ranks, even_ranks, orders_of, recomputed
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
    return StepCosts.of(_in_chunks(work, cluster, lambda *some: _price(*some).columns), cluster)


def _in_chunks(work: Work, cluster: Cluster, columns: Callable[..., Sequence[Any]]) -> Sequence[Column]:
    """`columns(some, cluster, prices, orders, split, smallest)` of all plans, of as many at once as stay in cache."""
    known, work = _Known.of(work, cluster), work.as_floats()
    if len(work) <= CHUNK:
        return columns(work, cluster, *known.plans(slice(None), work))
    found: np.ndarray | None = None
    for start in range(0, len(work), CHUNK):
        chunk = slice(start, start + CHUNK)
        some = work.take(chunk)
        parts = columns(some, cluster, *known.plans(chunk, some))
        if found is None:
            found = np.empty((len(parts), len(work)))  # in one block, which is mapped at once
        for column, part in zip(found, parts, strict=True):
            column[chunk] = part
    assert found is not None
    return list(found)


def balancing_saves(work: Work, cluster: Cluster) -> Column:
    """Seconds that a step takes less, about, if layers move between ranks until the slowest is as quick as can be."""
    return _in_chunks(work, cluster, _saved_by_balancing)[0]


def _saved_by_balancing(
    work: Work, _: Cluster, prices: Prices, orders: Orders, split: Split, __: Work
) -> tuple[Column]:
    ranks, p, head, embedding = orders.ranks, work.pipeline, prices.head, prices.embedding
    one = prices.layer.mean.forward + prices.layer.mean.backward + stage.recompute_seconds(work, prices.layer.mean)
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
    count, needed = _in_chunks(work, cluster, _recomputing_least)
    return count, np.asarray(needed, dtype=bool)


def _recomputing_least(
    work: Work, cluster: Cluster, prices: Prices, orders: Orders, split: Split, smallest: Work
) -> tuple[Column, Mask]:
    held, ranks = prices.held, orders.ranks
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


def _price(work: Work, cluster: Cluster, prices: Prices, orders: Orders, split: Split, smallest: Work) -> StepCosts:
    layer, embedding, head = prices.layer.mean, prices.embedding, prices.head
    p, v, m, layers, ranks = work.pipeline, work.virtual, work.microbatches, work.layers, orders.ranks
    alone = p == 1
    again, recomputing = stage.recompute_seconds(work, layer), recomputed(work)
    one = layer.forward + layer.backward + again
    send, ends = stage.message(cluster, work, layer.forward, prices.message), embedding + head

    # Seconds of one microbatch on all ranks together, and on the rank that everybody waits for.
    sends = 2 * send * (p * v - 1 - work.folded)
    aside = cluster.efficiency.microbatch_us * 1e-6 * v  # of a rank
    total = layers * one + ends + sends + aside * p
    slowest = np.maximum(ranks.most * one, ranks.last * one + head) + 2 * send * v + aside
    if work.shapes:  # which rank has the slower layers is known
        with_ends = _slowest(prices.each_layer, work, (embedding, head)) + 2 * send * v + aside
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
    held, least = peak_memory(work, cluster, orders, split, prices.held.mean, recomputing)
    if work.shapes:
        least = peak_memory(smallest, cluster, orders, split, prices.held.least, recomputing)[1]
        beside = prices.held.mean.ends
        fullest = fullest_rank(work, split, prices.each_saved, beside.left + beside.briefly)
        least = np.maximum(least, fullest + memory.slack(cluster, fullest))
        held = np.maximum(held, least)
    times = (embedding, head, send)
    bound = least_seconds(work, smallest, cluster, orders, split, prices.layer, times, prices.slowest, recomputing)
    return StepCosts.of((seconds, *breakdown, pipe / busy - 1, bound, held, least), cluster)


def _degrees(work: Work) -> tuple[np.ndarray, np.ndarray]:
    plans = max(1, len(work))  # one where every column is a number
    return np.broadcast_to(work.pipeline, plans), np.broadcast_to(work.virtual, plans)


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


class Prices(NamedTuple):
    """Of one microbatch: seconds in a layer and, both ways together, in the two ends of the model; bytes."""

    layer: Among[LayerCost[Column]]
    embedding: Column
    head: Column
    message: Column  # between stages
    held: Among[HeldBytes]
    each_layer: tuple[LayerCost[Column], ...]  # of each shape, where layers differ
    each_saved: tuple[memory.Saved, ...]
    slowest: Column = 0.0  # seconds of the layers of the slowest rank, at least, where layers differ


def _prices(work: Work, cluster: Cluster) -> Prices:
    embedding, head = compute.embedding(cluster, work), compute.head(cluster, work)
    counts = [count for count, _ in work.each_shape]
    costs = tuple(stage.layer_cost(cluster, one) for _, one in work.each_shape)
    saved = tuple(memory.layer_activations(one) for _, one in work.each_shape)
    ends = end_memory.end_activations(work)
    waits = end_memory.waiting_table(work, ends)
    embeds = end_memory.embedding_backward(work, 0.0) + waits
    sent, awaited = messages.sent_message(work), messages.awaited_message(work)
    held = among(saved, counts).map(lambda each: HeldBytes(each, ends, waits, embeds, sent, awaited))
    message = between_stages(cluster, work)
    apart = (costs, saved) if work.shapes else ((), ())
    return Prices(among(costs, counts), sum(embedding), sum(head), message, held, *apart)


class _Known(NamedTuple):
    """What depends on few fields of a plan each."""

    layers: Once[Prices]
    orders: Once[Orders]
    splits: Once[Split]

    @classmethod
    def of(cls, work: Work, cluster: Cluster) -> _Known:
        t, c, p, d, b = work.tensor, work.context, work.pipeline, work.data, work.microbatch
        x, whole = work.expert, work.whole_experts
        # gradients are added up from the second microbatch on; weights may become 8 bits once for all of them
        several = d * b if np.any(work.fp8) else np.less(d * b, work.batch).astype(np.int64)
        split = np.greater(p, 1).astype(np.int64)
        partly = bool(np.any((work.full > 0) & (work.full < 1)))
        return cls(
            once(
                work,
                (
                    *(t, c, work.context_exchange, work.context_inner, x, whole, b, work.sequence_parallel),
                    *(several, split, work.world, work.scatter),
                ),
                lambda some: _prices(some, cluster),
            ),
            once(work, (p, work.virtual, work.schedule, d * b), lambda some: orders_of(some, partly)),
            once(work, (t, c, p, d, x, whole, work.zero, work.sharing), lambda some: split_of(some, cluster)),
        )

    def plans(self, chunk: slice, work: Work) -> tuple[Prices, Orders, Split, Work]:
        """Of some plans; and their work as if its layers had as few parameters as can be."""
        prices, smallest = self.layers.of(chunk), work.smallest
        if work.shapes and self.layers.which is not None:
            prices, smallest = _with_runs(prices, self.layers.record, self.layers.which[chunk], work)
        return prices, self.orders.of(chunk), self.splits.of(chunk), smallest


def _with_runs(prices: Prices, distinct: Prices, which: np.ndarray, work: Work) -> tuple[Prices, Work]:
    """Layers that differ: what is least of successive ones, where all of a chunk's count.

    `prices`: of each plan, from the `distinct` ones.
    """
    ranks = even_ranks(work.layers, work.pipeline, work.virtual)
    small, large = (np.broadcast_to(size, len(work)) for size in (ranks.small, ranks.large))

    def least(fields: Iterable[Sequence[Column]]) -> list[np.ndarray]:
        return of_runs(fields, work.shape_of, (small, large), which)

    some = (work.full > 0) & (work.full < 1)  # layers recompute, and it may be the smaller ones
    layer = LayerCost(*least(zip(*distinct.each_layer, strict=True)))
    layer = layer._replace(again_full=np.where(some, prices.layer.least.again_full, layer.again_full))
    saved = memory.Saved(*least(zip(*distinct.each_saved, strict=True)))
    apart = some | made_by_backwards(work)  # a layer's gradients are made when others' are there
    held = prices.held.least.saved
    # of the layer that is on its way back, whichever that is
    brief = {name: getattr(held, name) for name in ("backward", "again")}
    brief = {name: np.where(work.elementwise > 0, value, getattr(saved, name)) for name, value in brief.items()}
    saved = saved._replace(remade=held.remade, **brief)
    saved = memory.Saved(*(np.where(apart, *pair) for pair in zip(held, saved, strict=True)))
    prices = prices._replace(
        layer=Among(prices.layer.mean, layer, prices.layer.most),
        held=Among(prices.held.mean, prices.held.least._replace(saved=saved), prices.held.most),
        slowest=_slowest(prices.each_layer, work),
    )
    smallest, names = work.smallest, ("layer_parameters", "expert_parameters")
    runs = least([getattr(shape, name) for shape in work.shapes] for name in names)
    dense, experts = (np.where(apart, getattr(smallest, name), run) for name, run in zip(names, runs, strict=True))
    return prices, replace(smallest, layer_parameters=dense, expert_parameters=experts)


def _slowest(shapes: Sequence[LayerCost[Column]], work: Work, ends: tuple[Column, Column] | None = None) -> np.ndarray:
    """Seconds of one microbatch in the layers of the slowest rank; without what only some layers recompute.

    `ends`: of the embedding and of the output layer; with these, and with all that layers recompute, as a mean.
    """
    seconds, (pipeline, virtual) = [], _degrees(work)
    often = work.full if ends is not None else work.full >= 1
    for each in shapes:
        again = stage.partly_recomputed(work, each)
        seconds.append(np.broadcast_to(each.forward + each.backward + again + often * each.again_full, len(pipeline)))
    first, last = ends or (0.0, 0.0)
    beside = np.broadcast_to(first, len(pipeline)), np.broadcast_to(last, len(pipeline))
    found = most_of_a_rank(np.stack(seconds), work.shape_of, pipeline, virtual, beside)
    return found if len(work) else found[0]
