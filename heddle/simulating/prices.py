"""What plans are priced by: seconds and bytes of one microbatch in a layer, and what follows from orders and splits.

Each depends on few fields of a plan, and is computed once for each combination of their values. Where layers differ,
bounds ask for the least of successive ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from heddle.cost import compute, end_memory, memory, messages
from heddle.cost import step as stage
from heddle.cost.network import between_stages
from heddle.cost.step import LayerCost, Split, split_of
from heddle.cost.work import Work
from heddle.schedule.rule import Column
from heddle.simulating.among import Among, among
from heddle.simulating.distinct import Once, once
from heddle.simulating.layer_range import most_of_a_rank, of_runs
from heddle.simulating.memory_bounds import HeldBytes, made_by_backwards
from heddle.simulating.orders import Orders, even_ranks, orders_of
from heddle.spec.cluster import Cluster


class LayerSeconds(NamedTuple):
    """Seconds of one microbatch in a layer and, both ways together, in the two ends of the model."""

    layer: Among[LayerCost[Column]]
    embedding: Column
    head: Column
    message: Column  # between stages
    each: tuple[LayerCost[Column], ...]  # of each shape, where layers differ
    slowest: Column = 0.0  # of the layers of the slowest rank, at least, where layers differ

    @classmethod
    def of(cls, work: Work, cluster: Cluster) -> LayerSeconds:
        """Of all plans of `work`."""
        costs = tuple(stage.layer_cost(cluster, one) for _, one in work.each_shape)
        layer = among(costs, [count for count, _ in work.each_shape])
        ends = sum(compute.embedding(cluster, work)), sum(compute.head(cluster, work))
        return cls(layer, *ends, between_stages(cluster, work), costs if work.shapes else ())


class PricedBytes(NamedTuple):
    """Bytes of one microbatch in a layer and at the ends of the model."""

    held: Among[HeldBytes]
    each: tuple[memory.Saved, ...]  # of each shape, where layers differ

    @classmethod
    def of(cls, work: Work) -> PricedBytes:
        """Of all plans of `work`."""
        saved = tuple(memory.layer_activations(one) for _, one in work.each_shape)
        ends = end_memory.end_activations(work)
        waits = end_memory.waiting_table(work, ends)
        embeds = end_memory.embedding_backward(work, 0.0) + waits
        sent, awaited = messages.sent_message(work), messages.awaited_message(work)
        every = among(saved, [count for count, _ in work.each_shape])
        held = every.map(lambda each: HeldBytes(each, ends, waits, embeds, sent, awaited))
        return cls(held, saved if work.shapes else ())


class Prices(NamedTuple):
    """What is known of some plans; what was not asked for has no prices."""

    seconds: LayerSeconds
    bytes: PricedBytes
    orders: Orders
    split: Split
    smallest: Work  # the plans' work as if its layers had as few parameters as can be


NO_SECONDS, NO_BYTES = cast("LayerSeconds", None), cast("PricedBytes", None)


class KnownPrices(NamedTuple):
    """What depends on few fields of a plan each."""

    seconds: Once[LayerSeconds] | None
    bytes: Once[PricedBytes] | None
    orders: Once[Orders]
    splits: Once[Split]

    @classmethod
    def of(cls, work: Work, cluster: Cluster, seconds: bool, held: bool) -> KnownPrices:
        t, c, p, d = work.tensor, work.context, work.pipeline, work.data
        x, whole, layer = work.expert, work.whole_experts, layer_fields(work)
        partly = bool(np.any((work.full > 0) & (work.full < 1)))
        return cls(
            once(work, layer, lambda some: LayerSeconds.of(some, cluster)) if seconds else None,
            once(work, layer, PricedBytes.of) if held else None,
            once(work, (p, work.virtual, work.schedule, d * work.microbatch), lambda some: orders_of(some, partly)),
            once(work, (t, c, p, d, x, whole, work.zero, work.sharing), lambda some: split_of(some, cluster)),
        )

    def plans(self, chunk: slice, work: Work) -> Prices:
        """Of some plans."""
        seconds = NO_SECONDS if self.seconds is None else self.seconds.of(chunk)
        held = NO_BYTES if self.bytes is None else self.bytes.of(chunk)
        smallest = work.smallest
        which = (self.seconds or self.bytes or self.orders).which
        if work.shapes and which is not None:
            runs = _Runs(work, which[chunk])
            seconds = seconds if self.seconds is None else runs.seconds(seconds, self.seconds.record)
            held = held if self.bytes is None else runs.bytes(held, self.bytes.record)
            smallest = runs.smallest()
        return Prices(seconds, held, self.orders.of(chunk), self.splits.of(chunk), smallest)


def layer_fields(work: Work) -> list[Any]:
    """The fields of a plan that the price of a layer depends on."""
    # gradients are added up from the second microbatch on; weights may become 8 bits once for all of them
    samples = work.data * work.microbatch
    several = samples if np.any(work.fp8) else np.less(samples, work.batch).astype(np.int64)
    fields: list[Any] = [
        work.tensor,
        work.context,
        work.context_exchange,
        work.context_inner,
        work.expert,
        work.whole_experts,
    ]
    fields += [work.microbatch, work.sequence_parallel, several, np.greater(work.pipeline, 1).astype(np.int64)]
    return [*fields, work.world, work.scatter]


class _Runs:
    """Layers that differ: what is least of successive ones, where all of a chunk's count."""

    def __init__(self, work: Work, which: np.ndarray) -> None:
        """`which`: the price of each plan among the distinct ones."""
        self.work, self.which = work, which
        ranks = even_ranks(work.layers, work.pipeline, work.virtual)
        self.sizes = np.broadcast_to(ranks.small, len(work)), np.broadcast_to(ranks.large, len(work))
        self.some = (work.full > 0) & (work.full < 1)  # layers recompute, and it may be the smaller ones
        self.apart = self.some | made_by_backwards(work)  # a layer's gradients are made when others' are there

    def least(self, fields: Iterable[Sequence[Column]]) -> list[np.ndarray]:
        return of_runs(fields, self.work.shape_of, self.sizes, self.which)

    def seconds(self, prices: LayerSeconds, distinct: LayerSeconds) -> LayerSeconds:
        """`prices`: of each plan, from the `distinct` ones."""
        layer = LayerCost(*self.least(zip(*distinct.each, strict=True)))
        layer = layer._replace(again_full=np.where(self.some, prices.layer.least.again_full, layer.again_full))
        every = Among(prices.layer.mean, layer, prices.layer.most)
        return prices._replace(layer=every, slowest=slowest_rank(prices.each, self.work))

    def bytes(self, prices: PricedBytes, distinct: PricedBytes) -> PricedBytes:
        """`prices`: of each plan, from the `distinct` ones."""
        saved = memory.Saved(*self.least(zip(*distinct.each, strict=True)))
        held = prices.held.least.saved
        # of the layer that is on its way back, whichever that is
        brief = {name: getattr(held, name) for name in ("backward", "again")}
        elementwise = self.work.elementwise > 0
        brief = {name: np.where(elementwise, value, getattr(saved, name)) for name, value in brief.items()}
        saved = saved._replace(remade=held.remade, **brief)
        saved = memory.Saved(*(np.where(self.apart, *pair) for pair in zip(held, saved, strict=True)))
        least = prices.held.least._replace(saved=saved)
        return prices._replace(held=Among(prices.held.mean, least, prices.held.most))

    def smallest(self) -> Work:
        """The work as if its layers had as few parameters as can be."""
        smallest, names = self.work.smallest, ("layer_parameters", "expert_parameters")
        fields = ([getattr(shape, name) for shape in self.work.shapes] for name in names)
        runs = zip(names, self.least(fields), strict=True)
        dense, experts = (np.where(self.apart, getattr(smallest, name), run) for name, run in runs)
        return replace(smallest, layer_parameters=dense, expert_parameters=experts)


def slowest_rank(
    shapes: Sequence[LayerCost[Column]], work: Work, ends: tuple[Column, Column] | None = None
) -> np.ndarray:
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


def _degrees(work: Work) -> tuple[np.ndarray, np.ndarray]:
    plans = max(1, len(work))  # one where every column is a number
    return np.broadcast_to(work.pipeline, plans), np.broadcast_to(work.virtual, plans)
