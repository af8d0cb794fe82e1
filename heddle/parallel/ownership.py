"""Who sums, counts and saves a parameter: the one place that derives it from the parameter's layout and the mesh."""

from __future__ import annotations

from torch import Tensor

from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.parameter_layout import ParameterLayout, place_of
from heddle.spec.axes import AXIS_TABLE, FOLDED, SUMMED


def replicas_of(parameter: Tensor, mesh: Mesh) -> Axis:
    """The ranks that hold the same numbers and see other samples: they sum the gradient, and ZeRO shards over them."""
    split = place_of(parameter).split
    assert not any(axis.summed for axis in AXIS_TABLE if axis.name in split), "needs a smaller group than all replicas"
    return mesh.expert_data if FOLDED in split else mesh.gradients


def shares_of(replicas: Axis, mesh: Mesh) -> tuple[Axis, Axis]:
    """Of these ranks, those that share what ZeRO shards, and those that hold the same share: all, and nobody else,
    unless a plan lets neighbors share among themselves.
    """
    hybrid = mesh.shards.size > 1 and replicas.ranks == mesh.gradients.ranks
    return (mesh.shards, mesh.mirrors) if hybrid else (replicas, Axis())


def sums_of(parameter: Tensor, mesh: Mesh) -> tuple[Axis, ...]:
    """The axes over which a parameter's gradient needs a sum besides the replicas', innermost first."""
    names = [*(axis.name for axis in AXIS_TABLE), "ends"]
    axes = [getattr(mesh, name) for name in names if name in place_of(parameter).partial]
    return tuple(axis for axis in axes if axis.size > 1)


def is_counted(layout: ParameterLayout, mesh: Mesh, sharded: bool) -> bool:
    """Whether this rank counts these numbers in the norm and saves them: one of those that hold the same.

    `sharded`: each replica holds other numbers. Along the pipeline everybody does, but for a tied embedding.
    """
    alike = [
        axis.name
        for axis in AXIS_TABLE
        if axis.name != "pipeline" and axis.name not in layout.split and not axis.summed
    ]
    if FOLDED in layout.split and mesh.expert.size * mesh.expert_data.size > mesh.gradients.size:
        alike.remove("tensor")  # whole experts: tensor ranks are among those that hold others, or the same
    replicas = ["mirrors"] if sharded else ["expert_data"] if FOLDED in layout.split else list(SUMMED)
    return all(getattr(mesh, name).rank == 0 for name in [*alike, *replicas, *["ends"] * layout.tied])


def has_own_loss(mesh: Mesh) -> bool:
    """Whether this rank adds its loss to the sum over all ranks: one of those that compute the same.

    Every stage of a pipeline has its own, which is zero where its chunks make none.
    """
    same = [axis.name for axis in AXIS_TABLE if not axis.summed and axis.name != "pipeline"]
    return all(getattr(mesh, name).rank == 0 for name in same)
