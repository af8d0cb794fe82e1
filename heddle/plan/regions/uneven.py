"""Layers by the speed of a stage's devices, and samples by the speed of a replica's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heddle.schedule.placement import Placement
from heddle.simulate.network.over_network import OverNetwork
from heddle.spec.plan import Plan


def shared_out(priced: OverNetwork) -> Plan:
    """The plan with stages and shares such that nobody waits for slow devices more than whole layers make them."""
    plan = priced.plan
    stages = _stages(priced) if plan.virtual == 1 and plan.placement is Placement.LOOP else plan.stages
    uneven = replace(plan, stages=stages)
    if plan.data == 1 or plan.zero >= 2 or plan.delayed is not None:
        return uneven
    return replace(uneven, shares=_shares(priced.with_parts(stages, ())))


def _stages(priced: OverNetwork) -> tuple[int, ...]:
    """Layer after layer goes where the stage that gets it is done first; the ends' own work counts."""
    plan = priced.plan
    given = np.array(plan.stages, dtype=float)
    # seconds of a stage as it is, on the slowest of its devices
    seconds = np.array(
        [max(sum(way.seconds for way in replica[stage]) for replica in priced.chunks) for stage in range(plan.pipeline)]
    )
    layer = seconds / given  # the ends' work is spread over their layers, which makes them look slower, as they are
    left = int(given.sum()) - plan.pipeline
    layers = np.ones(plan.pipeline, dtype=int)
    for _ in range(left):
        layers[int(((layers + 1) * layer).argmin())] += 1
    return tuple(layers.tolist())


def _shares(priced: OverNetwork) -> tuple[int, ...]:
    """Microbatch after microbatch goes to the replica that is done with it first; empty where all get as many."""
    plan, batch = priced.plan, priced.job.train.global_batch
    pace = np.array(
        [max(sum(way.seconds for way in chunk) for chunk in replica) for replica in priced.chunks]
    )  # of the slowest stage
    counts = np.ones(plan.data, dtype=int)
    for _ in range(batch // plan.microbatch - plan.data):
        counts[int(((counts + 1) * pace).argmin())] += 1
    if len(set(counts.tolist())) == 1:
        return ()
    return tuple((counts * plan.microbatch).tolist())
