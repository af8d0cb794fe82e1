"""How fast axes exchange, and what that is compared with."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from heddle.parallel.mesh import Axis, Mesh
from heddle.simulating.simulation import simulate
from heddle.spec import Plan
from heddle.training.buses import Bus, alone, axes_of, known_cluster, measure_buses, usual_link
from heddle.training.selftest_parts import LARGE, layer_job

CPU = torch.device("cpu")


def measured(mesh: Mesh) -> list[tuple[str, int, str, bool, float | None]]:
    found = measure_buses(mesh, CPU, "", 4)
    return [(each.axis, each.ranks, each.operation, each.gbs > 0, each.usual) for each in found]


@pytest.mark.dist
def test_every_axis_that_has_a_group_is_timed_once(world):
    """All replicas together are the data axis here, and are not timed again."""
    for found in world.run(measured, Plan(tensor=2, data=2)):
        operations = ("all-reduce", "all-gather", "reduce-scatter")
        axes = (("world", 4), ("tensor", 2), ("data", 2))
        assert found == [(*axis, operation, True, None) for axis in axes for operation in operations]


def test_a_group_within_a_node_is_compared_with_the_link_within_it():
    cluster = known_cluster("NVIDIA H100 80GB HBM3")
    assert cluster is not None
    assert usual_link(cluster, Axis(0, tuple(range(8))), local=8).name == "nvlink"
    assert usual_link(cluster, Axis(0, (0, 8)), local=8).name == "infiniband"
    assert known_cluster("some CPU") is None


def test_a_layer_is_predicted_for_one_device_of_its_kind():
    """What the self-test puts beside the measured MFU."""
    cluster = known_cluster("NVIDIA H100 80GB HBM3")
    assert cluster is not None
    expected = simulate(replace(layer_job(LARGE, "bf16"), cluster=alone(cluster)))
    assert 0.2 < expected.mfu < 0.9


def test_what_is_far_from_usual_is_said():
    assert str(Bus("tensor", 8, "all-reduce", 310.0, 326.25)) == "tensor all-reduce 310 GB/s (usual 326)"
    assert str(Bus("tensor", 8, "all-reduce", 12.0, 326.25)) == "tensor all-reduce 12 GB/s (usual 326, POOR)"
    assert str(Bus("data", 2, "all-gather", 0.4, None)) == "data all-gather 0.4 GB/s"


def test_no_axis_without_a_group():
    assert axes_of(Mesh()) == {}
