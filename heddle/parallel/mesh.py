"""The mesh: where this process stands on the axes of a plan, and whom it shares each with.

Which rank stands where is `heddle.spec.ranks`' to say. The mesh is a value that is passed to whoever needs it; there
are no global process groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from heddle.errors import HeddleError
from heddle.spec.axes import AXES, SUMMED, USUAL
from heddle.spec.plan import Plan
from heddle.spec.ranks import (
    disjoint,
    expert_data_groups,
    expert_groups,
    groups,
    replicas,
    stage_of,
    stage_pairs,
    two_dims,
    world_in_words,
)

EVER = timedelta(days=365)  # how long ranks may wait for each other is for the watchdog to say, not for a group
CHANNEL = "channel"
# A receive is posted before its message comes, and waits on the device: every block of it keeps one multiprocessor from
# the products. So few are enough for a link between two devices.
MAX_CTAS = 4
HOST_BACKENDS = ("gloo", "fake")  # whose groups carry what lies in host memory


@dataclass(frozen=True)
class Axis:
    """The processes that differ from this one in one coordinate only."""

    rank: int = 0  # this process's place among them
    ranks: tuple[int, ...] = (0,)  # their ranks in the world
    group: dist.ProcessGroup | None = (
        None  # None where there is nobody to talk to, and along the pipeline: see channels
    )
    # called for every collective that begins with its name, its handle if it is asynchronous, and its bytes; returns
    # what to call once it was waited for
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
    context: Axis = field(default_factory=Axis)
    # of a 2d exchange: neighbors on the context axis, and those in the same place of each such group
    context_inner: Axis = field(default_factory=Axis)
    context_outer: Axis = field(default_factory=Axis)
    data: Axis = field(default_factory=Axis)
    pipeline: Axis = field(default_factory=Axis)
    world: Axis = field(default_factory=Axis)
    # all axes together whose ranks see different samples or tokens: gradients are summed, and ZeRO shards, over them
    gradients: Axis = field(default_factory=Axis)
    # of these, neighbors that share what ZeRO shards, and those that hold the same shares; empty where all share
    shards: Axis = field(default_factory=Axis)
    mirrors: Axis = field(default_factory=Axis)
    # once more those among whom ZeRO shards: NCCL runs what one group does one by one, and weights that a layer waits
    # for would stand behind sums of gradients that nobody does
    gathers: Axis = field(default_factory=Axis)
    expert: Axis = field(default_factory=Axis)  # of these, those that share the experts of a layer
    expert_data: Axis = field(default_factory=Axis)  # and those that hold the same experts
    ends: Axis = field(default_factory=Axis)  # first and last stage, which share a tied embedding
    replica: Axis = field(default_factory=Axis)  # one whole model, where replicas take local steps
    host: Axis = field(default_factory=Axis)  # the world again, for objects in host memory, which NCCL cannot carry
    saves: Axis = field(default_factory=Axis)  # and again, for the thread that saves beside training
    # one group for each direction between two neighboring stages, so that no message waits behind one going back
    channels: dict[tuple[int, int], dist.ProcessGroup] = field(default_factory=dict)
    places: tuple[
        str, ...
    ] = ()  # the group of the job's network that each rank is in, where links have codes of their own

    def __str__(self) -> str:
        axes = {name: getattr(self, name) for name in sorted(AXES)}
        return ", ".join(f"{name} {axis.rank}" for name, axis in axes.items() if name in USUAL or axis.size > 1)


def build_mesh(plan: Plan, rank: int = 0, world: int = 1, tied: bool = True) -> Mesh | None:
    """Make this process's mesh; every process of the world calls it, in the same order as other meshes.

    A group that nobody uses would still take memory and seconds of every device: without a `tied` embedding the two
    ends of the pipeline have none.

    A world may be larger than the plan: the processes beyond it get None. (Tests run many plans in one world.)
    """
    if world < plan.world:
        raise HeddleError(
            f"The plan needs {world_in_words(plan)} processes, but {world} started.",
            "Every process takes one position in the mesh.",
            f"Start {plan.world}, or change the degrees so that their product is {world}.",
        )
    if plan.world == 1 and world == 1:
        return Mesh()

    def axis(name: str, members: list[list[int]]) -> Axis:
        return _axis(name, members, rank, world)

    everyone = list(range(plan.world))
    axes = {name: axis(name, groups(plan, name)) for name in AXES if name != "pipeline"}
    columns = groups(plan, "pipeline")  # each the ranks of a pipeline, by stage
    own = next((column for column in columns if rank in column), [rank])
    axes["pipeline"] = Axis(own.index(rank), tuple(own))  # stages talk over channels
    if plan.context_exchange == "2d" and plan.context > 1:
        inner, outer = two_dims(groups(plan, "context"), plan.context_inner)
        axes |= {"context_inner": axis("context_inner", inner), "context_outer": axis("context_outer", outer)}
    wide = [name for name in SUMMED if getattr(plan, name) > 1]
    # what an axis has already is not made again
    axes["gradients"] = axes[(wide or SUMMED)[0]] if len(wide) < 2 else axis("gradients", groups(plan, *SUMMED))
    if plan.shards < plan.replicas:
        rows, size = groups(plan, *SUMMED), plan.shards
        axes["shards"] = axis("shards", [row[at : at + size] for row in rows for at in range(0, len(row), size)])
        axes["mirrors"] = axis("mirrors", [row[at::size] for row in rows for at in range(size)])
    axes["gathers"] = _gathers(plan, axes, axis)
    axes["expert"], axes["expert_data"] = Axis(ranks=(rank,)), axes["gradients"]
    if plan.expert > 1 or plan.whole_experts:
        axes["expert"] = axis("expert", expert_groups(plan))
        axes["expert_data"] = axis("expert_data", expert_data_groups(plan))
    last = plan.last_rank  # which a V folds back to the first
    ends = axis("ends", [[column[0], column[last]] for column in columns]) if last > 0 and tied else Axis()
    replica = axis("replica", replicas(plan)) if plan.local_steps else Axis()
    channels = {}
    for number, pairs in enumerate(_disjoint_channels(plan)):
        neighbors = [[column[stage] for stage in pair] for pair in pairs for column in columns]
        group = axis(f"{CHANNEL} {number}", neighbors).group
        if group is not None:
            channels[next(pair for pair in pairs if stage_of(plan, rank) in pair)] = group
    whole = Axis(rank, tuple(everyone), dist.group.WORLD) if plan.world == world else axis("world", [everyone])
    host, backend = whole, str(dist.get_backend())
    if whole.group is not None and backend not in HOST_BACKENDS:
        backend = "gloo"
        host = replace(whole, group=dist.new_group(everyone, timeout=EVER, backend=backend, group_desc="host"))
    members = everyone if rank < plan.world else [rank]
    saving = dist.new_group(members, timeout=EVER, backend=backend, use_local_synchronization=True, group_desc="saves")
    if rank >= plan.world:
        return None
    again = {"host": host, "saves": replace(whole, group=saving)}
    mesh = Mesh(rank=rank, **axes, world=whole, ends=ends, replica=replica, **again, channels=channels, places=())
    _connect(mesh)
    return mesh


def by_itself(mesh: Mesh) -> Mesh:
    """The same mesh as a replica sees it that has no others."""
    others = [getattr(mesh, name) for name in SUMMED if name != "data" and getattr(mesh, name).size > 1]
    assert len(others) < 2, "more than one summed axis besides data needs a group without it"
    alone = Axis(ranks=(mesh.rank,))
    left = others[0] if others else alone
    return replace(mesh, data=alone, gradients=left, expert_data=left)


def _disjoint_channels(plan: Plan) -> list[list[tuple[int, int]]]:
    """Directed pairs of stages that exchange messages, in lists of those that can be made at once."""

    def order(pair: tuple[int, int]) -> tuple[bool, int, tuple[int, int]]:
        return (pair[1] - pair[0]) % plan.pipeline != 1, pair[0] % 2, pair

    return disjoint(sorted(stage_pairs(plan), key=order))


def _gathers(plan: Plan, axes: dict[str, Axis], axis: Callable[[str, list[list[int]]], Axis]) -> Axis:
    """A group of its own for gathers, where groups have streams and weights are gathered."""
    sharers = axes.get("shards", axes["gradients"])
    if _device() is None or sharers.size == 1 or max(plan.zeros) < 2:
        return sharers
    rows = groups(plan, *SUMMED)
    return axis("gathers", [row[at : at + plan.shards] for row in rows for at in range(0, len(row), plan.shards)])


def _axis(name: str, groups: list[list[int]], rank: int, world: int) -> Axis:
    """The one of these groups that holds this rank. No process is in two of them, so that one call makes them all.

    Whoever is in none makes one of its own: torch names a group by how many its process has, and the names of a
    group must be the same on all its members.
    """
    groups = [ranks for ranks in groups if len(ranks) > 1]
    if not groups:
        return Axis(ranks=(rank,))
    mine = next((ranks for ranks in groups if rank in ranks), None)
    if _device() is not None:
        covered = {member for ranks in groups for member in ranks}
        alone = [[other] for other in range(world) if other not in covered]
        options = _options() if name.startswith(CHANNEL) else None
        group = dist.split_group(split_ranks=[*groups, *alone], group_desc=name, timeout=EVER, pg_options=options)
    else:
        group = dist.new_group(mine or [rank], timeout=EVER, use_local_synchronization=True, group_desc=name)
    return Axis(mine.index(rank), tuple(mine), group) if mine else Axis()


def _options() -> Any:
    """What NCCL is asked for where one rank sends to another."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.max_ctas = MAX_CTAS
    return options


def _device() -> torch.device | None:
    """The device that the processes met with; None where they met on the host."""
    assert dist.group.WORLD is not None
    return dist.group.WORLD.bound_device_id


def _connect(mesh: Mesh) -> None:
    """Use every group once, in an order that all agree on.

    NCCL connects two processes when they first exchange something, and both hosts wait for each other there. If each
    stage first met the neighbor it receives from, none would ever come to its sends.
    """
    word = torch.zeros(1, device=_device() or "cpu")
    names = (
        "context_inner",
        "context_outer",
        "gradients",
        "shards",
        "mirrors",
        "gathers",
        "expert",
        "expert_data",
        "ends",
        "replica",
    )
    axes = (mesh.world, *(getattr(mesh, name) for name in (*AXES, *names)))
    for group in dict.fromkeys(axis.group for axis in axes if axis.group is not None):
        dist.all_reduce(word, group=group)
    for (source, destination), group in mesh.channels.items():
        if mesh.pipeline.rank == source:
            dist.send(word, mesh.pipeline.ranks[destination], group=group)
        else:
            dist.recv(word, mesh.pipeline.ranks[source], group=group)
