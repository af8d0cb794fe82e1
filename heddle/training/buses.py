"""How fast groups of ranks exchange, axis by axis, beside what is usual for such GPUs.

Bandwidth is that of the bus, as nccl-tests states it: what has to go over the slowest link of a ring for such a
collective, over its time. So it compares with the speed of a link, however many ranks there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.distributed as dist

from heddle.parallel.collectives import all_reduce, gather, reduce_scatter
from heddle.parallel.mesh import Axis, Mesh
from heddle.runtime.device import on_gpu, synchronize
from heddle.spec.cluster import Cluster, Link
from heddle.spec.presets import cluster_presets
from heddle.spec.shorthand import cluster_from_table
from heddle.trace.lanes import COLLECTIVES

LARGE, SMALL = 1 << 28, 1 << 20  # bytes of a whole tensor, on GPUs and on CPUs
REPEATS = 5
POOR = 0.5  # of what is usual: worth a look at cables, settings and neighbors


class Bus(NamedTuple):
    """What one kind of exchange along one axis reached, on the slowest of its groups."""

    axis: str
    ranks: int
    operation: str
    gbs: float
    usual: float | None  # None: not known for such devices

    def __str__(self) -> str:
        usual = "" if self.usual is None else f" (usual {self.usual:.3g}{', POOR' * self.poor})"
        return f"{self.axis} {self.operation} {self.gbs:.3g} GB/s{usual}"

    @property
    def poor(self) -> bool:
        """Whether it is far from what is usual."""
        return self.usual is not None and self.gbs < POOR * self.usual


def measure_buses(mesh: Mesh, device: torch.device, name: str, local: int) -> list[Bus]:
    """Time every axis that has a group; all ranks call it. `name`: of the device; `local`: processes of a node."""
    size, cluster, found = LARGE if on_gpu(device) else SMALL, known_cluster(name), []
    for axis_name, axis in axes_of(mesh).items():
        usual = None if cluster is None else usual_link(cluster, axis, local)
        for operation, whole, exchange in _exchanges(axis, size, device):
            exchange()
            synchronize(device)
            began = time.perf_counter()
            for _ in range(REPEATS):
                exchange()
            synchronize(device)
            slowest = torch.tensor([(time.perf_counter() - began) / REPEATS], dtype=torch.float64, device=device)
            seconds = float(all_reduce(slowest, mesh.world, dist.ReduceOp.MAX))
            times = 2 if operation == "all-reduce" else 1
            gbs = times * whole * (axis.size - 1) / axis.size / seconds / 1e9
            expected = None if usual is None else usual.gbs * usual.efficiency
            found.append(Bus(axis_name, axis.size, operation, gbs, expected))
    return found


def axes_of(mesh: Mesh) -> dict[str, Axis]:
    """The axes that have a group of their own, each once."""
    named = {name: getattr(mesh, name) for name in ("world", *COLLECTIVES)}
    groups: dict[int, str] = {}
    for name, axis in named.items():
        if axis.group is not None and axis.size > 1:
            groups.setdefault(id(axis.group), name)
    return {name: named[name] for name in groups.values()}


def known_cluster(name: str) -> Cluster | None:
    """The preset that has such devices."""
    found = [key for key, table in cluster_presets().items() if table["device"]["name"] in name]
    return cluster_from_table({"preset": found[0]}) if found else None


def alone(cluster: Cluster) -> Cluster:
    """One of its devices."""
    return replace(cluster, nodes=1, devices=1, links=())


def usual_link(cluster: Cluster, axis: Axis, local: int) -> Link:
    """The link that an axis goes over: the innermost within a node, else that between nodes."""
    inside = len({rank // local for rank in axis.ranks}) == 1
    return cluster.links[0] if inside else cluster.links[-1]


def _exchanges(axis: Axis, size: int, device: torch.device) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """The collectives of a step, with the bytes of the whole tensor."""
    whole = torch.zeros(size // 4 // axis.size * axis.size, device=device)
    part = whole[: len(whole) // axis.size].clone()
    yield "all-reduce", whole.nbytes, lambda: all_reduce(whole, axis)
    yield "all-gather", whole.nbytes, lambda: gather(part, axis)
    yield "reduce-scatter", whole.nbytes, lambda: reduce_scatter(whole, axis)
