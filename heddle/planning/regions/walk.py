"""Better layouts for a plan over a network: devices exchanged, again and again from other beginnings.

An exchange of two devices rarely undoes a choice of whole groups. So when no exchange helps any more, stages or groups
change places, or a layout is drawn, and the exchanges begin anew (iterated local search). Where devices differ, each
layout has its layers by the speed of a stage's devices, and its samples by the speed of a replica's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from heddle.planning.regions.problem import Ints
from heddle.schedule.placement import ChunkPlacement
from heddle.simulating.network.ending import NetworkStep
from heddle.simulating.network.over_network import OverNetwork
from heddle.spec.job import Job
from heddle.spec.network import Network
from heddle.spec.plan import Plan

PATIENCE = 10  # beginnings in a row from which nothing better was found


@dataclass(frozen=True)
class NetworkPlan:
    """A plan, the device of each of its ranks, and what a step takes."""

    plan: Plan
    devices: tuple[int, ...]
    step: NetworkStep

    @property
    def placed(self) -> Plan:
        """The plan with its devices, as a job file keeps it."""
        return replace(self.plan, devices=self.devices)

    @property
    def degrees(self) -> tuple[int, int, int]:
        """Tensor, stages and replicas."""
        return self.plan.tensor, self.plan.pipeline, self.plan.data


def measured(priced: OverNetwork, devices: tuple[int, ...], below: float = math.inf) -> NetworkPlan | None:
    """A plan on some devices, with layers and samples by their speed; None if it does not fit, or not into `below`."""
    key = priced.like(devices)
    if key not in priced.found:
        here = priced.on(devices)
        if below < math.inf and _equal(here) and here.least >= below:
            return None
        priced.found[key] = _measured(here, devices)
    found: NetworkPlan | None = priced.found[key]
    return None if found is None else replace(found, devices=devices)


def _equal(here: OverNetwork) -> bool:
    """Whether devices are equal, which want equal parts."""
    return len({here.device(device) for device in here.devices}) == 1


def _measured(here: OverNetwork, devices: tuple[int, ...]) -> NetworkPlan | None:
    if not _equal(here):
        uneven = shared_out(here)
        if uneven != here.plan:
            other = here.with_parts(uneven.stages, uneven.shares)
            if other.step.seconds < here.step.seconds and other.verdict().fits:
                return NetworkPlan(uneven, devices, other.step)
    if not here.verdict().fits:
        return None
    return NetworkPlan(here.plan, devices, here.step)


def exchanged(job: Job, network: Network, found: NetworkPlan, end: float) -> NetworkPlan:
    """The same with places exchanged, two tensor groups at a time, as long as that helps and time is left."""
    even = replace(found.plan, stages=(), shares=())
    priced = OverNetwork(replace(job, plan=even, network=None), network, found.devices)
    return _descended(priced, found, end)


def walked(
    job: Job, network: Network, found: NetworkPlan, plans: Sequence[Plan], end: float, draws: np.random.Generator
) -> NetworkPlan:
    """The best that exchanges lead to from many beginnings, each with the best of all `plans` for where it ended."""
    prices: dict[Plan, OverNetwork] = {}

    def priced(plan: Plan) -> OverNetwork:
        plan = replace(plan, stages=(), shares=())
        if plan not in prices:
            prices[plan] = OverNetwork(replace(job, plan=plan, network=None), network, found.devices)
        return prices[plan]

    alike = [plan for plan in plans if bool(plan.codes) == bool(found.plan.codes)]
    best, idle = found, 0
    while idle < PATIENCE and time.process_time() < end:
        idle += 1
        begun = measured(priced(best.plan), _elsewhere(best, network, draws))
        if begun is None:
            continue
        here = _descended(priced(best.plan), begun, end)
        if here.step.seconds < best.step.seconds * 1.1:  # else no other schedule makes up for it
            others = (
                measured(priced(plan), here.devices, here.step.seconds) for plan in alike if time.process_time() < end
            )
            here = min((here, *(each for each in others if each is not None)), key=lambda each: each.step.seconds)
            here = _descended(priced(here.plan), here, end)
        if here.step.seconds < best.step.seconds * (1 - 1e-9):
            best, idle = here, 0
    return best


def _descended(priced: OverNetwork, found: NetworkPlan, end: float) -> NetworkPlan:
    """Exchanges of two tensor groups, as long as one helps; after one that does, the next pair is looked at."""
    tensor = found.plan.tensor
    count = len(found.devices) // tensor
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    since = place = 0
    while since < len(pairs) and time.process_time() < end:
        a, b = pairs[place]
        place, since = (place + 1) % len(pairs), since + 1
        devices = list(found.devices)
        if priced.alike[devices[a * tensor]] == priced.alike[devices[b * tensor]]:
            continue
        one, two = slice(a * tensor, (a + 1) * tensor), slice(b * tensor, (b + 1) * tensor)
        devices[one], devices[two] = devices[two], devices[one]
        tried = measured(priced, tuple(devices), found.step.seconds)
        if tried is not None and tried.step.seconds < found.step.seconds * (1 - 1e-9):
            found, since = tried, 0
    return found


def _elsewhere(found: NetworkPlan, network: Network, draws: np.random.Generator) -> tuple[int, ...]:
    """Another beginning: stages, replicas or a few devices change places, or groups are laid out in a drawn order."""
    tensor, stages, replicas = found.degrees
    at: Ints = np.array(found.devices).reshape(stages, replicas, tensor)  # tensor ranks are next to each other
    way = draws.random()
    if way < 0.3:
        groups = np.split(np.arange(network.devices), network.first_device[1:])
        order = np.concatenate([groups[index] for index in draws.permutation(len(groups))]).reshape(-1, tensor)
        by_stage = draws.random() < 0.5
        at = order.reshape(at.shape) if by_stage else order.reshape(replicas, stages, tensor).transpose(1, 0, 2)
    elif way < 0.5:
        at = at[draws.permutation(stages)]
    elif way < 0.6:
        at = at[:, draws.permutation(replicas)]
    else:
        flat = at.reshape(-1, tensor).copy()
        few = draws.choice(len(flat), size=min(len(flat), int(draws.integers(2, 6))), replace=False)
        flat[few] = flat[np.roll(few, 1)]
        at = flat
    return tuple(at.ravel().tolist())


def shared_out(priced: OverNetwork) -> Plan:
    """The plan with stages and shares such that nobody waits for slow devices more than whole layers make them."""
    plan = priced.plan
    stages = _stages(priced) if plan.virtual == 1 and plan.placement is ChunkPlacement.LOOP else plan.stages
    uneven = replace(plan, stages=stages)
    if plan.data == 1 or plan.zero >= 2 or plan.late is not None:
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
