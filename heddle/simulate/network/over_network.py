"""A step over links and devices that differ: who waits for whom, over the very links that a layout uses.

Each pipeline has its own links between stages, and each stage its own between replicas. Compute is that of the device
that a rank runs on; a sum, and a pipeline, waits for the slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from heddle.cost import compute
from heddle.cost.fits import MemoryVerdict
from heddle.cost.local_machine import machine_for
from heddle.cost.memory import MemoryBreakdown
from heddle.cost.work import work_of
from heddle.errors import HeddleError
from heddle.schedule import Schedule, build
from heddle.simulate.chunks import ChunkCosts, chunk_costs
from heddle.simulate.network.clock import Clocked, Hops, clocked
from heddle.simulate.network.replicas import EXACT, exchange_seconds
from heddle.simulate.stage_memory import parameters_of, stage_memory
from heddle.spec.cluster import Cluster, Device, Link
from heddle.spec.job import Job, PlannedJob
from heddle.spec.network import Network
from heddle.spec.network.as_cluster import device_of
from heddle.spec.network.compression import bytes_per_number
from heddle.spec.network.link_codes import What, code_of
from heddle.spec.plan import Plan
from heddle.spec.ranks import Coordinates, rank_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FREE = Link(name="free", gbs=1e9, efficiency=1.0)


@dataclass(frozen=True)
class NetworkStep:
    """What a step takes over a network, and of that what the pipelines, the replicas and the last sum take."""

    seconds: float
    pipeline: float  # until the last stage of the last pipeline is done
    exchange: float  # of replicas, that nothing hides
    agreement: float  # on loss and gradient norm


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
        self.delay, self.speed = _tables(network)
        self.cluster = replace(machine_for(job.cluster, plan.world), links=(self._inside(),), cores=None)
        self.work = work_of(self.job, self.cluster)
        self.held = parameters_of(self.job.model, plan, self.work)
        self._priced: dict[Device, list[ChunkCosts]] = {}
        self._variants: dict[Plan, OverNetwork] = {}
        self.numbers = float(self.work.tokens * self.work.hidden) / plan.tensor  # of a message between stages
        self.activations = _bytes_by_group(plan, network, "activations", float(self.work.element))
        self.gradients = _bytes_by_group(plan, network, "gradients", EXACT)

    def _place(self, devices: Sequence[int]) -> None:
        self.devices = list(devices)
        if len(self.devices) != self.plan.world or max(self.devices) >= self.network.devices:
            raise HeddleError(
                f"The plan has {self.plan.world} ranks, but {len(self.devices)} of {self.network.devices} devices are "
                "given.",
                "Every rank runs on one device of the network.",
                "Change the degrees, or the network.",
            )
        self.places = np.array(self.devices)[_ranks(self.plan)]  # device by tensor rank, replica and stage

    def on(self, devices: Sequence[int]) -> OverNetwork:
        """The same plan on other devices; prices that do not depend on them are not made again."""
        if self.plan.tensor > 1:  # whose collectives go over other links
            return OverNetwork(self.job, self.network, devices)
        other = copy(self)
        for name in ("chunks", "ends", "exchanges", "update", "step"):
            other.__dict__.pop(name, None)
        other._place(devices)
        return other

    def with_parts(self, stages: tuple[int, ...], shares: tuple[int, ...]) -> OverNetwork:
        """The same devices with other layers and samples; again, prices are made once for each."""
        plan = replace(self.plan, stages=stages, shares=shares)
        if plan not in self._variants:
            self._variants[plan] = OverNetwork(replace(self.job, plan=plan, network=None), self.network, self.devices)
        return self._variants[plan].on(self.devices)

    def _inside(self) -> Link:
        """What tensor ranks talk over: the slowest link between those of any one place of the mesh."""
        if self.plan.tensor == 1:
            return FREE
        speeds, delays = [], []
        for column in self.places.reshape(self.plan.tensor, -1).T:
            pairs = np.ix_(column, column)
            speeds.append(float(self.speed[pairs].min()))
            delays.append(float(self.delay[pairs].max()))
        return Link(name="inside", gbs=min(speeds) / 1e9, latency_us=max(delays) * 1e6, efficiency=1.0)

    def message(self, a: int, b: int) -> float:
        """Bytes of a message between stages on two devices."""
        return self.numbers * float(self.activations[self.group[a], self.group[b]])

    def sent(self, members: Ints) -> Floats:
        """Bytes of a gradient between each two of some replicas."""
        groups = self.group[members]
        return self.gradients[np.ix_(groups, groups)]

    def device(self, device: int) -> Device:
        """What a device of the network is."""
        return _known_device(self.network, int(self.group[device]), self.cluster)

    @cached_property
    def chunks(self) -> list[list[ChunkCosts]]:
        """Of each replica: what a microbatch takes in each chunk, on the device that holds it."""
        plan, found = self.plan, []

        def priced(device: Device) -> list[ChunkCosts]:
            if device not in self._priced:
                silent = replace(self.cluster, device=device, links=(FREE,) if plan.tensor == 1 else self.cluster.links)
                costs = chunk_costs(self.job, plan, work_of(self.job, silent), silent)
                self._priced[device] = [_without_messages(each) for each in costs]
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
        return _schedule(plan.schedule, plan.pipeline, count, plan.virtual, plan.extra_warmup)

    def clocked(self, replica: int, tensor: int = 0, free: bool = False, draw: bool = False) -> Clocked:
        """A replica's pipeline on a clock; `free`: as if messages took no time."""
        costs = self.chunks[replica]
        forward, backward = (tuple(way.seconds for way in passes) for passes in zip(*costs, strict=True))
        ways = forward, backward, tuple(chunk.backward.weight for chunk in costs)
        hops = self.hops(replica, tensor, free)
        if draw:
            return clocked(self.schedule(replica), ways[0], ways[1], hops, ways[2], draw=True)
        plan, count = self.plan, self.plan.microbatches(self.job.train.global_batch, replica)
        key = plan.schedule, plan.pipeline, count, plan.virtual, plan.extra_warmup
        return Clocked([], [], list(_ends(key, ways, tuple(hops.items()))))

    @cached_property
    def ends(self) -> Floats:
        """(replicas, stages): when each rank's pipeline is done."""
        plan = self.plan
        return np.array(
            [
                np.max([self.clocked(replica, tensor).ends for tensor in range(plan.tensor)], axis=0)
                for replica in range(plan.data)
            ]
        )

    @cached_property
    def exchanges(self) -> list[float]:
        """Of each stage: seconds that the sum over its replicas adds to a step; of meetings a step's part of them.

        A fragment travels beside as many steps as it may overlap with.
        """
        plan, found = self.plan, []
        for stage in range(plan.pipeline):
            held = self.held[stage] / plan.fragments
            seconds = max(
                exchange_seconds(self.delay, self.speed, members, held, self.work, self.sent(members))
                for members in self.places[:, :, stage]
            )
            beside = plan.overlap_steps * (float(self.ends.max()) + self.update)
            found.append(max(0.0, seconds - beside) * plan.fragments / max(1, plan.local_steps))
        return found

    @cached_property
    def update(self) -> float:
        """Seconds of the slowest optimizer."""
        shared = self.plan.data if self.plan.zero else 1
        return max(
            float(
                compute.optimizer(replace(self.cluster, device=self.device(int(d))), held / shared, self.work.element)
            )
            for stage, held in enumerate(self.held)
            for d in {int(each) for each in self.places[0, :, stage]}
        )

    @cached_property
    def step(self) -> NetworkStep:
        """The whole step."""
        plan = self.plan
        pipeline = float(self.ends.max())
        whole = max(float(self.ends[:, s].max()) + seconds for s, seconds in enumerate(self.exchanges))
        used = np.ix_(self.devices, self.devices)
        agreement = 2 * float(self.delay[used].max()) if plan.world > 1 and not plan.local_steps else 0.0
        return NetworkStep(whole + agreement + self.update, pipeline, whole - pipeline, agreement)

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
        bills = self.memory if memory is None else memory
        needs = [float(bill.total) for bill in bills]
        stage = max(range(len(needs)), key=lambda s: needs[s] / devices[s].memory_gib)
        return MemoryVerdict(stage, needs[stage], devices[stage], float(bills[stage].slack))


def _without_messages(costs: ChunkCosts) -> ChunkCosts:
    """What is sent is priced by the links."""
    forward, backward = (way._replace(seconds=way.seconds - way.send, send=0.0) for way in costs)
    return ChunkCosts(forward, backward)


def _bytes_by_group(plan: Plan, network: Network, what: What, exact: float) -> Floats:
    """(groups, groups): bytes of a number on a link between each two groups, and inside each."""
    names = [group.name for group in network.groups]
    if not plan.codes:
        usual = plan.compress_gradients if what == "gradients" else plan.compress_activations
        return np.full((len(names), len(names)), bytes_per_number(usual, exact))
    return np.array([[bytes_per_number(code_of(plan, what, a, b), exact) for b in names] for a in names])


_schedule = lru_cache(maxsize=64)(build)


@lru_cache(maxsize=4096)
def _ends(
    key: tuple[str, int, int, int, int | None],
    ways: tuple[tuple[float, ...], ...],
    hops: tuple[tuple[tuple[int, int], tuple[float, float]], ...],
) -> tuple[float, ...]:
    """When each rank is done. Pipelines over like links are many, and alike."""
    return tuple(clocked(_schedule(*key), ways[0], ways[1], dict(hops), ways[2]).ends)


@lru_cache(maxsize=16)
def _tables(network: Network) -> tuple[Floats, Floats]:
    return network.tables()


@lru_cache(maxsize=256)
def _known_device(network: Network, group: int, cluster: Cluster) -> Device:
    return device_of(network, group, cluster)


@lru_cache(maxsize=64)
def _ranks_of(tensor: int, data: int, pipeline: int) -> Ints:
    plan = Plan(tensor=tensor, data=data, pipeline=pipeline)
    ranks = np.empty((tensor, data, pipeline), dtype=np.int64)
    for t, d, stage in np.ndindex(ranks.shape):
        ranks[t, d, stage] = rank_of(plan, Coordinates(tensor=t, data=d, pipeline=stage))
    return ranks


def _ranks(plan: Plan) -> Ints:
    """(tensor, data, pipeline): the rank at each place."""
    return _ranks_of(plan.tensor, plan.data, plan.pipeline)
