"""A step over a network in the words of any other: where its seconds go, and its spans."""

from __future__ import annotations

from heddle.cost.breakdown import Breakdown
from heddle.simulating.chunks import not_compute
from heddle.simulating.network.over_network import OverNetwork
from heddle.simulating.timeline import Sizes, Tail, timeline
from heddle.trace.lanes import Lane, message_name
from heddle.trace.trace import Trace


def network_breakdown(priced: OverNetwork) -> tuple[Breakdown, float]:
    """Of the slowest pipeline, and its bubble: what it waits for its links counts as messages between stages."""
    step, replica, plan = priced.step, priced.slowest, priced.plan
    chunks = priced.chunks[replica]
    scale = plan.microbatches(priced.job.train.global_batch, replica) / plan.pipeline
    busy = scale * sum(way.seconds for chunk in chunks for way in chunk)
    sums = {name: scale * value for name, value in not_compute(chunks).items()}
    pipe = max(step.pipeline, busy)
    alone = min(pipe, max(busy, *priced.clocked(replica, free=True).ends))
    parts = Breakdown(
        compute=busy - sum(sums.values()),
        **sums | {"pipeline": pipe - alone},
        data=step.exchange + step.agreement,
        optimizer=priced.update,
        bubble=alone - busy,
        jitter=step.seconds - (pipe + step.exchange + step.agreement + priced.update),
    )
    return parts, alone / busy - 1


def network_timeline(priced: OverNetwork) -> Trace:
    """A replica's step as a recorder would have measured it, messages on their links for as long as these take."""
    replica, plan = priced.slowest, priced.plan
    run, chunks = priced.clocked(replica, draw=True, starts=priced.starts[replica].tolist()), priced.chunks[replica]
    tail = Tail(max(run.ends), priced.step.exchange + priced.step.agreement, priced.update)
    whole = int(priced.numbers * float(priced.work.element))
    sizes = Sizes(message=whole, activations=whole * plan.tensor)
    actions = Trace(plan.pipeline, sorted(run.actions, key=lambda span: (span.rank, span.start)))
    drawn = timeline(actions, priced.schedule(replica), plan, chunks, tail, sizes, priced.job.model.tied)
    sent = {(each.source, each.ready): each for each in run.messages}
    column = priced.places[0, replica]
    for place, span in enumerate(drawn.spans):
        if span.lane not in (Lane.SEND, Lane.RECEIVE):
            continue
        onward = span.name == message_name(Lane(span.lane), "activation")
        other = plan.rank_of(span.chunk + (1 if onward == (span.lane == Lane.SEND) else -1))
        span = span._replace(bytes=int(priced.message(column[span.rank], column[other])))
        if span.lane == Lane.SEND and (message := sent.get((span.rank, span.end))) is not None:
            span = span._replace(start=message.start, end=message.end)
        drawn.spans[place] = span
    return drawn
