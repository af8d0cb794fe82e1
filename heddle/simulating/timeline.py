"""A predicted step as a recorder would have measured it: on the same lanes, by the same names.

What the replay puts on a clock are whole actions. Here each is taken apart: waiting for its message, computing (with
what is recomputed first), the collectives of its layers at the end of that, and the message that it sends. A collective
that the prediction does not count, or counts with the message that it belongs to, is there without a length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from heddle.schedule import Action, Kind, Schedule
from heddle.schedule.messages import incoming, outgoing
from heddle.simulating.chunks import ChunkCosts
from heddle.spec.network.link_codes import codes_used
from heddle.spec.plan import Plan
from heddle.trace.lanes import Collective, Lane, Phase, message_name
from heddle.trace.trace import Span, Trace

KINDS = {str(kind): kind for kind in Kind}


class Tail(NamedTuple):
    """What follows the pipeline: seconds of the replicas' exchange that nothing hides, and of the optimizer."""

    start: float
    data: float
    update: float


class Sizes(NamedTuple):
    """Bytes: of a message between stages, and of the activations that a collective of a layer moves."""

    message: int
    activations: int


def timeline(
    actions: Trace, schedule: Schedule, plan: Plan, chunks: list[ChunkCosts], tail: Tail, sizes: Sizes, tied: bool
) -> Trace:
    """All spans of a step.

    Args:
        actions: when each action begins and ends, as it was replayed.
        schedule: their order, from which messages follow.
        plan: what is exchanged, by which collectives.
        chunks: what of an action is what.
        tail: what comes after them.
        sizes: of what is sent.
        tied: whether the first and the last stage share the embedding's weight.
    """
    free = [0.0] * actions.ranks  # since when each rank has nothing to do
    drawn = Trace(actions.ranks)
    for span in actions.spans:  # of a rank one after the other
        drawn.spans += _action(span, schedule, plan, chunks[span.chunk], sizes, free[span.rank])
        free[span.rank] = span.end
    for rank in range(actions.ranks):
        drawn.spans += _tail(rank, plan, tail, tied and plan.last_rank > 0 and rank in (0, plan.last_rank))
    return drawn


def _action(
    span: Span, schedule: Schedule, plan: Plan, of_chunk: ChunkCosts, sizes: Sizes, free: float
) -> Iterator[Span]:
    kind = KINDS[span.name]
    action = Action(kind, span.chunk, span.microbatch)
    cost = of_chunk.of(kind)
    stretch = (span.end - span.start) / cost.seconds
    if message := incoming(schedule, action):
        name = message_name(Lane.RECEIVE, message.kind)
        yield span._replace(lane=Lane.RECEIVE, name=name, start=free, end=span.start, bytes=sizes.message)
        if plan.tensor > 1 and not plan.sequence:  # from its slices, one of each tensor rank
            whole = Collective.ALL_GATHER
            yield span._replace(lane=Lane.TENSOR, name=whole, end=span.start, bytes=sizes.activations)
    middle = span.start + stretch * cost.again
    computed = span.end - stretch * cost.send
    if cost.again > 0:
        yield span._replace(name="recompute", end=middle)
        yield from _collectives(span, plan, middle, stretch * cost.tensor_again, sizes)
        yield from _exchange(span, plan, middle, stretch * cost.context_again, forward=True)
        yield from _with_experts(span, middle, stretch * cost.expert_again)
    yield span._replace(start=middle, end=computed)
    yield from _collectives(span, plan, computed, stretch * cost.tensor, sizes)
    if kind.owes >= 0:
        yield from _exchange(span, plan, computed, stretch * cost.context, forward=kind.direction > 0)
        yield from _with_experts(span, computed, stretch * cost.expert)
    if message := outgoing(schedule, action):
        name = message_name(Lane.SEND, message.kind)
        yield span._replace(lane=Lane.SEND, name=name, start=computed, bytes=sizes.message)


def _collectives(span: Span, plan: Plan, end: float, seconds: float, sizes: Sizes) -> Iterator[Span]:
    """Along the tensor axis, those of all layers of a chunk together, at the end of their pass."""
    if plan.tensor == 1:
        return
    names = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER) if plan.sequence else (Collective.ALL_REDUCE,)
    for place, name in enumerate(names):
        begin, until = (end - (len(names) - each) * seconds / len(names) for each in (place, place + 1))
        yield span._replace(lane=Lane.TENSOR, name=name, start=begin, end=until, bytes=sizes.activations)


def _exchange(span: Span, plan: Plan, end: float, seconds: float, forward: bool) -> Iterator[Span]:
    """Along the context axis, likewise: of the ring what nothing hides of its turns, which may be nothing."""
    if plan.context == 1:
        return
    ring = plan.context // plan.context_inner  # ranks of it
    turns = (1 if forward else 2) * (ring - 1) * [Collective.TURN]
    names = {
        "ring": turns,
        "2d": [Collective.ALL_TO_ALL, *turns, Collective.ALL_TO_ALL],
        "gather": [Collective.ALL_GATHER] if forward else [Collective.ALL_GATHER, Collective.REDUCE_SCATTER],
        "all-to-all": 2 * [Collective.ALL_TO_ALL],
    }[plan.context_exchange]
    for place, name in enumerate(names):
        begin, until = (end - (len(names) - each) * seconds / len(names) for each in (place, place + 1))
        yield span._replace(lane=Lane.CONTEXT, name=name, start=begin, end=until, bytes=0)


def _with_experts(span: Span, end: float, seconds: float) -> Iterator[Span]:
    """Along the expert axis, likewise: tokens go to their experts, and what these made comes back."""
    if seconds > 0:
        for begin in (end - seconds, end - seconds / 2):
            stop = begin + seconds / 2
            yield span._replace(lane=Lane.EXPERT, name=Collective.ALL_TO_ALL, start=begin, end=stop, bytes=0)


def _tail(rank: int, plan: Plan, tail: Tail, tied: bool) -> Iterator[Span]:
    """Gradients are made whole, over the tensor axis, the two ends and the replicas; then the optimizer's update."""
    start, end = tail.start, tail.start + tail.data + tail.update
    late = tail.data / 2 if plan.zero == 1 else 0.0  # parameters are gathered when they have been updated
    summed = start + tail.data - late
    if plan.tensor > 1 and plan.sequence:
        yield Span(rank, Lane.TENSOR, Collective.ALL_REDUCE, start, start)
    if tied and plan.pipeline > 1:
        yield Span(rank, Lane.EMBEDDING, Collective.ALL_REDUCE, start, start)
    if plan.replicas > 1:
        sums = {0: [Collective.ALL_REDUCE], 1: [Collective.REDUCE_SCATTER]}
        if codes_used(plan, "gradients"):
            sums = {0: [Collective.ALL_TO_ALL, Collective.ALL_GATHER], 1: [Collective.ALL_TO_ALL]}
        before = sums.get(plan.zero, [Collective.ALL_GATHER, Collective.REDUCE_SCATTER])
        each = (summed - start) / len(before)
        for place, name in enumerate(before):
            yield Span(rank, Lane.DATA, name, start + place * each, start + (place + 1) * each)
        if plan.zero == 1:
            yield Span(rank, Lane.DATA, Collective.ALL_GATHER, end - late, end)
    yield Span(rank, Lane.OPTIMIZER, Phase.GRADIENTS, start, summed)
    yield Span(rank, Lane.OPTIMIZER, Phase.UPDATE, summed, end)
