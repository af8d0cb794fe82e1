"""Device memory that no allocator hands out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from heddle.cost.outside import group_count, outside
from heddle.parallel.mesh import Axis, Mesh
from heddle.spec import Plan
from heddle.spec.shorthand import cluster_from_table
from tests.strict import strict_ranks

INTERLEAVED = Plan(pipeline=3, virtual=2, schedule="interleaved", microbatch=1)
PLANS = (
    Plan(tensor=2, data=2, zero=1),
    Plan(data=4, zero=3),
    Plan(data=4, zero=3, zero_within=2),
    Plan(context=2, data=2, zero=2),
    Plan(context=4, context_exchange="2d", context_inner=2),
    Plan(data=4, expert=2),
    Plan(data=2, expert=2),
    Plan(tensor=2, pipeline=2, data=2, local_steps=2),
    Plan(pipeline=4),
    replace(INTERLEAVED, data=2, zero=3),
)


def groups(mesh: Mesh) -> int:
    axes = [getattr(mesh, each.name) for each in fields(mesh) if each.name not in ("host", "saves")]
    made = {id(axis.group) for axis in axes if isinstance(axis, Axis) and axis.group is not None}
    return len(made) + len(mesh.channels)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_as_many_groups_as_the_mesh_makes(plan, tied):
    assert max(strict_ranks(groups, plan, tied).results) == group_count(plan, tied)


def test_said_of_gpus_alone():
    h100 = cluster_from_table({"preset": "dgx-h100"}).device
    assert outside(Plan(), replace(h100, host=True), tied=True) is None
    assert str(outside(Plan(), h100, tied=True)) == "CUDA: about 0.5 GiB per GPU"
    assert str(outside(Plan(tensor=8), h100, tied=True)) == "CUDA and 2 groups of ranks: about 0.9 GiB per GPU"
