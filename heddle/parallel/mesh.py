"""The mesh: where this process stands on the tensor, data and pipeline axes, and whom it shares each with.

Tensor is innermost, then data, then pipeline: neighbours on the tensor axis talk most and sit closest. The mesh is
a value that is passed to whoever needs it; there are no global process groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch.distributed as dist

from heddle.errors import HeddleError
from heddle.spec.plan import Plan


@dataclass(frozen=True)
class Axis:
    """The processes that differ from this one in one coordinate only."""

    rank: int = 0  # this process's place among them
    ranks: tuple[int, ...] = (0,)  # their ranks in the world
    group: dist.ProcessGroup | None = None  # None where there is nobody to talk to
    # told of every collective that begins: its name, itself where work goes on beside it, its bytes; gives what to call
    # once it was waited for
    watch: Callable[[str, dist.Work | None, int], Callable[[], None] | None] | None = None

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.ranks)


@dataclass(frozen=True)
class Mesh:
    """One process's view of all processes of a plan."""

    rank: int = 0
    tensor: Axis = field(default_factory=Axis)
    data: Axis = field(default_factory=Axis)
    pipeline: Axis = field(default_factory=Axis)
    world: Axis = field(default_factory=Axis)
    ends: Axis = field(default_factory=Axis)  # first and last stage, which share a tied embedding
    # one group for each direction between two neighbouring stages, so that no message waits behind one going back
    channels: dict[tuple[int, int], dist.ProcessGroup] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"data {self.data.rank}, pipeline {self.pipeline.rank}, tensor {self.tensor.rank}"


def coordinates(plan: Plan, rank: int) -> tuple[int, int, int]:
    """Tensor, data and pipeline coordinate of a rank."""
    return rank % plan.tensor, rank // plan.tensor % plan.data, rank // (plan.tensor * plan.data)


def build_mesh(plan: Plan, rank: int = 0, world: int = 1) -> Mesh | None:
    """Make this process's mesh; every process of the world calls it, in the same order as other meshes.

    A world may be larger than the plan: the processes beyond it get None. (Tests run many plans in one world.)
    """
    if world < plan.world:
        raise HeddleError(
            f"The plan needs tensor × pipeline × data = {plan.tensor} × {plan.pipeline} × {plan.data} = {plan.world} "
            f"processes, but {world} started.",
            "Every process holds one place of the mesh.",
            f"Start {plan.world}, or change the degrees so that their product is {world}.",
        )
    if plan.world == 1 and world == 1:
        return Mesh()

    def rank_of(t: int, d: int, p: int) -> int:
        return t + plan.tensor * (d + plan.data * p)

    tensors, replicas, stages = range(plan.tensor), range(plan.data), range(plan.pipeline)
    mine = rank < plan.world
    stage = coordinates(plan, rank)[2]
    tensor = _axis(rank, [[rank_of(i, j, k) for i in tensors] for k in stages for j in replicas])
    data = _axis(rank, [[rank_of(i, j, k) for j in replicas] for k in stages for i in tensors])
    pipeline = _axis(rank, [[rank_of(i, j, k) for k in stages] for j in replicas for i in tensors])
    world_axis = _axis(rank, [list(range(plan.world))])
    columns = [(i, j) for j in replicas for i in tensors]
    ends = (
        _axis(rank, [[rank_of(i, j, 0), rank_of(i, j, plan.pipeline - 1)] for i, j in columns])
        if plan.pipeline > 1
        else Axis()
    )
    channels = {}
    for source, destination in _neighbours(plan.pipeline):
        groups = [[rank_of(i, j, source), rank_of(i, j, destination)] for i, j in columns]
        group = _axis(rank, groups).group
        if mine and stage in (source, destination) and group is not None:
            channels[source, destination] = group
    return Mesh(rank, tensor, data, pipeline, world_axis, ends, channels) if mine else None


def _neighbours(stages: int) -> list[tuple[int, int]]:
    """Directed pairs of stages that exchange messages; the last and the first do when chunks are interleaved."""
    if stages == 1:
        return []
    ring = {(k, (k + 1) % stages) for k in range(stages)}
    return sorted(ring | {(b, a) for a, b in ring})


def _axis(rank: int, groups: list[list[int]]) -> Axis:
    """The one of these groups that holds this rank; every process makes all of them, as torch asks."""
    found = Axis()
    for ranks in groups:
        group = dist.new_group(ranks) if len(ranks) > 1 else None
        if rank in ranks:
            found = Axis(ranks.index(rank), tuple(ranks), group)
    return found
