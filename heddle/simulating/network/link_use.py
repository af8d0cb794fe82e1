"""What the links of a network carry in a step."""

from __future__ import annotations

from typing import NamedTuple

from heddle.simulating.network.ending import TIED
from heddle.simulating.network.over_network import OverNetwork
from heddle.simulating.network.replicas import exchange_messages


class LinkUse(NamedTuple):
    """What goes from one group to another in a step: bytes, seconds that its links are busy, and waiting for them."""

    source: str
    target: str
    stages: float  # bytes of activations and their gradients
    replicas: float  # bytes of gradients between replicas, and between the ends of pipelines that share a weight
    busy: float  # seconds of the busiest link
    waiting: float  # seconds that receivers wait, over all of them


def link_uses(priced: OverNetwork) -> list[LinkUse]:
    """What goes from each group to each other in a step, the busiest first."""
    plan, names = priced.plan, [group.name for group in priced.network.groups]
    found: dict[tuple[int, int], list[float]] = {}

    def add(a: int, b: int, stages: float, replicas: float, busy: float, waiting: float) -> None:
        use = found.setdefault((int(priced.group[a]), int(priced.group[b])), [0.0] * 4)
        use[0], use[1], use[2], use[3] = (
            use[0] + stages,
            use[1] + replicas,
            max(use[2], busy),
            use[3] + waiting,
        )

    for replica in range(plan.data):
        for tensor in range(plan.tensor):
            column, hops = priced.places[tensor, replica], priced.hops(replica, tensor)
            run = priced.clocked(replica, tensor, draw=True, starts=priced.starts[replica].tolist())
            for (a, b), (_, occupied) in hops.items():
                sent = [each for each in run.messages if (each.source, each.target) == (a, b)]
                late = sum(each.arrived - each.ready for each in sent)
                size = priced.message(column[a], column[b])
                add(column[a], column[b], len(sent) * size, 0.0, len(sent) * occupied, late)
    every = max(1, plan.local_steps)
    for stage in range(plan.pipeline):
        for tensor in range(plan.tensor):
            members = priced.places[tensor, :, stage]
            for a, b, size in exchange_messages(members, priced.held[stage], priced.work, priced.sent(members)):
                seconds = size / float(priced.speed[a, b]) / every
                add(a, b, 0.0, size / every, seconds, priced.exchanges[stage] / len(members))
    if priced.tied:
        for column in priced.places.reshape(-1, plan.pipeline):
            ends = int(column[0]), int(column[plan.last_rank])
            for a, b in (ends, ends[::-1]):
                size = TIED * priced.tied
                seconds = size / float(priced.speed[a, b])
                add(a, b, 0.0, size, seconds, seconds + float(priced.delay[a, b]))
    uses = [LinkUse(names[a], names[b], *use) for (a, b), use in found.items()]
    return sorted(uses, key=lambda use: (-use.busy, use.source, use.target))
