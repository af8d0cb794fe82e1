"""What each chunk and each stage of one plan takes and holds: uneven stages, a word of recompute for each layer."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from heddle.cost import compute, memory, network, stage
from heddle.cost.memory import Bill
from heddle.cost.stage import LayerCost
from heddle.cost.work import Work, recomputing
from heddle.schedule import Schedule
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.plan import Plan


def chunk_costs(
    job: Job, plan: Plan, work: Work, cluster: Cluster
) -> tuple[list[float], list[float], list[float], dict[str, float]]:
    """Seconds of one microbatch through each chunk, both ways; what of the way back is recomputing; and what part of
    all chunks' is not compute.
    """
    price, *ends = _priced(cluster, _of_a_layer(work))
    again = {"none": 0.0, "selective": price.again_selective, "full": price.again_full}
    send = float(network.between_stages(cluster, work))
    forward, backward, repeats = [], [], []
    parts = {"recompute": 0.0, "tensor": 0.0, "pipeline": 0.0}
    for chunk in range(plan.chunks):
        layers = plan.layers_of(chunk, job.model.layers)
        words = [plan.recompute_of(layer) for layer in layers]
        repeat = sum(again[word] for word in words)
        is_first, is_last = chunk == 0, chunk == plan.chunks - 1
        there, back = len(layers) * price.forward, len(layers) * price.backward + repeat
        for at_end, (f, b) in zip((is_first, is_last), ends, strict=True):
            there, back = there + at_end * f, back + at_end * b
        forward.append(there + send * (not is_last))
        backward.append(back + send * (not is_first))
        repeats.append(repeat)
        in_tensor = words.count("full") * price.tensor_again
        parts["recompute"] += repeat - in_tensor
        parts["tensor"] += len(layers) * (price.tensor_forward + price.tensor_backward) + in_tensor
        parts["pipeline"] += send * (2 - is_first - is_last)
    return forward, backward, repeats, parts


def _of_a_layer(work: Work) -> Work:
    """The same for all works whose layers cost the same: a search looks at many of them."""
    batch = work.microbatch * min(2, work.microbatches)  # gradients are added up from the second microbatch on
    return recomputing(replace(work, batch=batch, pipeline=1, virtual=1, data=1, zero=0, gpipe=0), "full")


@lru_cache(maxsize=1024)
def _priced(cluster: Cluster, work: Work) -> tuple[LayerCost, tuple[float, float], tuple[float, float]]:
    """A layer that recomputes everything, the embedding, and the head, both ways: plain numbers."""
    layer = LayerCost(*map(float, stage.layer_cost(cluster, work)))
    (a, b), (c, d) = compute.embedding(cluster, work), compute.head(cluster, work)
    return layer, (float(a), float(b)), (float(c), float(d))


def tail(
    plan: Plan, work: Work, cluster: Cluster, pipe: float, microbatches: int, backward: list[float]
) -> tuple[float, float]:
    """Seconds that replicas' communication adds to a step, and those of the optimizer, on the stage that has most."""
    held = [_parameters(plan, work, rank) for rank in range(plan.pipeline)]
    most = max(held)
    each = stage.shard_exchange(cluster, work, most)
    once = stage.data_exchange(cluster, work, most)
    last = sum(backward[chunk] for chunk in range(0, plan.chunks, plan.pipeline))
    data = microbatches * (each - stage.hidden(cluster, each, pipe / microbatches))
    data = data + once - work.data_overlap * stage.hidden(cluster, once, last)
    shared = plan.data if plan.zero else 1
    return float(data), float(compute.optimizer(cluster, most / shared, work.element))


def _parameters(plan: Plan, work: Work, rank: int) -> float:
    """Parameters of one rank of a stage."""
    layers = sum(plan.stages[rank :: plan.pipeline])
    ends = memory.end_parameters(work, rank == 0, rank == plan.pipeline - 1)
    return float(layers * memory.layer_parameters(work) + ends)


def bills(
    job: Job, plan: Plan, work: Work, schedule: Schedule, cluster: Cluster
) -> tuple[tuple[Bill, ...], tuple[float, ...]]:
    """What one rank of each stage holds at its peak, and what a microbatch leaves in each chunk."""
    kept = memory.layer_activations(work)
    bytes_of = {"none": float(kept.none), "selective": float(kept.selective), "full": float(kept.full)}
    left, briefly = (float(value) for value in memory.end_activations(work))
    saved, moments = [], []
    for chunk in range(plan.chunks):
        words = [plan.recompute_of(layer) for layer in plan.layers_of(chunk, job.model.layers)]
        is_last = chunk == plan.chunks - 1
        saved.append(sum(bytes_of[word] for word in words) + is_last * left)
        moments.append(max([bytes_of["none"] - bytes_of[word] for word in words] + [is_last * briefly]))
    found = []
    change = np.array(saved + [-each for each in saved])  # by a forward, by a backward
    for rank, order in enumerate(schedule.places):
        most = float(np.cumsum(change[order]).max())
        layer = float(memory.layer_parameters(work))
        largest = max(layer, float(work.padded_vocab * work.hidden))
        weights, gradients, optimizer, gathered = (
            float(value) for value in memory.states(work, _parameters(plan, work, rank), largest)
        )
        buffers = max(moments[rank :: plan.pipeline]) + gathered + float(memory.exchange_buffers(work))
        bill = Bill(weights, gradients, optimizer, most, buffers, 0.0)
        found.append(bill._replace(slack=memory.slack(cluster, bill.total)))
    return tuple(found), tuple(saved)
