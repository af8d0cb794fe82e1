"""What each chunk and each stage of one plan takes and holds: uneven stages, a word of recompute for each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from heddle.cost import compute, memory, network, stage
from heddle.cost.memory import Bill, Verdict
from heddle.cost.work import Work, recomputing, work_of
from heddle.schedule import Action, Kind, Schedule, build
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.plan import Plan, Recompute


def chunk_costs(
    job: Job, plan: Plan, work: Work, cluster: Cluster
) -> tuple[list[float], list[float], list[float], dict[str, float]]:
    """Seconds of one microbatch through each chunk, both ways; what of the way back is recomputing; and what part of
    all chunks' is not compute.
    """
    price = stage.layer_cost(cluster, work)
    again = {word: float(stage.again(recomputing(work, word), price)) for word in ("none", "selective", "full")}
    repeated = stage.layer_cost(cluster, recomputing(work, "full"))
    again["full"] = float(repeated.again_full)
    ends = compute.embedding(cluster, work), compute.head(cluster, work)
    send = float(network.between_stages(cluster, work))
    forward, backward, repeats = [], [], []
    parts = {"recompute": 0.0, "tensor": 0.0, "pipeline": 0.0}
    for chunk in range(plan.chunks):
        layers = plan.layers_of(chunk, job.model.layers)
        words = [plan.recompute_of(layer) for layer in layers]
        repeat = sum(again[word] for word in words)
        is_first, is_last = chunk == 0, chunk == plan.chunks - 1
        there, back = len(layers) * float(price.forward), len(layers) * float(price.backward) + repeat
        for at_end, (f, b) in zip((is_first, is_last), ends, strict=True):
            there, back = there + at_end * float(f), back + at_end * float(b)
        forward.append(there + send * (not is_last))
        backward.append(back + send * (not is_first))
        repeats.append(repeat)
        in_tensor = words.count("full") * float(repeated.tensor_again)
        parts["recompute"] += repeat - in_tensor
        parts["tensor"] += len(layers) * float(price.tensor_forward + price.tensor_backward) + in_tensor
        parts["pipeline"] += send * (2 - is_first - is_last)
    return forward, backward, repeats, parts


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


def memory_verdict(job: Job, cluster: Cluster) -> Verdict:
    """Whether a job's plan fits, for which nothing needs to be known of how fast the cluster is."""
    job = job.planned
    plan = job.plan
    assert plan is not None
    schedule = build(plan.schedule, plan.pipeline, plan.microbatches(job.train.global_batch), plan.virtual)
    return memory.verdict(bills(job, plan, work_of(job, cluster), schedule, cluster)[0], cluster.device)


def bills(
    job: Job, plan: Plan, work: Work, schedule: Schedule, cluster: Cluster
) -> tuple[tuple[Bill, ...], tuple[float, ...]]:
    """What one rank of each stage holds at its peak, and what a microbatch leaves in each chunk."""
    kept = memory.layer_activations(work)
    bytes_of: dict[Recompute, float] = {
        "none": float(kept.none),
        "selective": float(kept.selective),
        "full": float(kept.full),
    }
    ends, sent = memory.end_activations(work), float(memory.sent_message(work))
    moment_of = {word: float(kept.moment(recomputing(work, word))) for word in bytes_of}
    saved, moments, made, making = [], [], [], []
    layer = float(memory.layer_parameters(work))
    alone = plan.data == 1 and work.element == 4  # whose gradients are made by the first backward of a step
    for chunk in range(plan.chunks):
        words = [plan.recompute_of(layer) for layer in plan.layers_of(chunk, job.model.layers)]
        left = sum(bytes_of[word] for word in words)
        moment = max(moment_of[word] for word in words)
        if chunk == 0:
            moment = max(moment, float(memory.embedding_backward(work, left)))
        if chunk == plan.chunks - 1:
            moment = float(memory.last_moment(work, ends, moment)) - float(ends.left)
            left += float(ends.left)
        saved.append(left)
        moments.append(moment)
        begins, finishes = chunk == 0, chunk == plan.chunks - 1
        # a tied embedding's gradient that two stages sum lies in a buffer of its own
        summed = work.tied * work.padded_vocab * work.hidden * (begins != finishes and (begins or finishes))
        own = len(words) * layer + float(memory.end_parameters(work, begins, finishes) - summed)
        made.append(4 * own * alone)
        # when the first of its layers, the last on the way back, is at its fullest, the others' gradients are there
        missing = 4 * (layer + (begins and float(memory.end_parameters(work, True, False) - summed)))
        waiting = float(work.tied * ends.table) if plan.chunks == 1 else 0.0
        making.append(alone * (4 * own - missing + waiting + bytes_of[words[0]] + moment_of[words[0]]))
    largest = max(layer, float(work.padded_vocab * work.hidden))
    found = []
    for rank, order in enumerate(schedule.ranks):
        weights, gradients, optimizer, gathered = (
            float(value) for value in memory.states(work, _parameters(plan, work, rank), largest)
        )
        inner = plan.pipeline > 2 and (plan.virtual > 1 or 0 < rank < plan.pipeline - 1)
        neighbours = 0 if plan.pipeline == 1 else 2 if inner else 1
        steady = int(memory.sent_steadily(work, neighbours)) if neighbours else 0
        peak = _fullest(order, plan.chunks - 1, saved, moments, made, making, sent, steady)
        most, briefly = peak.activations, peak.briefly
        present = gradients - sum(made[rank :: plan.pipeline]) + peak.made
        update = gradients + float(memory.update_buffers(work, gradients)) - present - most
        waiting = float(memory.exchange_buffers(work, neighbours))
        bill = Bill(weights, present, optimizer, most, max(briefly, update) + gathered + waiting, 0.0)
        found.append(bill._replace(slack=memory.slack(cluster, bill.total)))
    return tuple(found), tuple(saved)


class _Peak(NamedTuple):
    """What a stage holds at its fullest moment, and of gradients what backwards have made by then."""

    activations: float
    briefly: float
    made: float


def _fullest(
    order: Sequence[Action],
    last: int,
    saved: list[float],
    moments: list[float],
    made: list[float],
    making: list[float],
    sent: float,
    steady: int,
) -> _Peak:
    """The fullest moment of a stage.

    What was sent to the next stage lives until the first answer from there; from then on `steady` messages do.
    """
    held = sending = grown = most = 0.0
    seen: set[int] = set()
    peak = 0.0, 0.0, 0.0
    forward = Kind.FORWARD  # looked up once: a search replays many schedules
    for kind, chunk, _ in order:
        if kind is forward:
            held += saved[chunk]
            if held + sending + grown > most:
                most, peak = held + sending + grown, (held, sending, grown)
            if chunk < last:
                sending += sent
            continue
        sending = steady * sent
        briefly = sending + moments[chunk]
        if held + briefly + grown > most:
            most, peak = held + briefly + grown, (held, briefly, grown)
        held -= saved[chunk]
        if chunk not in seen:
            seen.add(chunk)
            if held + sending + grown + making[chunk] > most:
                most, peak = held + sending + grown + making[chunk], (held, sending + making[chunk], grown)
            grown += made[chunk]
            if held + sending + grown > most:
                most, peak = held + sending + grown, (held, sending, grown)
    return _Peak(*peak)
