"""What prices of a step over a network are made of, made once for all layouts that share it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from heddle.schedule import build
from heddle.simulating.chunks import ChunkCosts
from heddle.simulating.network.clock import Orders, orders_of
from heddle.spec.axes import Coordinates
from heddle.spec.cluster import Cluster, Device, Link
from heddle.spec.network import Network
from heddle.spec.network.as_cluster import device_of
from heddle.spec.network.compression import bytes_per_number
from heddle.spec.network.link_codes import What, code_of
from heddle.spec.plan import Plan
from heddle.spec.ranks import rank_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FREE = Link(name="free", gbs=1e9, efficiency=1.0)


def without_messages(costs: ChunkCosts) -> ChunkCosts:
    """What is sent is priced by the links."""
    forward, backward = (way._replace(seconds=way.seconds - way.send, send=0.0) for way in costs)
    return ChunkCosts(forward, backward)


def bytes_by_group(plan: Plan, network: Network, what: What, exact: float) -> Floats:
    """(groups, groups): bytes of a number on a link between each two groups, and inside each."""
    names = [group.name for group in network.groups]
    if not plan.codes:
        usual = plan.compress_gradients if what == "gradients" else plan.compress_activations
        return np.full((len(names), len(names)), bytes_per_number(usual, exact))
    return np.array([[bytes_per_number(code_of(plan, what, a, b), exact) for b in names] for a in names])


schedule_of = lru_cache(maxsize=64)(build)


@lru_cache(maxsize=64)
def orders_by(*key: Any) -> Orders:
    """`orders_of` a schedule, by what `schedule_of` takes."""
    return orders_of(schedule_of(*key))


@lru_cache(maxsize=16)
def tables_of(network: Network) -> tuple[Floats, Floats]:
    return network.tables()


def slowest_inside(places: Ints, delay: Floats, speed: Floats) -> Link:
    """What tensor ranks talk over: the slowest link between those of any one place of the mesh."""
    if len(places) == 1:
        return FREE
    speeds, delays = [], []
    for column in places.reshape(len(places), -1).T:
        pairs = np.ix_(column, column)
        speeds.append(float(speed[pairs].min()))
        delays.append(float(delay[pairs].max()))
    return Link(name="inside", gbs=min(speeds) / 1e9, latency_us=max(delays) * 1e6, efficiency=1.0)


@lru_cache(maxsize=256)
def known_device(network: Network, group: int, cluster: Cluster) -> Device:
    return device_of(network, group, cluster)


@lru_cache(maxsize=64)
def _each_rank(tensor: int, data: int, pipeline: int) -> Ints:
    plan = Plan(tensor=tensor, data=data, pipeline=pipeline)
    ranks = np.empty((tensor, data, pipeline), dtype=np.int64)
    for t, d, stage in np.ndindex(ranks.shape):
        ranks[t, d, stage] = rank_of(plan, Coordinates(tensor=t, data=d, pipeline=stage))
    return ranks


def ranks_by_place(plan: Plan) -> Ints:
    """(tensor, data, pipeline): the rank at each place."""
    return _each_rank(plan.tensor, plan.data, plan.pipeline)


@lru_cache(maxsize=16)
def alike_devices(network: Network) -> tuple[int, ...]:
    """A number for each device: those of a group that no link names by themselves are alike."""
    first = dict(zip((group.name for group in network.groups), network.first_device, strict=True))
    named = {end for link in network.links for end in link.ends if ":" in end}
    alone = {first[name] + int(number) for name, _, number in (end.partition(":") for end in named)}
    return tuple(device if device in alone else -1 - first[name] for device, name in enumerate(network.group_of))
