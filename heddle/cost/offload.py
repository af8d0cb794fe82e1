"""What layers take and hold that shard or offload on their own: bytes on the device, copies on their own lanes.

Copies run beside the computation on lanes of their own: out to the host, in from it, and the disk behind the host,
which reads and writes in turn. The longest lane counts, and what of it is longer than the pass beside it is waited for.
A CPU copies by itself, so there all of it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heddle.cost import compute, network
from heddle.cost.memory import MASTER, MOMENTS
from heddle.cost.work import Column, Work
from heddle.spec.cluster import Cluster
from heddle.spec.layer_memory import LayerMemory

HOST_GBS = 25.0  # each way over PCIe 4 x16, as measured on A100 hosts
DISK_GBS = 2.0  # what a common NVMe drive sustains while it is read and written


def tier_speed(cluster: Cluster, tier: str) -> float:
    """Bytes per second to a tier, or back."""
    device = cluster.device
    if tier == "disk":
        return (device.disk_gbs or DISK_GBS) * 1e9
    memory = device.memory_gbs / 2 if device.host and device.memory_gbs else HOST_GBS  # read here, written there
    return (device.host_gbs or memory) / device.host_sharing * 1e9


class States(NamedTuple):
    """Bytes that the parameters of one layer, or one end of the model, take on the device."""

    weights: float
    gradients: float
    optimizer: float
    kept: float = 0.0  # gathered weights that stay over the microbatches of a step (ZeRO-2)
    unit: float = 0.0  # gathered weights of one use (ZeRO-3)
    summed: float = 0.0  # gradients of a layer on their way into shards


def states(work: Work, parameters: float, memory: LayerMemory) -> States:
    """Of so many parameters; weights that are offloaded are fetched like ZeRO-3's, by a lone replica too."""
    fetched = memory.tier("weights") is not None
    data = float(work.data)
    if (memory.zero >= 2 and data > 1) or fetched:
        shard = parameters / data
        return States(
            weights=0.0 if fetched else shard * MASTER,
            gradients=shard * 4,
            optimizer=0.0 if memory.tier("optimizer") else shard * MOMENTS,
            kept=parameters * work.element if memory.zero == 2 and not fetched else 0.0,
            unit=0.0 if memory.zero == 2 and not fetched else parameters * work.element,
            summed=parameters * 4,
        )
    shared = data if memory.zero >= 1 else 1.0
    each = MOMENTS + (MASTER if work.element < 4 else 0)
    optimizer = 0.0 if memory.tier("optimizer") else parameters / shared * each
    return States(parameters * work.element, parameters * float(work.gradient_bytes), optimizer)


class Gathered(NamedTuple):
    """Bytes of weights and gradients of a rank's sharded layers."""

    always: float = 0.0  # over a step: what ZeRO-2 keeps, and what is fetched ahead
    moment: float = 0.0  # while one of them computes: its weights, and its gradients on their way into shards

    @property
    def total(self) -> float:
        return self.always + self.moment


def gathered(units: list[States], ahead: int) -> Gathered:
    """Of the largest layers, and of those fetched `ahead`."""
    sharded = [unit for unit in units if unit.summed]
    if not sharded:
        return Gathered()
    fetched = sorted((unit.unit for unit in sharded), reverse=True)[: 1 + ahead]
    kept = sum(unit.kept for unit in sharded) + sum(fetched[1:])
    return Gathered(kept, fetched[0] + max(unit.summed for unit in sharded))


def sharded_by_layer(work: Work) -> Column:
    """Whether replicas share weights or gradients within a pipeline, where they are gathered layer by layer."""
    return (work.zero >= 2) & (work.pipeline > 1) & (work.data > 1)


def gathered_at_least(work: Work, layers: Column, layer: Column, end: Column) -> tuple[Column, Column]:
    """Bytes that a rank then gathers, over a step and for a moment, for many plans at once; nothing further ahead.

    It has so many layers of so many parameters each, and an end of the model with others, or none.
    """
    largest = np.maximum(layer, end)
    ahead = np.where((layers > 1) | (end > layer), layer, end)
    always = np.where(work.zero == 2, layers * layer + end, ahead) * work.element
    return always, np.where(work.zero == 3, largest, 0.0) * work.element + 4 * largest


class Away(NamedTuple):
    """Bytes of one layer on one tier."""

    always: float  # the home of weights and of the optimizer's state
    each: float  # of every microbatch in flight


def away(work: Work, memory: LayerMemory, tier: str, leaves: float, parameters: float) -> Away:
    """What a layer keeps on a tier; `leaves`: bytes that it puts away per microbatch."""
    held = 0.0
    if memory.tier("weights") == tier:
        held += parameters / float(work.data) * MASTER
    if memory.tier("optimizer") == tier:
        shared = parameters / (float(work.data) if memory.zero >= 1 else 1.0)
        held += shared * (MOMENTS + MASTER * (work.element < 4 and memory.tier("weights") is None))
    kept = memory.tier("input") or memory.tier("activations")
    return Away(held, leaves if kept == tier else 0.0)


class Copies(NamedTuple):
    """Seconds that copies of one layer add to the forward and the backward of a microbatch, and to a step."""

    forward: float = 0.0
    backward: float = 0.0
    step: float = 0.0


class _Lanes:
    """Seconds that copies take on each lane in one pass."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.out = self.back = self.disk = 0.0

    def copy(self, size: float, tier: str, out: bool) -> None:
        """So many bytes to a tier, or back; what goes to disk passes the host."""
        device = self.cluster.device
        if tier == "disk":
            self.disk += size / tier_speed(self.cluster, "disk")
        if tier == "host" or not device.host:
            seconds = size / tier_speed(self.cluster, "host")
            if out:
                self.out += seconds
            else:
                self.back += seconds

    def exposed(self, beside: float) -> float:
        """What is waited for beside a computation of so many seconds."""
        if self.cluster.device.host:
            return self.out + self.back + self.disk
        longest = max(self.out, self.back, self.disk)
        return longest - float(network.hidden(self.cluster, longest, beside))


def copies(
    cluster: Cluster, work: Work, memory: LayerMemory, leaves: float, parameters: float, passes: tuple[float, float]
) -> Copies:
    """Of one layer that puts `leaves` bytes away per microbatch; `passes`: seconds of its forward and backward."""
    if not memory.offload:
        return Copies()
    forward, backward = _Lanes(cluster), _Lanes(cluster)
    if tier := memory.tier("input") or memory.tier("activations"):
        forward.copy(leaves, tier, out=True)
        backward.copy(leaves, tier, out=False)
    if tier := memory.tier("weights"):
        for lanes in (forward, backward):
            lanes.copy(parameters / float(work.data) * MASTER, tier, out=False)
    step = 0.0
    if tier := memory.tier("optimizer"):
        shared = parameters / (float(work.data) if memory.zero >= 1 else 1.0)
        masters = MASTER if work.element < 4 or not cluster.device.host else 0
        # read and written; beside a GPU gradients come down first, and weights go up again
        moved = 2 * (MOMENTS + masters) + (0 if cluster.device.host else 4 + work.element)
        step = shared * moved / tier_speed(cluster, tier)
    return Copies(forward.exposed(passes[0]), backward.exposed(passes[1]), step)


def update_seconds(cluster: Cluster, work: Work, memory: LayerMemory, parameters: float, moved: float) -> float:
    """The optimizer's part of a step for so many parameters, where copies of its state take `moved` seconds.

    A host updates what it keeps for a GPU beside the copies of other layers. A CPU does both by itself.
    """
    shared = float(work.data) if memory.zero else 1.0
    own = float(compute.optimizer(cluster, parameters / shared, work.element))
    return moved + own if cluster.device.host else moved or own


def shard_seconds(cluster: Cluster, work: Work, parameters: float, memory: LayerMemory) -> tuple[float, float]:
    """What replicas exchange for one layer: for every microbatch, and once per step."""
    data, stride, element = float(work.data), float(work.tensor), work.element
    reduce = float(work.reduce_bytes)
    if data == 1:
        return 0.0, 0.0
    if memory.zero == 3:
        return float(network.rings(cluster, parameters * (2 * element + reduce), 3, data, stride, in_pass=True)), 0.0
    if memory.zero == 2:
        gather = float(network.rings(cluster, parameters * element, 1, data, stride, in_pass=True))
        return float(network.rings(cluster, parameters * reduce, 1, data, stride, in_pass=True)), gather
    count = parameters * (reduce + (reduce if memory.zero == 0 else element))
    return 0.0, float(network.rings(cluster, count, 2 / max(1.0, float(work.layers)), data, stride))
