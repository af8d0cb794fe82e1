"""What layers take and hold that shard or offload on their own: bytes on the device, copies on their own lanes.

Copies run beside the computation on lanes of their own: out to the host, in from it, and the disk behind the host,
which reads and writes in turn. The longest lane counts, and what of it is longer than the pass beside it is waited for.
A CPU copies by itself, so there all of it is. Of many plans at once, too: a `Work` of columns has columns for answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from heddle.cost import compute, network
from heddle.cost.memory import GRADIENT, MASTER, MOMENTS
from heddle.cost.work import Work
from heddle.spec.cluster import Cluster
from heddle.spec.layer_memory import LayerMemory

Numbers: TypeAlias = Any  # of one plan, or columns of many: what comes in says what goes out

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

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers
    kept: Numbers = 0.0  # gathered weights that stay over the microbatches of a step (ZeRO-2)
    unit: Numbers = 0.0  # gathered weights of one use (ZeRO-3)
    summed: Numbers = 0.0  # gradients of a layer on their way into shards


def sharded(work: Work, memory: LayerMemory) -> Numbers:
    """Whether a rank holds a share of a layer's weights; those that are offloaded are fetched like ZeRO-3's, by a lone
    replica too.
    """
    if memory.tier("weights") is not None or memory.zero < 2:
        return memory.tier("weights") is not None
    return work.replicas > 1


def states(work: Work, parameters: Numbers, memory: LayerMemory, frozen: Numbers = 0.0) -> States:
    """Of so many parameters. Masters and gradients of sharded layers are where the optimizer's state is.

    `frozen`: bytes of weights beside them that nobody updates; ZeRO-3 shares these, ZeRO-2 does not.
    """
    own = sharded(work, memory)
    if np.any(work.copied):  # weights of a reference
        copy = work.copied * parameters * work.element
        return states(replace(work, copied=0), parameters, memory, frozen + copy)
    if np.any(frozen):
        found = states(work, parameters, memory)
        if memory.tier("weights") is not None:
            return found._replace(unit=found.unit + frozen)
        shares = (memory.zero == 3) & np.asarray(own)
        kept = np.where(shares, frozen / work.sharers, frozen)
        return found._replace(weights=found.weights + kept, unit=found.unit + np.where(shares, frozen, 0.0))
    if isinstance(own, np.ndarray):
        both = (_states(work, parameters, memory, each) for each in (True, False))
        return States(*(np.where(own, *pair) for pair in zip(*both, strict=True)))
    return _states(work, parameters, memory, bool(own))


def _states(work: Work, parameters: Numbers, memory: LayerMemory, sharded: bool) -> States:
    fetched, leaves = memory.tier("weights") is not None, memory.tier("optimizer") is not None
    if sharded:
        shard = parameters / work.sharers
        return States(
            weights=0.0 if fetched else shard * (work.element if leaves else MASTER),
            gradients=0.0 if leaves else shard * GRADIENT,
            optimizer=0.0 if leaves else shard * work.moment_bytes,
            kept=parameters * work.element if memory.zero == 2 and not fetched else 0.0,
            unit=0.0 if memory.zero == 2 and not fetched else parameters * work.element,
            summed=parameters * GRADIENT,
        )
    shared = work.sharers if memory.zero >= 1 else 1.0
    each = work.moment_bytes + (MASTER if work.element < 4 else 0)
    optimizer = 0.0 if memory.tier("optimizer") else parameters / shared * each
    return States(parameters * work.element, parameters * work.gradient_bytes, optimizer)


class Gathered(NamedTuple):
    """Bytes of weights and gradients of a rank's sharded layers."""

    always: float = 0.0  # over a step: what ZeRO-2 keeps, and what is fetched ahead
    moment: float = 0.0  # while one of them computes: its weights, and its gradients on their way into shards

    @property
    def total(self) -> float:
        return self.always + self.moment


def gathered(units: list[States], ahead: int) -> Gathered:
    """Of the largest layers, and of those fetched `ahead`."""
    some = [unit for unit in units if unit.summed]
    if not some:
        return Gathered()
    fetched = sorted((unit.unit for unit in some), reverse=True)[: 1 + ahead]
    kept = sum(unit.kept for unit in some) + sum(fetched[1:])
    return Gathered(kept, fetched[0] + max(unit.summed for unit in some))


class Away(NamedTuple):
    """Bytes of one layer on one tier."""

    always: Numbers  # the home of weights and of the optimizer's state
    each: Numbers  # of every microbatch in flight


def masters_apart(work: Work, memory: LayerMemory) -> bool:
    """Whether an offloaded optimizer has masters beside the weights: of 16-bit ones, and of any that a GPU has."""
    return work.element < 4 or not (float(work.gloo) or memory.tier("weights"))


def away(work: Work, memory: LayerMemory, tier: str, leaves: Numbers, parameters: Numbers) -> Away:
    """What a layer keeps on a tier; `leaves`: bytes that it puts away per microbatch."""
    held: Numbers = 0.0
    if memory.tier("weights") == tier:
        held = held + parameters / work.sharers * work.element
    if memory.tier("optimizer") == tier:
        shared = parameters / (work.sharers if memory.zero >= 1 else 1.0)
        held = held + shared * (MOMENTS + MASTER * masters_apart(work, memory) + GRADIENT * sharded(work, memory))
    kept = memory.tier("input") or memory.tier("activations")
    return Away(held, leaves if kept == tier else 0.0)


class Copies(NamedTuple):
    """Seconds that copies of one layer add to the forward and the backward of a microbatch, and to a step."""

    forward: Numbers = 0.0
    backward: Numbers = 0.0
    step: Numbers = 0.0


class _Lanes:
    """Seconds that copies take on each lane in one pass."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.out: Numbers = 0.0
        self.back: Numbers = 0.0
        self.disk: Numbers = 0.0

    def copy(self, size: Numbers, tier: str, out: bool) -> None:
        """So many bytes to a tier, or back; what goes to disk passes the host."""
        device = self.cluster.device
        if tier == "disk":
            self.disk = self.disk + size / tier_speed(self.cluster, "disk")
        if tier == "host" or not device.host:
            seconds = size / tier_speed(self.cluster, "host")
            if out:
                self.out = self.out + seconds
            else:
                self.back = self.back + seconds

    def exposed(self, beside: Numbers) -> Numbers:
        """What is waited for beside a computation of so many seconds."""
        if self.cluster.device.host:
            return self.out + self.back + self.disk
        longest = np.maximum(np.maximum(self.out, self.back), self.disk)
        return longest - network.hidden(self.cluster, longest, beside)


def copies(
    cluster: Cluster,
    work: Work,
    memory: LayerMemory,
    leaves: Numbers,
    parameters: Numbers,
    passes: tuple[Numbers, Numbers],
    frozen: Numbers = 0.0,
) -> Copies:
    """Of one layer that puts `leaves` bytes away per microbatch; `passes`: seconds of its forward and backward.

    `frozen`: bytes of weights that nobody updates.
    """
    if not memory.offload:
        return Copies()
    forward, backward = _Lanes(cluster), _Lanes(cluster)
    if tier := memory.tier("input") or memory.tier("activations"):
        forward.copy(leaves, tier, out=True)
        backward.copy(leaves, tier, out=False)
    shard = parameters / work.sharers
    if tier := memory.tier("weights"):
        for lanes in (forward, backward):
            lanes.copy(shard * work.element + frozen / work.sharers, tier, out=False)
    step: Numbers = 0.0
    if tier := memory.tier("optimizer"):
        masters = MASTER * masters_apart(work, memory)
        moved = 2 * (MOMENTS + masters)  # read and written
        own = sharded(work, memory)  # whose gradients came as they were made, added to those of the microbatches before
        if np.any(own):
            backward.copy(own * shard * GRADIENT, tier, out=True)
            backward.copy(own * shard * GRADIENT * (1 - 1 / work.microbatches), tier, out=False)
        moved = moved + GRADIENT * (own if cluster.device.host else 1)
        if not cluster.device.host or memory.tier("weights") == tier:
            moved = moved + (masters > 0) * work.element  # weights go up again, or to their own home
        shared = parameters / (work.sharers if memory.zero >= 1 else 1.0)
        step = shared * moved / tier_speed(cluster, tier)
    return Copies(forward.exposed(passes[0]), backward.exposed(passes[1]), step)


def update_seconds(cluster: Cluster, work: Work, memory: LayerMemory, parameters: Numbers, moved: Numbers) -> Numbers:
    """The optimizer's part of a step for so many parameters, where copies of its state take `moved` seconds.

    A host updates what it keeps for a GPU beside the copies of other layers. A CPU does both by itself.
    """
    shared = work.sharers if memory.zero else 1.0
    own = compute.optimizer(cluster, work, parameters / shared)
    return moved + own if cluster.device.host else moved if memory.tier("optimizer") else own


def shard_seconds(
    cluster: Cluster, work: Work, parameters: Numbers, memory: LayerMemory, frozen: Numbers = 0.0
) -> tuple[Numbers, Numbers]:
    """What replicas exchange for one layer: for every microbatch, and once per step; `frozen`: bytes of weights that
    ZeRO-3 gathers, too.
    """
    if not np.any(np.greater(work.replicas, 1)):
        return 0.0, 0.0

    def rings(count: Numbers, turns: Numbers, in_pass: bool = False) -> Numbers:
        seconds = network.replica_rings(cluster, work, count, turns, in_pass)
        return seconds if np.ndim(seconds) else float(seconds)

    element, reduce = work.element, work.reduce_bytes
    if memory.zero == 3:
        return rings(parameters * (2 * element + reduce) + 2 * frozen, 3, in_pass=True), 0.0
    if memory.zero == 2:
        return rings(parameters * reduce, 1, in_pass=True), rings(parameters * element, 1, in_pass=True)
    count = parameters * (reduce + (reduce if memory.zero == 0 else element))
    return 0.0, rings(count, 2 / np.maximum(1.0, work.layers))
