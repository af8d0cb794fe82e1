"""A training step in closed form: seconds and bytes of many plans at once.

Stages are as even as can be, and every stage of one kind costs the same. Then the step is exact for 1F1B, GPipe and
the interleaved schedule where all chunks cost alike, and within the unevenness of the ends elsewhere;
`heddle.simulate.events` replays what this adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from heddle.cost import compute, memory, network, stage
from heddle.cost.stage import LayerCost
from heddle.cost.work import Column, Work
from heddle.spec.cluster import Cluster

CHUNK = 4096  # plans that are priced at once: their columns stay in the cache

# What differs between plans of one model: what the price of a layer depends on, with a number above all its values,
# and what it does not depend on.
_OF_A_LAYER = {"tensor": 2**20, "microbatch": 2**20, "sequence_parallel": 2, "full": 2}
_NOT_OF_A_LAYER = {"pipeline", "virtual", "data", "zero", "gpipe", "selective", "per_op", "scatter", "regather"}


class Breakdown(NamedTuple):
    """Where the seconds of a step go, as a mean over ranks; they add up to the step."""

    compute: Column
    recompute: Column
    tensor: Column
    pipeline: Column
    data: Column  # what is not hidden of it
    optimizer: Column
    bubble: Column
    jitter: Column


@dataclass(frozen=True)
class Step:
    """What each plan's step takes and holds."""

    seconds: Column
    breakdown: Breakdown
    bubble: Column  # idle over ideal time (PTD-P §2.2.1)
    memory: Column  # bytes of the fullest rank
    fits: Column


def closed_form(work: Work, cluster: Cluster) -> Step:
    """Price every plan of `work` on a cluster; with numbers in all columns the answer is numbers."""
    work = work.as_floats()
    prices, which = _distinct_prices(work, cluster)
    if len(work) <= CHUNK:
        return _price(work, cluster, _spread(prices, which))
    chunks = [slice(start, start + CHUNK) for start in range(0, len(work), CHUNK)]
    parts = [
        _price(work.take(chunk), cluster, _spread(prices, chunk if which is None else which[chunk])) for chunk in chunks
    ]

    def joined(columns: Sequence[Column]) -> Column:
        return np.concatenate(columns)

    return Step(
        seconds=joined([part.seconds for part in parts]),
        breakdown=Breakdown(*(joined(columns) for columns in zip(*(part.breakdown for part in parts), strict=True))),
        bubble=joined([part.bubble for part in parts]),
        memory=joined([part.memory for part in parts]),
        fits=joined([part.fits for part in parts]),
    )


def _price(work: Work, cluster: Cluster, prices: Prices) -> Step:
    layer, embedding, head = prices.layer, prices.embedding, prices.head
    p, v, m, layers = work.pipeline, work.virtual, work.microbatches, work.layers
    first, last = heaviest_rank(layers, p, v)
    alone = p == 1
    again = stage.again(work, layer)
    one = layer.forward + layer.backward + again
    send = network.between_stages(cluster, work)
    ends = embedding + head

    # Seconds of one microbatch on all ranks together, and on the rank that everybody waits for.
    sends = 2 * send * (p * v - 1)
    total = layers * one + ends + sends
    slowest = np.maximum(first * one + np.where(alone, ends, 0.0), last * one + head * (p > 1)) + 2 * send * v
    slowest = np.where(alone, total, slowest)
    # (m-1) times the slowest rank, and once through all: Piper (NeurIPS 2021) §3, (m + p - 1)·(f + b) of PTD-P §2.2.1
    # where all are equal. With v chunks a rank fills and drains v times as fast (§2.2.2); with fewer microbatches than
    # ranks each lap still waits for the first of them to come round (heddle.schedule.bubble).
    few = (v > 1) & (m < p)
    laps = np.where(few, (v - 1) / v * p + m / v, m)
    pipe = laps * slowest + (total - slowest) / v

    # Where devices share cores, no core idles while anybody has work, and nobody is faster than with a core of its own.
    pace = stage.pace(cluster, work.world)
    pipe = np.maximum(pipe / stage.pace(cluster, work.world / p), m / p * total / pace) if cluster.cores else pipe

    fullest = memory.layer_parameters(work) * first
    parameters = fullest + memory.end_parameters(work, True, alone)
    per_microbatch = stage.shard_exchange(cluster, work, parameters)
    once = stage.data_exchange(cluster, work, parameters)
    beside = first * (layer.backward + again)
    data = m * (per_microbatch - stage.hidden(cluster, per_microbatch, slowest))
    data = data + once - work.data_overlap * stage.hidden(cluster, once, beside)
    data = data / pace
    shared = np.where(work.zero >= 1, work.data, 1)
    update = compute.optimizer(cluster, parameters / shared, work.element) / pace
    late = stage.slowdown(cluster, work)

    per_rank = m / p / pace
    tensor = per_rank * layers * (layer.tensor_forward + layer.tensor_backward + layer.tensor_again)
    recompute = per_rank * layers * (again - layer.tensor_again)
    busy = per_rank * total
    pipeline = per_rank * sends
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
    )
    held = _peak_memory(work, cluster, prices, fullest, first, alone)
    return Step(
        seconds=late * (pipe + data + update),
        breakdown=breakdown,
        bubble=pipe / busy - 1,
        memory=held,
        fits=memory.fits(held, cluster.device),
    )


def heaviest_rank(layers: Column, pipeline: Column, virtual: Column) -> tuple[Column, Column]:
    """Layers of the rank with most, and of the last one, when stages are as even as can be."""
    chunks = pipeline * virtual
    small = np.floor(layers / chunks)
    extra = layers - small * chunks
    # `even_stages` gives the extra layers to the chunks in the middle: to as many ranks as there are, then again.
    most = small * virtual + np.minimum(virtual, np.ceil(extra / pipeline))
    start = np.floor((chunks - extra) / 2)
    # the last rank's chunks are those at p-1, 2p-1, …; how many of them lie in [start, start + extra)
    on_last = np.floor((start + extra) / pipeline) - np.floor(start / pipeline)
    return most, small * virtual + on_last


def _peak_memory(
    work: Work, cluster: Cluster, prices: Prices, fullest: Column, layers: Column, alone: Column
) -> Column:
    """Bytes of the fullest of the first and the last rank: one holds most microbatches, the other the logits."""
    v, saved = work.virtual, prices.saved
    chunk, of_a_layer = layers / v * saved.mean(work), saved.moment(work)
    largest = np.maximum(fullest / layers, work.padded_vocab * work.hidden)
    at_end = memory.last_moment(work, prices.ends, of_a_layer)
    one, flying = v * chunk, memory.in_flight(work)
    # the last rank holds as many microbatches of its last chunk as of any
    stashed = np.where(work.gpipe, work.microbatches * v, v)
    others = (stashed / v - 1) * prices.ends.left

    def rank(is_first: Column, is_last: Column, chunks: Column, moment: Column) -> Column:
        parameters = fullest + memory.end_parameters(work, is_first, is_last)
        weights, gradients, optimizer, gathered = memory.states(work, parameters, largest)
        missing = fullest / layers + memory.end_parameters(work, is_first, False)
        making = saved.mean(work) + of_a_layer - 4 * missing
        backward = memory.with_gradients(work, gradients, chunks * chunk, one, moment, making)
        active = np.maximum(backward, gradients + memory.update_buffers(work, gradients))
        return weights + optimizer + gathered + active

    # messages that were sent before anybody answered; from then on one to each neighbour
    neighbours = np.where(alone, 0.0, 1.0 + ((v > 1) & (work.pipeline > 2)))
    steady = np.where(alone, 0.0, memory.sent_steadily(work, neighbours) * prices.sent)
    early = np.maximum(steady + of_a_layer, (flying - 1) * prices.sent)
    first = rank(True, alone, flying, np.where(alone, others + at_end, early))
    last = rank(alone, True, stashed, steady + others + at_end)
    held = np.maximum(first, last) + memory.exchange_buffers(work, neighbours)
    return held + memory.slack(cluster, held)


class Prices(NamedTuple):
    """Seconds of one microbatch in a layer and, both ways together, in the two ends of the model."""

    layer: LayerCost
    embedding: Column
    head: Column
    saved: memory.Saved  # bytes that it leaves in a layer
    ends: memory.Ends  # bytes in the output layer and the loss
    sent: Column  # bytes of a message to the next stage


def _distinct_prices(work: Work, cluster: Cluster) -> tuple[Prices, Any]:
    """Prices of the few layers that differ, and for each plan the place of its own; None: they are in order.

    Among a hundred thousand plans of one model there are perhaps fifty prices of a layer.
    """

    def price(some: Work) -> Prices:
        embedding, head = compute.embedding(cluster, some), compute.head(cluster, some)
        return Prices(
            stage.layer_cost(cluster, some),
            sum(embedding),
            sum(head),
            memory.layer_activations(some),
            memory.end_activations(some),
            memory.sent_message(some),
        )

    if not work.arrays or set(work.arrays) - _NOT_OF_A_LAYER - set(_OF_A_LAYER):
        return price(work), None
    key = np.where(work.microbatches > 1, 1.0, 0.0)
    for name, most in _OF_A_LAYER.items():
        key = key * most + getattr(work, name)
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    expanded: dict[str, Any] = {name: np.broadcast_to(getattr(work, name), len(work)) for name in work.arrays}
    return price(replace(work, **expanded).take(first)), which


def _spread(prices: Prices, which: Any) -> Prices:
    """The price of each plan from the distinct ones."""
    if which is None:
        return prices

    def one(column: Column) -> Column:
        return column[which] if np.ndim(column) else column

    layer, saved = LayerCost(*map(one, prices.layer)), memory.Saved(*map(one, prices.saved))
    ends = memory.Ends(*map(one, prices.ends))
    return Prices(layer, one(prices.embedding), one(prices.head), saved, ends, one(prices.sent))
