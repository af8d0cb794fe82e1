"""A training step in closed form: seconds and bytes of many plans at once.

Stages are as even as can be, every layer is as the mean of all, and every stage of one kind costs the same. Then the
step is exact for 1F1B, GPipe and the interleaved schedule where all chunks cost alike, and within the unevenness of the
ends elsewhere; `heddle.simulate.replay` replays what this adds up. Bounds hold for layers that differ, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from heddle.cost import compute, memory
from heddle.cost import step as stage
from heddle.cost.breakdown import Breakdown
from heddle.cost.fits import fits
from heddle.cost.network import hidden
from heddle.cost.offload import sharded_by_layer
from heddle.cost.step import LayerCost
from heddle.cost.work import Column, Work
from heddle.format import GIB
from heddle.simulate.bounds import least_seconds
from heddle.simulate.even_ranks import Ranks, even_ranks
from heddle.simulate.layer_range import Among, among, most_of_a_rank, of_runs
from heddle.simulate.memory_bounds import HeldBytes, fewest_recomputed, made_by_backwards, peak_memory
from heddle.simulate.split_bounds import split_seconds
from heddle.spec.cluster import Cluster

CHUNK = 8192  # plans that are priced at once: their columns stay in the cache

# What differs between plans of one model: what the price of a layer depends on, with a number above all its values,
# and what it does not depend on.
_OF_A_LAYER = {"tensor": 2**20, "microbatch": 2**20, "sequence_parallel": 2, "full": 2}
_NOT_OF_A_LAYER = {"pipeline", "virtual", "data", "zero", "schedule", "selective", "per_op", "scatter", "regather"}


@dataclass(frozen=True)
class StepCosts:
    """What each plan's step takes and holds."""

    seconds: Column
    breakdown: Breakdown
    bubble: Column  # idle over ideal time (PTD-P §2.2.1)
    at_least: Column  # seconds that a replay is never below
    memory: Column  # bytes of the fullest rank
    memory_at_least: Column  # the same, unless interleaved chunks differ
    fits: Column  # by that


def closed_form(work: Work, cluster: Cluster) -> StepCosts:
    """Price every plan of `work` on a cluster; with numbers in all columns the answer is numbers."""
    work = work.as_floats()
    prices, which = _distinct_prices(work, cluster)
    if len(work) <= CHUNK:
        return _price(work, cluster, *_spread(prices, which, work))
    chunks = [slice(start, start + CHUNK) for start in range(0, len(work), CHUNK)]
    parts = []
    for chunk in chunks:
        some = work.take(chunk)
        parts.append(_price(some, cluster, *_spread(prices, chunk if which is None else which[chunk], some)))

    def joined(columns: Sequence[Column]) -> Column:
        return np.concatenate(columns)

    return StepCosts(
        seconds=joined([part.seconds for part in parts]),
        breakdown=Breakdown(*(joined(columns) for columns in zip(*(part.breakdown for part in parts), strict=True))),
        bubble=joined([part.bubble for part in parts]),
        at_least=joined([part.at_least for part in parts]),
        memory=joined([part.memory for part in parts]),
        memory_at_least=joined([part.memory_at_least for part in parts]),
        fits=joined([part.fits for part in parts]),
    )


def recomputing_least(work: Work, cluster: Cluster) -> tuple[Column, Column]:
    """For plans that recompute nothing: layers of each rank that must recompute everything, at least, so that they fit
    into their devices; and whether they may need to at all.
    """
    work = work.as_floats()
    prices, which = _distinct_prices(work, cluster)
    spread, smallest = _spread(prices, which, work)
    held = spread.held
    ranks = even_ranks(work.layers, work.pipeline, work.virtual, work.folded)
    limit = cluster.device.memory_gib * GIB
    count = fewest_recomputed(smallest, cluster, ranks, held.least, held.most, limit)
    # A plan whose chunks differ holds at most as much as if all of them were as large as the largest. Groups of
    # microbatches that differ may hold more than that, or gradients that come with the backwards: there it is for the
    # replay to say.
    m, p = work.microbatches, work.pipeline
    alike = (m <= p) | (m % np.maximum(np.floor(m / p), 1) == 0)
    apart = work.splits | sharded_by_layer(work)
    alike = alike & ~made_by_backwards(work) & ~apart
    larger = np.where(alike, ranks.large / ranks.small, np.inf)
    factor = np.where((work.virtual > 1) | apart, larger, 1.0)
    most = peak_memory(work.largest, cluster, ranks, held.most)[1] * factor
    return count, (most > limit) & (count < ranks.most)


def _price(work: Work, cluster: Cluster, prices: Prices, smallest: Work) -> StepCosts:
    layer, embedding, head = prices.layer.mean, prices.embedding, prices.head
    p, v, m, layers = work.pipeline, work.virtual, work.microbatches, work.layers
    ranks = even_ranks(layers, p, v, work.folded)
    first, last = ranks.most, ranks.last
    alone = p == 1
    again = stage.recompute_seconds(work, layer)
    one = layer.forward + layer.backward + again
    send, ends = stage.message(cluster, work, layer.forward), embedding + head

    # Seconds of one microbatch on all ranks together, and on the rank that everybody waits for.
    sends = 2 * send * (p * v - 1 - work.folded)
    aside = cluster.efficiency.microbatch_us * 1e-6 * v  # of a rank
    total = layers * one + ends + sends + aside * p
    slowest = np.maximum(first * one + np.where(alone, ends, 0.0), last * one + head * (p > 1)) + 2 * send * v + aside
    slowest = np.where(alone, total, slowest)
    # (m-1) times the slowest rank, and once through all: Piper (NeurIPS 2021) §3, (m + p - 1)·(f + b) of PTD-P §2.2.1
    # where all are equal. With v chunks a rank fills and drains v times as fast (§2.2.2); with fewer microbatches than
    # ranks each lap still waits for the first of them to come round (flush_bubble of heddle.schedule.rule).
    few = (v > 1) & (m < p)
    laps = np.where(few, (v - 1) / v * p + m / v, m)
    pipe = laps * slowest + (total - slowest) / v
    if np.any(work.splits):
        pipe = np.where(work.splits & ~alone, split_seconds(work, ranks, layer, embedding, head, send), pipe)

    # Where devices share cores, no core idles while anybody has work, and nobody is faster than with a core of its own.
    pace = stage.pace(cluster, work.world)
    pipe = np.maximum(pipe / stage.pace(cluster, work.world / p), m / p * total / pace) if cluster.cores else pipe

    data, update = (seconds / pace for seconds in _tail(work, cluster, ranks, slowest, layer.backward + again))
    late = stage.slowdown(cluster, work)

    per_rank = m / p / pace
    tensor = per_rank * layers * (layer.tensor_forward + layer.tensor_backward + layer.tensor_again)
    recompute = per_rank * layers * (again - layer.tensor_again)
    busy, pipeline = per_rank * total, per_rank * sends
    pipe = np.maximum(pipe, busy)  # but for rounding it never is shorter
    breakdown = Breakdown(
        compute=busy - tensor - recompute - pipeline,
        recompute=recompute,
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        optimizer=update,
        bubble=pipe - busy,
        jitter=(late - 1) * (pipe + data + update),
        moved=0.0 * busy,
    )
    held, least = peak_memory(work, cluster, ranks, prices.held.mean)
    if work.shapes:
        least = peak_memory(smallest, cluster, ranks, prices.held.least)[1]
    return StepCosts(
        seconds=late * (pipe + data + update),
        breakdown=breakdown,
        bubble=pipe / busy - 1,
        at_least=least_seconds(work, smallest, cluster, ranks, prices.layer, (embedding, head, send), prices.slowest),
        memory=held,
        memory_at_least=least,
        fits=fits(least, cluster.device),
    )


def _tail(work: Work, cluster: Cluster, ranks: Ranks, slowest: Column, backward: Column) -> tuple[Column, Column]:
    """Seconds of the replicas' exchange that nothing hides, and of the optimizer; `backward`: seconds of a layer's."""
    fullest = memory.layer_parameters(work) * ranks.most
    parameters = fullest + memory.end_parameters(work, True, work.pipeline == 1)
    per_microbatch = stage.shard_exchange(cluster, work, parameters)
    data = work.microbatches * (per_microbatch - hidden(cluster, per_microbatch, slowest))
    data = data + stage.exposed_exchange(cluster, work, parameters, ranks.most * backward)
    shared = np.where(work.zero >= 1, work.replicas, 1)
    aside = cluster.efficiency.step_us * 1e-6
    return data, compute.optimizer(cluster, parameters / shared, work.element) + aside


class Prices(NamedTuple):
    """Of one microbatch: seconds in a layer and, both ways together, in the two ends of the model; bytes."""

    layer: Among[LayerCost]
    embedding: Column
    head: Column
    held: Among[HeldBytes]
    each_layer: tuple[LayerCost, ...]  # of each shape
    each_saved: tuple[memory.Saved, ...]
    slowest: Column = 0.0  # seconds of the layers of the slowest rank, at least, where layers differ


def _distinct_prices(work: Work, cluster: Cluster) -> tuple[Prices, Any]:
    """Prices of the few layers that differ, and for each plan the place of its own; None: they are in order.

    Among a hundred thousand plans of one model there are perhaps fifty prices of a layer.
    """

    def price(some: Work) -> Prices:
        embedding, head = compute.embedding(cluster, some), compute.head(cluster, some)
        counts = [count for count, _ in some.each_shape]
        costs = tuple(stage.layer_cost(cluster, one) for _, one in some.each_shape)
        saved = tuple(memory.layer_activations(one) for _, one in some.each_shape)
        ends, sent = memory.end_activations(some), memory.sent_message(some)
        held = among(saved, counts).map(lambda each: HeldBytes(each, ends, sent))
        return Prices(among(costs, counts), sum(embedding), sum(head), held, costs, saved)

    if not work.arrays or np.any(work.fp8) or set(work.arrays) - _NOT_OF_A_LAYER - set(_OF_A_LAYER):
        return price(work), None
    key = np.where(work.microbatches > 1, 1.0, 0.0)
    for name, most in _OF_A_LAYER.items():
        key = key * most + getattr(work, name)
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    expanded: dict[str, Any] = {name: np.broadcast_to(getattr(work, name), len(work)) for name in work.arrays}
    return price(replace(work, **expanded).take(first)), which


def _spread(prices: Prices, which: Any, work: Work) -> tuple[Prices, Work]:
    """The price of each plan from the distinct ones; and the work as if its layers had as few parameters as can be."""
    if which is None:
        return prices, work.smallest

    def one(column: Column) -> Column:
        return column[which] if np.ndim(column) else column

    ends, sent = memory.Ends(*map(one, prices.held.mean.ends)), one(prices.held.mean.sent)
    held = prices.held.map(lambda each: HeldBytes(memory.Saved(*map(one, each.saved)), ends, sent))
    layer = prices.layer.map(lambda each: LayerCost(*map(one, each)))
    found = prices._replace(layer=layer, embedding=one(prices.embedding), head=one(prices.head), held=held)
    several = work.shapes and np.size(which) and np.ndim(which)  # and not a slice of prices in order, or no plan
    return _with_runs(found, which, work) if several else (found, work.smallest)


def _with_runs(prices: Prices, which: np.ndarray, work: Work) -> tuple[Prices, Work]:
    """Layers that differ: what is least of successive ones, where all of a chunk's count."""
    ranks = even_ranks(work.layers, work.pipeline, work.virtual)
    small, large = (np.broadcast_to(size, len(work)) for size in (ranks.small, ranks.large))

    def least(fields: Iterable[Sequence[Column]]) -> list[np.ndarray]:
        return of_runs(fields, work.shape_of, (small, large), which)

    some = (work.full > 0) & (work.full < 1)  # layers recompute, and it may be the smaller ones
    layer = LayerCost(*least(zip(*prices.each_layer, strict=True)))
    layer = layer._replace(again_full=np.where(some, prices.layer.least.again_full, layer.again_full))
    saved = memory.Saved(*least(zip(*prices.each_saved, strict=True)))
    apart = some | made_by_backwards(work)  # a layer's gradients are made when others' are there
    held = prices.held.least.saved
    saved = memory.Saved(*(np.where(apart, *pair) for pair in zip(held, saved, strict=True)))
    prices = prices._replace(
        layer=Among(prices.layer.mean, layer, prices.layer.most),
        held=Among(prices.held.mean, prices.held.least._replace(saved=saved), prices.held.most),
        slowest=_slowest(prices.each_layer, which, work),
    )
    (parameters,) = least([[shape.layer_parameters for shape in work.shapes]])
    parameters = np.where(apart, work.smallest.layer_parameters, parameters)
    return prices, replace(work.smallest, layer_parameters=parameters)


def _slowest(shapes: Sequence[LayerCost], which: np.ndarray, work: Work) -> np.ndarray:
    """Seconds of one microbatch in the layers of the slowest rank; without what only some layers recompute."""
    seconds = []
    for shape in shapes:
        each = LayerCost(*(column[which] if np.ndim(column) else column for column in shape))
        again = work.selective * each.again_selective + work.per_op * each.again_per_op
        seconds.append(each.forward + each.backward + again + np.where(work.full >= 1, each.again_full, 0.0))
    pipeline, virtual = (np.broadcast_to(column, len(work)) for column in (work.pipeline, work.virtual))
    return most_of_a_rank(np.stack(np.broadcast_arrays(*seconds)), work.shape_of, pipeline, virtual)
