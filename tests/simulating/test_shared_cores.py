"""Devices that share cores: no core idles while there is work, and nobody is faster than a core."""

import pytest

from heddle.cost.step import pace
from heddle.schedule import build
from heddle.simulating.replay import replay
from heddle.simulating.shared_cores import replay_shared
from heddle.spec.cluster import Cluster, Device, Link


def cluster(devices: int, cores: int | None) -> Cluster:
    return Cluster(
        devices=devices, cores=cores, device=Device(name="core", memory_gib=1.0), links=(Link(name="x", gbs=1.0),)
    )


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_with_a_core_each_it_is_the_plain_replay(name):
    schedule = build(name, 4, 6, 1)
    plain, shared = replay(schedule, 1.0, 2.0), replay_shared(schedule, [1.0] * 4, [2.0] * 4, lambda working: 1.0)
    order = lambda trace: sorted((s.rank, s.name, s.chunk, s.microbatch, s.start, s.end) for s in trace.spans)  # noqa: E731
    assert order(shared) == order(plain)


def test_four_stages_on_two_cores_lie_between_the_bounds():
    machine, m = cluster(4, 2), 8
    trace = replay_shared(build("1f1b", 4, m, 1), [1.0] * 4, [2.0] * 4, lambda working: pace(machine, working))  # type: ignore[return-value]
    work = 4 * m * 3.0 / 2  # seconds of a whole core, of which there are two; each stage is stated at half a core
    path = (m + 3) * 3.0 / 2
    assert max(work / 2, path) <= trace.duration < work / 2 + path / 2


def test_pace():
    assert pace(cluster(4, None), 1) == 1.0
    assert pace(cluster(2, 2), 1) == 1.0
    four = cluster(4, 2)
    assert [pace(four, working) for working in (1, 2, 3, 4)] == [2.0, 2.0, pytest.approx(4 / 3), 1.0]
