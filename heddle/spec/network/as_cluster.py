"""A network where a job is read: from its own table or a file, and as the equal cluster that the rest of a job expects.

What differs by link and by device is priced by `heddle.simulating.network`. Whatever else asks for a cluster sees as
many devices as the network has, each with the memory of the smallest.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError
from heddle.spec.cluster import Cluster, Device, Link, Peak
from heddle.spec.network.network import Network, Speed
from heddle.spec.network.network_file import load_network, network_from_table
from heddle.spec.this_machine import this_machine


def network_of(table: dict[str, Any], folder: Path = Path()) -> Network:
    """The network of a job's [network] table, which describes it, or names a file that does."""
    if "file" not in table:
        return network_from_table(table)
    if len(table) > 1 or not isinstance(table["file"], str):
        raise HeddleError(
            "[network] has 'file' and other keys." if len(table) > 1 else "network.file is not a string.",
            "A network is described in a file or in the job, not both.",
            'Write file = "network.toml", as `heddle probe -o network.toml` makes it, and nothing else.',
        )
    return load_network(folder / table["file"])


def device_of(network: Network, group: int, cluster: Cluster) -> Device:
    """What the devices of a group are: as the network says, and what it leaves open as the cluster does."""
    own, usual = network.groups[group].device, cluster.device
    if own is None:
        return usual
    if own.host != usual.host:
        return own
    # a probe measures products in fp32: what else the cluster states is as much faster, or slower
    fp32, other = own.tflops.fp32, usual.tflops.fp32
    scale = fp32 / other if fp32 and other else 1.0

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * scale

    stated = {each.name: getattr(own.tflops, each.name) for each in fields(Peak)}
    usually = {name: scaled(getattr(usual.tflops, name)) for name in stated}
    peak = Peak(**{name: usually[name] if value is None else value for name, value in stated.items()})
    return replace(own, tflops=peak, memory_gbs=own.memory_gbs or scaled(usual.memory_gbs))


def cluster_over(network: Network, given: Cluster | None) -> Cluster:
    """Equal devices in the number of the network's: what is known of each is the given cluster's, or the first group's.

    The memory is that of the smallest, and what joins them is the slowest link inside a group.
    """
    stated = [group.device for group in network.groups if group.device is not None]
    if given is None:
        here = this_machine()
        device = stated[0] if stated and not stated[0].host else here.device
        given = replace(here, name=network.name, device=device)
    smallest = min([device.memory_gib for device in stated] or [given.device.memory_gib])
    inside = [group.inside for group in network.groups if group.inside is not None]
    slowest: Speed | None = min(inside, key=lambda speed: speed.gbps, default=network.across)
    link = Link(
        name="inside",
        gbs=slowest.gbps / 8 if slowest else 1.0,
        latency_us=min(1e9, max((speed.latency_ms for speed in inside), default=0.0) * 1e3),
        efficiency=1.0,
    )
    return replace(
        given,
        nodes=1,
        devices=network.devices,
        cores=None,
        device=replace(given.device, memory_gib=smallest),
        links=(link,),
    )
