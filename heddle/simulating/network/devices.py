"""Which devices a plan runs on, and what they could do at best: they are alike unless a network mixes them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from heddle.cost import compute
from heddle.simulating.network.over_network import OverNetwork
from heddle.spec.cluster import Cluster, Device
from heddle.spec.plan import Plan


def devices_of(plan: Plan, cluster: Cluster, network: OverNetwork | None) -> Counter[Device]:
    """How many of which device the ranks run on."""
    if network is None:
        return Counter({cluster.device: plan.world})
    return Counter(map(network.device, network.devices))


def peak_of(plan: Plan, cluster: Cluster, network: OverNetwork | None, precision: str) -> float:
    """Peak FLOP/s of all of them together."""
    devices = devices_of(plan, cluster, network).items()
    return sum(count * compute.peak_flops(replace(cluster, device=device), precision) for device, count in devices)
