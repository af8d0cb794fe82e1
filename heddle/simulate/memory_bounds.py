"""What a plan holds at least: bounds that let a search leave out what cannot fit.

Stages are as even as can be. Bytes are exact for one chunk per rank, and for interleaved chunks and groups of
microbatches that are all alike, unless gradients are made in their course (one replica in fp32). Everywhere else they
are the fullest of a few moments of the schedule: what is replayed action by action is never below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from heddle.cost import memory, messages
from heddle.cost.offload import gathered_at_least, sharded_by_layer
from heddle.cost.step import Split
from heddle.cost.work import Column, Work
from heddle.simulate.orders import Flights, Orders, RankOrder
from heddle.spec.cluster import Cluster


class HeldBytes(NamedTuple):
    """Bytes of a microbatch: left in a layer, held at the end of the model, sent on by a stage, awaited by one."""

    saved: memory.Saved
    ends: memory.Ends
    waits: Column  # of a tied embedding, for its other end
    embeds: Column  # what the embedding's backward takes beside what other microbatches left
    sent: Column
    awaited: Column


class Briefly(NamedTuple):
    """Bytes that a layer holds for a moment on its way back. Where some of a rank's recompute, its first chunk's do."""

    first: Column
    others: Column


class Moment(NamedTuple):
    """What one rank holds at one moment of a step."""

    layers: Column  # of the rank
    always: Column  # bytes, all but what microbatches left in layers
    flights: Flights


def peak_memory(
    work: Work, cluster: Cluster, orders: Orders, split: Split, held: HeldBytes, count: Column
) -> tuple[Column, Column]:
    """Bytes of the fullest rank, and bytes that it holds at least: the same where a rank's chunks are alike.

    `count`: layers of each rank that recompute everything.
    """
    saved = held.saved
    kept, gain = saved.kept(work), saved.none - saved.full
    likely: Column = 0.0
    least: Column = 0.0
    some = (work.full > 0) & (work.full < 1)
    briefly = saved.moment(work)
    others = saved.moment(work, work.full >= 1) if np.any(some) else briefly
    for moment in _moments(work, orders, split, held, Briefly(briefly, others)):
        flights, full = moment.flights, np.minimum(moment.layers, count)
        less = np.minimum(full * flights.each, flights.least) * gain
        least = np.maximum(least, moment.always + flights.least * kept - less)
        if flights.likely is not None:
            share = full / np.maximum(moment.layers, 1)
            likely = np.maximum(likely, moment.always + flights.likely * (kept - share * gain))
    likely = np.maximum(likely, least)
    if np.any(work.folded):
        folded = _in_a_v(work, orders, held, kept, count * gain)
        likely, least = np.where(work.folded, folded, likely), np.where(work.folded, folded, least)
    return likely + memory.slack(cluster, likely), least + memory.slack(cluster, least)


def fewest_recomputed(
    work: Work,
    cluster: Cluster,
    orders: Orders,
    split: Split,
    held: HeldBytes,
    most_held: HeldBytes,
    limit: float,
) -> Column:
    """Layers of each rank that must recompute everything at least so that a plan may fit: bytes fall with each.

    Where layers differ, all hold as little as the smallest, and one that recomputes spares as much as the largest.
    """
    saved, gain = held.saved, most_held.saved.none - most_held.saved.full
    briefly = Briefly(saved.none - saved.full + saved.backward, saved.backward)
    most: Column = 1.0
    for moment in _moments(work, orders, split, held, briefly):
        over = moment.always + moment.flights.least * saved.none - limit / (1 + cluster.efficiency.slack)
        most = np.maximum(most, np.ceil(over / (gain * moment.flights.each) - 1e-9))
    return np.where(work.folded, 1.0, most)


def _in_a_v(work: Work, orders: Orders, held: HeldBytes, kept: Column, less: Column) -> Column:
    """The first rank of a V at its first backward, which is of its last chunk: at least.

    By then it has taken two microbatches of its first chunk for each rank, less one, and one of its last chunk. `less`:
    bytes that the rank's recomputing layers do not keep of a microbatch.
    """
    ranks, layer = orders.ranks, memory.layer_parameters(work)
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


class PlanBytes(NamedTuple):
    """What all ranks of a plan have in common."""

    work: Work
    orders: Orders
    split: Split
    held: HeldBytes
    briefly: Briefly
    layer: Column  # parameters
    samples: Column  # a step's tokens and targets
    turning: Column  # what a layer of the last chunk holds for a moment
    some: bool  # some plans of several chunks per rank recompute in some layers


def _moments(work: Work, orders: Orders, split: Split, held: HeldBytes, briefly: Briefly) -> Iterator[Moment]:
    """The moments of which one is the fullest of a step.

    It is on one of a few ranks: there at the first backward, or before it when most messages are on their way; at the
    embedding's backward; when gradients are summed; or as soon as a chunk's gradients have been made.
    """
    several = work.virtual > 1
    plan = PlanBytes(
        work=work,
        orders=orders,
        split=split,
        held=held,
        briefly=briefly,
        layer=memory.layer_parameters(work),
        samples=messages.step_samples(work),
        turning=briefly.first if briefly.others is briefly.first else np.where(several, *reversed(briefly)),
        some=bool(np.any(several & (work.full > 0) & (work.full < 1))),
    )
    for rank in orders.looked_at:
        yield from _moments_of(rank, plan)


class RankBytes(NamedTuple):
    """A rank, and what it holds at every moment of a step."""

    rank: RankOrder
    plan: PlanBytes
    base: Column  # weights, optimizer, gathered parameters, messages that are awaited
    gradients: Column  # at the end of the step
    grows: Column  # of these, what the first backwards make
    present: Column  # base, and of the gradients what was there before
    steady: Column  # messages that were sent and not yet used

    def moment(self, always: Column, flights: Flights) -> Moment:
        """That moment."""
        return Moment(self.rank.layers, always, flights)

    def at_end(self, others: Column) -> Column:
        """What the last chunk holds, if so many other microbatches are in it."""
        ends, turning = self.plan.held.ends, self.plan.turning
        if self.rank.last is False:
            return turning
        last = others * ends.left + np.maximum(ends.left + ends.briefly, turning + self.plan.held.waits)
        return last if self.rank.last is True else np.where(self.rank.last, last, turning)


def _moments_of(rank: RankOrder, plan: PlanBytes) -> Iterator[Moment]:
    work, held, states = plan.work, plan.held, plan.split.states
    end = plan.split.first_end if rank.first else plan.split.last_end if rank.last is True else 0.0
    parameters = rank.layers * plan.layer + end
    gathered = parameters * states.gathered if np.any(states.gathered) else 0.0
    if np.any(states.of_largest):
        gathered = gathered + states.of_largest * np.maximum(plan.layer, work.padded_vocab * work.hidden)
    if np.any(states.of_largest) and np.any(sharded := sharded_by_layer(work)):
        always, moment = gathered_at_least(work, rank.layers, plan.layer, end)
        gathered = np.where(sharded, always, gathered)
        # layers that the backward has passed have let go, so one that recomputes need not be the fullest
        least = np.minimum(*plan.briefly) + moment
        briefly = Briefly(*(np.where(sharded, least, each) for each in plan.briefly))
        plan = plan._replace(briefly=briefly, turning=np.where(sharded, least, plan.turning))
    base = parameters * states.kept + gathered + plan.samples + rank.awaited * held.awaited
    if np.any(work.gloo * work.tied):
        end = (work.pipeline > 1) if rank.first else rank.last
        base = base + np.where(end, messages.awaited_table(work), 0.0)
    gradients = parameters * states.gradients
    made = work.element == 4 and made_by_backwards(work)
    grows = memory.made_gradients(work, rank.layers * plan.layer, rank.first, rank.last) if np.any(made) else 0.0
    of_rank = RankBytes(
        rank=rank,
        plan=plan,
        base=base,
        gradients=gradients,
        grows=grows,
        present=base + (np.where(made, gradients - grows, gradients) if np.any(made) else gradients),
        steady=rank.steady * held.sent,
    )
    yield from _first_moments(of_rank)
    if np.any(made):
        yield from _moments_of_growth(of_rank)


def _first_moments(of: RankBytes) -> Iterator[Moment]:
    """At the first backward, at the update, at the embedding's first backward, and where the first chunk recomputes."""
    rank, work, ends = of.rank, of.plan.work, of.plan.held.ends
    others = of.plan.orders.others
    going = rank.sends * of.plan.held.sent
    if rank.last is True:
        going = going + (others + 1) * ends.left
    yield of.moment(of.present + np.maximum(of.steady + of.at_end(others), going), rank.at_first)
    if np.any(work.gloo):
        update = of.base + of.gradients + messages.update_buffers(work, of.gradients)
        yield of.moment(update, Flights(0.0, None, 1.0))
    if rank.at_embedding is not None:
        always = of.present + of.steady + of.plan.held.embeds
        if np.any(made := work.element == 4 and made_by_backwards(work)):
            already = (work.virtual - 1) * of.plan.orders.ranks.small * of.plan.layer * work.gradient_bytes
            always = always + np.where(made, already, 0.0)
        if np.any(work.gpipe):
            always = always + np.where(rank.last, others * ends.left, 0.0)
        yield of.moment(always, rank.at_embedding)
    if of.plan.some and rank.recomputing is not None:
        yield of.moment(of.present + of.steady + of.plan.briefly.first, rank.recomputing)


def _moments_of_growth(of: RankBytes) -> Iterator[Moment]:
    """One backward after the first of each chunk's: gradients come while activations go."""
    rank, work, ends, saved = of.rank, of.plan.work, of.plan.held.ends, of.plan.held.saved
    chunks, layer, small = rank.chunks, of.plan.layer, of.plan.orders.ranks.small
    assert chunks is not None
    v, m, made = work.virtual, work.microbatches, made_by_backwards(work) & ~work.splits
    some = (work.full > 0) & (work.full < 1)
    one_layer = np.where(some, saved.none + saved.backward, saved.mean(work) + saved.moment(work))
    # where backwards are taken in two, gradients come later than that; and a rank without layers is none
    whole = (1.0 - work.splits) * (1 if rank.first else rank.layers > 0)
    turning = (m * v - chunks.started - 1) / chunks.group
    for lap in (0, np.floor(turning), np.ceil(turning), v - 1):
        done = np.clip(lap, 0, v - 1)
        k = done * chunks.group + 2
        ends_made = np.where(rank.last, of.grows - rank.layers * layer * work.gradient_bytes, 0.0)
        grown = (done + 1) * small * layer * work.gradient_bytes + ends_made
        grown = of.gradients - of.grows + np.where(done == v - 1, of.grows, grown)
        here = np.where((done == 0) & (m > 1), of.at_end(np.where(work.gpipe, m - 2, 0)), of.plan.briefly.others)
        always = of.base + np.where(made, grown, 0.0) + of.steady + np.where(k <= m * v, here, 0.0)
        yield of.moment(always * whole, chunks.later(chunks.at(k) * whole))
        # and at the end of that first one
        lately = memory.last_layer(work, one_layer, layer, (done == v - 1) & np.asarray(rank.first))
        always = of.base + np.where(made, grown, 0.0) + of.steady + lately
        always = always + np.where(rank.last & (work.gpipe > 0) & (done == 0), (m - 1) * ends.left, 0.0)
        yield of.moment(always * whole, chunks.later((chunks.at(k - 1) - 1) * whole))
    if rank.first is True:
        stashed = chunks.at((v - 1) * chunks.group + 2) - 1
        always = of.base + of.gradients + of.steady + of.plan.held.embeds
        always = always + np.where(rank.last & (work.gpipe > 0), (m - 2) * ends.left, 0.0)
        yield of.moment(np.where(m > 1, always, 0.0) * whole, chunks.later(np.maximum(stashed, 0) * whole))
