"""What a plan holds at least: bounds that let a search leave out what cannot fit.

Stages are as even as can be. They are the fullest of a few moments of the schedule, without the messages under way and
without what a way back holds beyond its first layer: what is replayed action by action is never below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from heddle.cost import adapters, end_memory, memory, messages
from heddle.cost.step import Split
from heddle.cost.work import Work
from heddle.schedule.rule import Column, Mask
from heddle.simulating.orders import Flights, Orders, RankOrder
from heddle.spec.cluster import Cluster


class HeldBytes(NamedTuple):
    """Bytes of a microbatch: left in a layer, held at the end of the model, sent on by a stage, awaited by one."""

    saved: memory.Saved
    ends: end_memory.Ends[Column]
    waits: Column  # of a tied embedding, for its other end
    embeds: Column  # what the embedding's backward takes beside what other microbatches left
    sent: Column
    awaited: Column


class Moment(NamedTuple):
    """What one rank holds at one moment of a step."""

    layers: Column  # of the rank
    always: Column  # bytes, all but what microbatches left in layers
    flights: Flights
    more: Column = 0.0  # that it holds as a rule, though not at least


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
    # layers that recompute come before those that do not, whose memory is free by then
    briefly = saved.moment(work, work.full >= 1)
    for moment in _moments(work, orders, split, held, briefly):
        flights, full = moment.flights, np.minimum(moment.layers, count)
        less = np.minimum(full * flights.each, flights.least) * gain
        here = moment.always + flights.least * kept - less
        least, likely = np.maximum(least, here), np.maximum(likely, here + moment.more)
        if flights.likely is not None:
            share = full / np.maximum(moment.layers, 1)
            likely = np.maximum(likely, moment.always + moment.more + flights.likely * (kept - share * gain))
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
    most: Column = 1.0
    for moment in _moments(work, orders, split, held, saved.backward):
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
    always = always + adapters.held(
        work, ranks.first * adapters.frozen_layer(work) + adapters.frozen_end(work, True, True)
    )
    started = np.minimum(2 * work.pipeline - 1, work.microbatches) + 1
    gain = held.saved.none - held.saved.full
    chunk = ranks.small * kept - np.minimum(less, ranks.small * gain)
    return always + started * chunk + held.ends.left


def made_by_backwards(work: Work) -> Mask:
    """Whether gradients are not there before a step's first backwards make them: those of one replica in fp32."""
    return (work.replicas == 1) & (work.element == 4)


class PlanBytes(NamedTuple):
    """What all ranks of a plan have in common."""

    work: Work
    orders: Orders
    split: Split
    held: HeldBytes
    briefly: Column  # what a layer holds for a moment on its way back
    layer: Column  # parameters
    samples: Column  # a step's tokens and targets


def _moments(work: Work, orders: Orders, split: Split, held: HeldBytes, briefly: Column) -> Iterator[Moment]:
    """The moments of which one is the fullest of a step.

    It is on one of a few ranks: there at the first backward; at the embedding's backward; when gradients are summed; or
    as soon as a chunk's gradients have been made.
    """
    plan = PlanBytes(
        work=work,
        orders=orders,
        split=split,
        held=held,
        briefly=briefly,
        layer=memory.layer_parameters(work),
        samples=messages.step_samples(work),
    )
    for rank in orders.looked_at:
        yield from _moments_of(rank, plan)


class RankBytes(NamedTuple):
    """A rank, and what it holds at every moment of a step."""

    rank: RankOrder
    plan: PlanBytes
    base: Column  # weights, optimizer, gathered parameters
    gradients: Column  # at the end of the step
    grows: Column  # of these, what the first backwards make
    present: Column  # base, and of the gradients what was there before
    more: Column  # weights gathered ahead, and gradients on their way to their owners

    def moment(self, always: Column, flights: Flights) -> Moment:
        """That moment."""
        return Moment(self.rank.layers, always, flights, self.more)

    def at_end(self, others: Column) -> Column:
        """What the last chunk holds, if so many other microbatches are in it."""
        ends, turning = self.plan.held.ends, self.plan.briefly
        if self.rank.last is False:
            return turning
        last = others * ends.left + np.maximum(ends.left + ends.briefly, turning + self.plan.held.waits)
        return last if self.rank.last is True else np.where(self.rank.last, last, turning)


def _moments_of(rank: RankOrder, plan: PlanBytes) -> Iterator[Moment]:
    work, states = plan.work, plan.split.states
    end = plan.split.first_end if rank.first else plan.split.last_end if rank.last is True else 0.0
    parameters = rank.layers * plan.layer + end
    gathered = parameters * states.gathered if np.any(states.gathered) else 0.0
    gradients: Column = parameters * states.gradients
    more: Column = 0.0
    if np.any(states.of_largest) and np.any(sharded := (work.zero >= 2) & (work.replicas > 1)):
        ahead = states.of_largest * np.maximum(plan.layer, work.padded_vocab * work.hidden)  # while another computes
        usual = gathered + ahead + gradients + plan.briefly
        gathered = np.where(sharded, np.where(work.zero == 2, parameters * work.element, 0.0), gathered)
        # which backwards make: of one microbatch, or where all forwards come first, none has before the fullest moment
        none_yet = np.equal(work.microbatches, 1) | work.gpipe
        gradients = np.where(sharded & none_yet, 0.0, gradients)
        least = plan.layer * (np.where(work.zero == 3, work.element, 0) + memory.GRADIENT)
        least = least + np.where(work.zero == 3, adapters.frozen_layer(work), 0.0)
        plan = plan._replace(briefly=np.where(sharded, least, plan.briefly))
        estimated = sharded & (np.asarray(work.replayed) == 0)
        more = np.where(estimated, np.maximum(usual - gathered - gradients - plan.briefly, 0.0), 0.0)
    base = parameters * states.kept + gathered + plan.samples
    if np.any(work.frozen):
        alone = work.pipeline == 1
        ends = adapters.frozen_end(work, alone | rank.first, alone | (rank.last is True))
        ends = ends if rank.first or rank.last is True else 0.0
        base = base + adapters.held(work, rank.layers * adapters.frozen_layer(work) + ends)
    if np.any(work.gloo * work.tied):
        with_other = (work.pipeline > 1) if rank.first else rank.last
        base = base + np.where(with_other, messages.awaited_table(work), 0.0)
    made = work.element == 4 and made_by_backwards(work)
    grows = end_memory.made_gradients(work, rank.layers * plan.layer, rank.first, rank.last) if np.any(made) else 0.0
    of_rank = RankBytes(
        rank=rank,
        plan=plan,
        base=base,
        gradients=gradients,
        grows=grows,
        present=base + (np.where(made, gradients - grows, gradients) if np.any(made) else gradients),
        more=more,
    )
    yield from _first_moments(of_rank)
    if np.any(made):
        yield from _moments_of_growth(of_rank)


def _first_moments(of: RankBytes) -> Iterator[Moment]:
    """At the first backward, at the update, and at the embedding's first backward."""
    rank, work, ends = of.rank, of.plan.work, of.plan.held.ends
    others = of.plan.orders.others
    yield of.moment(of.present + of.at_end(others), rank.at_first)
    if np.any(work.gloo):
        update = of.base + of.gradients + messages.update_buffers(work, of.gradients)
        yield of.moment(update, Flights(0.0, None, 1.0))
    if rank.at_embedding is not None:
        always = of.present + of.plan.held.embeds
        if np.any(made := work.element == 4 and made_by_backwards(work)):
            already = (work.virtual - 1) * of.plan.orders.ranks.small * of.plan.layer * work.gradient_bytes
            always = always + np.where(made, already, 0.0)
        if np.any(work.gpipe):
            always = always + np.where(rank.last, others * ends.left, 0.0)
        yield of.moment(always, rank.at_embedding)


def _moments_of_growth(of: RankBytes) -> Iterator[Moment]:
    """One backward after the first of each chunk's: gradients come while activations go."""
    rank, work, ends, saved = of.rank, of.plan.work, of.plan.held.ends, of.plan.held.saved
    chunks, layer, small = rank.chunks, of.plan.layer, of.plan.orders.ranks.small
    assert chunks is not None
    v, m, made = work.virtual, work.microbatches, made_by_backwards(work) & ~work.splits
    some = (work.full > 0) & (work.full < 1)
    one_layer = np.where(some, saved.none + saved.backward, saved.mean(work) + saved.moment(work))
    # where backwards are taken in two, gradients come later than that; and a rank without layers is none
    whole = (1.0 - work.splits) * (1 if rank.first else rank.layers > 0) * (m > 1)
    turning = (m * v - chunks.started - 1) / chunks.group
    for lap in (0, np.floor(turning), np.ceil(turning), v - 1):
        done = np.clip(lap, 0, v - 1)
        k = done * chunks.group + 2
        ends_made: Column = np.where(rank.last, of.grows - rank.layers * layer * work.gradient_bytes, 0.0)
        grown: Column = (done + 1) * small * layer * work.gradient_bytes + ends_made
        grown = of.gradients - of.grows + np.where(done == v - 1, of.grows, grown)
        here = np.where((done == 0) & (m > 1), of.at_end(np.where(work.gpipe, m - 2, 0)), of.plan.briefly)
        always: Column = of.base + np.where(made, grown, 0.0) + np.where(k <= m * v, here, 0.0)
        yield of.moment(always * whole, chunks.later(chunks.at(k) * whole))
        # and at the end of that first one
        lately = end_memory.last_layer(work, one_layer, layer, (done == v - 1) & np.asarray(rank.first))
        always = of.base + np.where(made, grown, 0.0) + lately
        always = always + np.where(rank.last & (work.gpipe > 0) & (done == 0), (m - 1) * ends.left, 0.0)
        yield of.moment(always * whole, chunks.later((chunks.at(k - 1) - 1) * whole))
    if rank.first is True:
        stashed = chunks.at((v - 1) * chunks.group + 2) - 1
        always = of.base + of.gradients + of.plan.held.embeds
        always = always + np.where(rank.last & (work.gpipe > 0), (m - 2) * ends.left, 0.0)
        yield of.moment(np.where(m > 1, always, 0.0) * whole, chunks.later(np.maximum(stashed, 0) * whole))
