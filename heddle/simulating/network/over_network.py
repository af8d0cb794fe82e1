"""A step over links and devices that differ: who waits for whom, over the very links that a layout uses.

Each pipeline has its own links between stages, and each stage its own between replicas. Compute is that of the device
that a rank runs on; a sum, and a pipeline, waits for the slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from heddle.cost import compute
from heddle.cost.fits import MemoryVerdict
from heddle.cost.measured.local_machine import machine_for
from heddle.cost.memory import MemoryBreakdown
from heddle.cost.work import work_of
from heddle.errors import HeddleError
from heddle.schedule import Schedule
from heddle.simulating.chunks import ChunkCosts, chunk_costs, muon_seconds
from heddle.simulating.network.clock import Hops, NetworkTimes, clocked
from heddle.simulating.network.ending import TIED, Ending, NetworkStep
from heddle.simulating.network.prices import (
    FREE,
    alike_devices,
    bytes_by_group,
    known_device,
    orders_by,
    ranks_by_place,
    schedule_of,
    slowest_inside,
    tables_of,
    without_messages,
)
from heddle.simulating.network.replicas import EXACT, early_share, exchange_seconds
from heddle.simulating.stage_memory import parameters_of, stage_memory
from heddle.spec.cluster import Device, Link
from heddle.spec.job import Job, PlannedJob
from heddle.spec.network import Network
from heddle.spec.plan import Plan

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def step_over_network(job: Job, network: Network, devices: Sequence[int] | None = None) -> NetworkStep:
    """Predict a job's step when rank r runs on device `devices[r]` of a network; by the plan's list if left out."""
    return OverNetwork(job, network, devices).step


class OverNetwork:
    """One plan of a job over a network: prices, made once, and what follows from them."""

    def __init__(self, job: Job, network: Network, devices: Sequence[int] | None = None) -> None:
        self.job: PlannedJob = job.planned
        self.plan, self.network = self.job.plan, network
        plan = self.plan
        self._place(devices if devices is not None else plan.devices or range(plan.world))
        self.group = np.repeat(np.arange(len(network.groups)), [group.devices for group in network.groups])
        self.delay, self.speed = tables_of(network)
        self.cluster = replace(machine_for(job.cluster, plan.world), links=(self._inside(),), cores=None)
        self.work = work_of(self.job, self.cluster)
        self.held = parameters_of(self.job.model, plan, self.work)
        self.kinds = [known_device(network, group, self.cluster) for group in range(len(network.groups))]
        self._priced: dict[Device, list[ChunkCosts]] = {}
        self._variants: dict[Plan, OverNetwork] = {}
        self.alike = alike_devices(network)
        self.found: dict[tuple[int, ...], Any] = {}  # by a search, on devices like these
        self._runs: dict[
            tuple[int, tuple[int, ...], tuple[float, ...]], Floats
        ] = {}  # ends, by microbatches and devices
        self._sums: dict[tuple[float, tuple[int, ...]], float] = {}  # seconds, by gradients and members
        self._updates: dict[tuple[float, Device], float] = {}  # seconds, by parameters and device
        self.numbers = float(self.work.tokens * self.work.hidden) / plan.tensor  # of a message between stages
        self.activations = bytes_by_group(plan, network, "activations", float(self.work.element))
        self.gradients = bytes_by_group(plan, network, "gradients", EXACT)

    def _place(self, devices: Sequence[int]) -> None:
        self.devices = list(devices)
        if len(self.devices) != self.plan.world or max(self.devices) >= self.network.devices:
            raise HeddleError(
                f"The plan has {self.plan.world} ranks, but {len(self.devices)} of {self.network.devices} devices are "
                "given.",
                "Every rank runs on one device of the network.",
                "Change the degrees, or the network.",
            )
        self.places = np.array(self.devices)[ranks_by_place(self.plan)]  # device by tensor rank, replica and stage

    def on(self, devices: Sequence[int]) -> OverNetwork:
        """The same plan on other devices; prices that do not depend on them are not made again."""
        assert self.memory  # which is the same there
        other = copy(self)
        for name in ("chunks", "together", "exchanges", "update", "ending", "known", "starts", "ends", "step"):
            other.__dict__.pop(name, None)
        other._place(devices)
        if other._inside() != self.cluster.links[0]:  # collectives of tensor ranks go over other links
            return OverNetwork(self.job, self.network, devices)
        return other

    def with_parts(self, stages: tuple[int, ...], shares: tuple[int, ...]) -> OverNetwork:
        """The same devices with other layers and samples; again, prices are made once for each."""
        plan = replace(self.plan, stages=stages, shares=shares)
        if plan not in self._variants:
            self._variants[plan] = OverNetwork(replace(self.job, plan=plan, network=None), self.network, self.devices)
        return self._variants[plan].on(self.devices)

    def _inside(self) -> Link:
        return slowest_inside(self.places, self.delay, self.speed)

    def message(self, a: int, b: int) -> float:
        """Bytes of a message between stages on two devices."""
        return self.numbers * float(self.activations[self.group[a], self.group[b]])

    def sent(self, members: Ints) -> Floats:
        """Bytes of a gradient between each two of some replicas."""
        groups = self.group[members]
        return self.gradients[np.ix_(groups, groups)]

    def device(self, device: int) -> Device:
        """What a device of the network is."""
        return self.kinds[int(self.group[device])]

    def like(self, devices: Sequence[int]) -> tuple[int, ...]:
        """The same numbers for devices over which everything takes as long."""
        return tuple(self.alike[device] for device in devices)

    @cached_property
    def chunks(self) -> list[list[ChunkCosts]]:
        """Of each replica: what a microbatch takes in each chunk, on the device that holds it."""
        plan, found = self.plan, []

        def priced(device: Device) -> list[ChunkCosts]:
            if device not in self._priced:
                silent = replace(self.cluster, device=device, links=(FREE,) if plan.tensor == 1 else self.cluster.links)
                costs = chunk_costs(self.job, plan, work_of(self.job, silent), silent)
                self._priced[device] = [without_messages(each) for each in costs]
            return self._priced[device]

        for replica in range(plan.data):
            here = [self.device(int(device)) for device in self.places[0, replica]]
            found.append([priced(here[plan.rank_of(chunk)])[chunk] for chunk in range(plan.chunks)])
        return found

    def hops(self, replica: int, tensor: int = 0, free: bool = False) -> Hops:
        """The links of a pipeline, by sender and receiver: delay, and seconds of a message."""
        column, plan = self.places[tensor, replica], self.plan
        ranks = [plan.rank_of(chunk) for chunk in range(plan.chunks)]
        ways = {(a, b) for one, two in pairwise(ranks) for a, b in ((one, two), (two, one))}
        if free:
            return {(a, b): (0.0, 0.0) for a, b in ways if a != b}
        return {
            (a, b): (
                float(self.delay[column[a], column[b]]),
                self.message(column[a], column[b]) / float(self.speed[column[a], column[b]]),
            )
            for a, b in sorted(ways)
            if a != b
        }

    def schedule(self, replica: int) -> Schedule:
        """The order of work of a replica; shares of the batch may differ."""
        plan = self.plan
        count = plan.microbatches(self.job.train.global_batch, replica)
        return schedule_of(plan.schedule, plan.pipeline, count, plan.virtual, plan.extra_warmup)

    def clocked(
        self, replica: int, tensor: int = 0, free: bool = False, draw: bool = False, starts: Sequence[float] = ()
    ) -> NetworkTimes:
        """A replica's pipeline on a clock; `free`: as if messages took no time; `starts`: of its ranks, else 0."""
        costs = self.chunks[replica]
        forward, backward = (tuple(way.seconds for way in passes) for passes in zip(*costs, strict=True))
        ways = forward, backward, tuple(chunk.backward.weight for chunk in costs)
        hops = self.hops(replica, tensor, free)
        plan, count = self.plan, self.plan.microbatches(self.job.train.global_batch, replica)
        orders = orders_by(plan.schedule, plan.pipeline, count, plan.virtual, plan.extra_warmup)
        return clocked(self.schedule(replica), *ways[:2], hops, ways[2], draw=draw, orders=orders, starts=starts)

    def _ends(self, starts: Floats | None = None) -> Floats:
        """(replicas, stages): when each rank's pipeline is done, if they begin at `starts`, or all at once."""
        found = []
        for replica in range(self.plan.data):
            begin = () if starts is None else tuple(starts[replica].tolist())
            count = self.plan.microbatches(self.job.train.global_batch, replica)
            key = count, self.like(self.places[:, replica].ravel().tolist()), begin
            if key not in self._runs:  # pipelines over like links are many, and alike; so are those of tensor ranks
                unlike = {self.like(column): tensor for tensor, column in enumerate(self.places[:, replica].tolist())}
                runs = [self.clocked(replica, tensor, starts=begin).ends for tensor in unlike.values()]
                self._runs[key] = np.max(runs, axis=0)
            found.append(self._runs[key])
        return np.array(found)

    @cached_property
    def together(self) -> Floats:
        """(replicas, stages): when each rank's pipeline is done, if all begin at once."""
        return self._ends()

    @cached_property
    def starts(self) -> Floats:
        """(replicas, stages): when each rank begins, after a step that began at once; 0: when the first stages have."""
        found: Floats = self.known - self.known[:, 0].max()
        return found

    @cached_property
    def known(self) -> Floats:
        """(replicas, stages): when each rank knows all of a step that began everywhere at once."""
        return self.ending.known(self.ending.done(self.together))

    @property
    def least(self) -> float:
        """Seconds that the step takes at least, found in half the time: nobody begins earlier than the first does."""
        return float(self.known[:, 0].min()) + self.update

    @cached_property
    def ends(self) -> Floats:
        """(replicas, stages): when each rank's pipeline is done."""
        return self._ends(self.starts) if self.plan.pipeline > 1 else self.together

    @cached_property
    def exchanges(self) -> list[float]:
        """Of each stage: seconds that the sum over its replicas adds to a step; of meetings a step's part of them.

        A fragment travels beside as many steps as it may overlap with, a bucket beside the last backward.
        """
        plan, found = self.plan, []
        for stage in range(plan.pipeline):
            apart = self.tied if stage in (0, plan.last_rank) and not plan.local_steps else 0.0  # summed by itself
            seconds = self.sum_seconds(stage, (self.held[stage] - apart) / plan.fragments)
            beside = plan.overlap_steps * (float(self.together.max()) + self.update)
            exact = plan.data > 1 and not (plan.local_steps or plan.zero or self.gradients.min() < EXACT)
            if exact and (early := early_share(self.held[stage], self.work)):
                last = max(costs[stage].backward.seconds for costs in self.chunks)  # of a rank's first chunk
                beside = early * min(seconds, last)
            found.append(max(0.0, seconds - beside) * plan.fragments / max(1, plan.local_steps))
        return found

    def sum_seconds(self, stage: int, parameters: float) -> float:
        """Seconds of the sum of so many gradients over a stage's replicas."""
        if self.plan.data == 1:
            return 0.0
        return max(self._sum(members, parameters) for members in self.places[:, :, stage])

    def _sum(self, members: Ints, parameters: float) -> float:
        key = parameters, self.like(members.tolist())
        if key not in self._sums:
            self._sums[key] = exchange_seconds(
                self.delay, self.speed, members, parameters, self.work, self.sent(members)
            )
        return self._sums[key]

    @cached_property
    def update(self) -> float:
        """Seconds of the slowest optimizer."""
        shared = self.plan.data if self.plan.zero else 1
        return muon_seconds(self.job, self.work, self.cluster) + max(
            self._updating(held / shared, device)
            for stage, held in enumerate(self.held)
            for device in {self.device(int(each)) for each in self.places[0, :, stage]}
        )

    def _updating(self, parameters: float, device: Device) -> float:
        key = parameters, device
        if key not in self._updates:
            there = replace(self.cluster, device=device)
            self._updates[key] = float(compute.optimizer(there, self.work, parameters))
        return self._updates[key]

    @property
    def tied(self) -> float:
        """Numbers of a tied embedding's gradient that a rank at one end of a pipeline sends to the other end."""
        apart = self.plan.last_rank > 0 and self.job.model.tied
        return float(self.work.padded_vocab * self.work.hidden) if apart else 0.0

    @cached_property
    def ending(self) -> Ending:
        """What follows when the pipelines are done."""
        plan, last = self.plan, self.plan.last_rank
        sums = (0.0, 0.0)
        if self.tied and not plan.local_steps:
            sums = self.sum_seconds(0, self.tied), self.sum_seconds(last, self.tied)
        tied, exchanges = TIED * self.tied, np.array(self.exchanges)
        return Ending(self.places, self.delay, self.speed, exchanges, last, tied, sums, plan.local_steps > 0)

    @cached_property
    def step(self) -> NetworkStep:
        """The whole step."""
        return self.ending.step(self.ends, self.update)

    @property
    def slowest(self) -> int:
        """The replica whose pipeline is done last."""
        return int(self.ends.max(axis=1).argmax())

    @cached_property
    def memory(self) -> tuple[MemoryBreakdown, ...]:
        """What one rank of each stage holds."""
        return stage_memory(self.job, self.plan, self.work, self.schedule(self._most()), self.cluster)[0]

    def _most(self) -> int:
        shares = self.plan.shares
        return shares.index(max(shares)) if shares else 0

    def verdict(self, memory: Sequence[MemoryBreakdown] | None = None) -> MemoryVerdict:
        """Of the stage that fills the smallest of its devices most."""
        devices = [
            min((self.device(int(d)) for d in self.places[:, :, stage].ravel()), key=lambda device: device.memory_gib)
            for stage in range(self.plan.pipeline)
        ]
        breakdowns = self.memory if memory is None else memory
        needs = [float(breakdown.total) for breakdown in breakdowns]
        stage = max(range(len(needs)), key=lambda s: needs[s] / devices[s].memory_gib)
        return MemoryVerdict(stage, needs[stage], devices[stage], float(breakdowns[stage].slack))
