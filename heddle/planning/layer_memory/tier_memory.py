"""What one rank of each stage keeps beside its device: homes of weights and states, and activations in flight."""

from __future__ import annotations

import numpy as np

from heddle.cost.layers import chunk_layers
from heddle.cost.offload import away
from heddle.cost.work import Work
from heddle.format import GIB
from heddle.schedule import Kind, Schedule
from heddle.simulating.stage_memory import bytes_of, of_a_layer, parts_of
from heddle.spec.cluster import Cluster
from heddle.spec.job import PlannedJob


def tier_bytes(job: PlannedJob, work: Work, schedule: Schedule, tier: str) -> list[float]:
    """The most bytes that one rank of each stage keeps on a tier."""
    plan, model = job.plan, job.model
    held = [0.0] * plan.pipeline
    if not any(word.endswith(tier) for memory in map(plan.memory_of, range(model.layers)) for word in memory.offload):
        return held
    for part in parts_of(model, plan, work):
        held[part.stage] += away(work, part.kind.memory, tier, 0.0, part.parameters).always
        if part.kind.memory.tier("weights") == tier:
            held[part.stage] += part.frozen / float(work.sharers)
    shapes = [bytes_of(of_a_layer(one)) for _, one in work.each_shape]
    each = np.zeros(plan.chunks)
    for chunk, layers in enumerate(chunk_layers(model, plan)):
        for kind, count in layers:
            leaves = shapes[kind.shape].saved[kind.recompute]
            each[chunk] += count * away(work, kind.memory, tier, leaves, 0.0).each
    if each.any():
        holds = np.array([kind.holds for kind in Kind])
        for rank, order in enumerate(schedule.places):
            changes = holds[order // plan.chunks] * each[order % plan.chunks]
            held[rank] += float(np.cumsum(changes).max(initial=0.0))
    return held


def fits_host(held: list[float], cluster: Cluster) -> bool:
    """Whether what leaves the devices has room beside them; where that is not known, it has."""
    room = cluster.device.host_gib
    return room is None or max(held) <= room * GIB
