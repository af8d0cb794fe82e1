"""A step over links that differ: the schedule on a clock, message by message, over the very links that it uses.

Each pipeline has its own links between stages, and each stage its own between replicas. A link carries one message at a
time each way; a message arrives its delay after the last of it was sent, and delays nobody but its receiver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from heddle.cost import compute
from heddle.cost.local_machine import machine_for
from heddle.cost.work import Work, work_of
from heddle.errors import HeddleError
from heddle.schedule import Schedule
from heddle.schedule.messages import outgoing, producer
from heddle.simulate.chunks import chunk_costs
from heddle.simulate.stage_memory import parameters_of
from heddle.spec.cluster import Link
from heddle.spec.job import Job
from heddle.spec.network import Network
from heddle.spec.plan import Plan
from heddle.spec.ranks import Coordinates, rank_of

Floats = npt.NDArray[np.float64]
Hops = Mapping[tuple[int, int], tuple[float, float]]  # by sender and receiver: seconds of delay, and of sending


FREE = Link(name="free", gbs=1e9, efficiency=1.0)


@dataclass(frozen=True)
class NetworkStep:
    """What a step takes over a network, and of that what the pipelines, the replicas and the last sum take."""

    seconds: float
    pipeline: float  # until the last stage of the last pipeline is done
    exchange: float  # of replicas, that nothing hides
    agreement: float  # on loss and gradient norm


def step_over_network(job: Job, network: Network, devices: Sequence[int] | None = None) -> NetworkStep:
    """Predict a job's step when rank r runs on device `devices[r]` of a network; on device r if left out."""
    job = job.planned
    plan = job.plan
    devices = list(range(plan.world)) if devices is None else list(devices)
    if len(devices) != plan.world or max(devices) >= network.devices:
        raise HeddleError(
            f"The plan has {plan.world} ranks, and {len(devices)} of {network.devices} devices are given.",
            "Every rank has a device of the network.",
            "Change the degrees, or the network.",
        )
    cluster = replace(machine_for(job.cluster, plan.world), links=(FREE,))  # what travels is priced here
    work = work_of(job, cluster)
    schedule = plan.order_of_work(job.train.global_batch)
    costs = chunk_costs(job, plan, work, cluster)
    forward, backward = ([way.seconds for way in ways] for ways in zip(*costs, strict=True))
    held = parameters_of(job.model, plan, work)
    delay, speed = network.tables()
    places = np.array(devices)[_ranks(plan)]  # device by tensor rank, replica and stage
    message = float(work.tokens * work.hidden * work.message_bytes) / plan.tensor
    ends = np.zeros((plan.data, plan.pipeline))
    for replica in range(plan.data):
        for tensor in range(plan.tensor):
            hops = {
                (a, b): (float(delay[x, y]), message / float(speed[x, y]))
                for a, x in enumerate(places[tensor, replica])
                for b, y in enumerate(places[tensor, replica])
                if a != b
            }
            ends[replica] = np.maximum(ends[replica], end_times(schedule, forward, backward, hops))
    exchanged = [
        float(ends[:, stage].max())
        + max(
            exchange_seconds(delay, speed, places[tensor, :, stage], held[stage], work) for tensor in range(plan.tensor)
        )
        for stage in range(plan.pipeline)
    ]
    used = np.ix_(devices, devices)
    agreement = 2 * float(delay[used].max()) if plan.world > 1 and not plan.local_steps else 0.0
    update = max(float(compute.optimizer(cluster, parameters, work.element)) for parameters in held)
    pipeline, whole = float(ends.max()), max(exchanged)
    return NetworkStep(whole + agreement + update, pipeline, whole - pipeline, agreement)


def end_times(schedule: Schedule, forward: Sequence[float], backward: Sequence[float], hops: Hops) -> list[float]:
    """When each rank is done: an action starts when its rank is free and its message has come.

    Args:
        schedule: the order of work of each rank.
        forward: seconds of one microbatch through each chunk.
        backward: the same for the way back.
        hops: of each sender and receiver, seconds of delay and seconds that a message occupies the link.
    """
    arrived: dict[object, float] = {}
    free = dict.fromkeys(hops, 0.0)
    clocks, at = [0.0] * schedule.pipeline, [0] * schedule.pipeline
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(schedule.ranks):
            while at[rank] < len(order):
                action = order[at[rank]]
                maker = producer(schedule, action)
                if maker is not None and maker not in arrived:
                    break
                seconds = (forward if action.kind.direction > 0 else backward)[action.chunk]
                clock = max(clocks[rank], arrived[maker] if maker is not None else 0.0) + seconds
                clocks[rank] = arrived[action] = clock
                message = outgoing(schedule, action)
                if message is not None:
                    delay, occupied = hops[message.source, message.destination]
                    free[message.source, message.destination] = sent = (
                        max(clock, free[message.source, message.destination]) + occupied
                    )
                    arrived[action] = sent + delay
                at[rank] += 1
                moved = True
    assert all(place == len(order) for place, order in zip(at, schedule.ranks, strict=True)), "a deadlock"
    return clocks


def exchange_seconds(
    delay: Floats, speed: Floats, members: npt.NDArray[np.int64], parameters: float, work: Work
) -> float:
    """What the replicas of a stage take to sum their gradients, over their own links; of local steps each step's part.

    Exact sums go round a ring twice, as gloo's do. Codes, and sums for ZeRO-1, go straight to the owner of each share,
    all at once; codes go straight to everybody then, and parameters round a ring. A message is sent when its receiver
    has said that it expects it, so it takes the delay twice.
    """
    d = len(members)
    if d == 1:
        return 0.0
    share = parameters / d
    ring = [(a, b) for a, b in zip(members, np.roll(members, -1), strict=True)]
    pairs = [(a, b) for a in members for b in members if a != b]

    def around(turns: int, count: float) -> float:
        return turns * max(float(2 * delay[a, b] + count / speed[a, b]) for a, b in ring)

    def straight(count: float) -> float:
        return max(float(2 * delay[a, b] + count / speed[a, b]) for a, b in pairs)

    first = share * float(work.reduce_bytes)
    if work.zero == 1:
        seconds = straight(first) + around(d - 1, share * work.element)
    elif work.feedback:
        seconds = 2 * straight(first)
    else:
        seconds = around(2 * (d - 1), first)
    return seconds / max(1, int(work.local_steps))


def _ranks(plan: Plan) -> npt.NDArray[np.int64]:
    """(tensor, data, pipeline): the rank at each place."""
    ranks = np.empty((plan.tensor, plan.data, plan.pipeline), dtype=np.int64)
    for tensor, data, stage in np.ndindex(ranks.shape):
        ranks[tensor, data, stage] = rank_of(plan, Coordinates(tensor=tensor, data=data, pipeline=stage))
    return ranks
