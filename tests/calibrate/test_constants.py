"""What a known machine would have measured gives that machine back."""

import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from heddle.cost import compute, network
from heddle.cost.measured.from_timings import (
    Attended,
    MessageTime,
    Product,
    Timings,
    TrafficTime,
    blank,
    cluster_of,
    typical,
)
from heddle.spec.cluster import Cluster, Efficiency, Link, Peak
from tests.fuzz.harness import answer
from tests.fuzz.seeds import CLUSTER, HEADER, ROW

HALF, START, HOP = 24.0, 90e-6, 20e-6
COLLECTIVES = {
    "all-reduce": network.all_reduce,
    "all-gather": network.all_gather,
    "reduce-scatter": network.reduce_scatter,
}


@pytest.fixture(params=[True, False], ids=["cpu", "gpu"])
def machine(request: pytest.FixtureRequest) -> Cluster:
    base = blank("core", 8.0, None if request.param else 108, request.param, 4, None)
    device = replace(base.device, tflops=Peak(fp32=0.13), memory_gbs=20.0)
    efficiency = Efficiency(
        matmul=0.9, half_dim=HALF, attention=0.5, memory=0.5, launch_us=9.0, gelu_ns=3.0, collective_us=START * 1e6
    )
    link = Link(name="loopback", gbs=2.0, latency_us=HOP * 1e6, efficiency=1.0)
    return replace(base, device=device, efficiency=efficiency, links=(link,))


def timed(machine: Cluster) -> Timings:
    """What the formulas say that each kernel takes; one product reaches the very peak."""
    shapes = [(256, 256, 256), (2048, 512, 512), (64, 1024, 1024), (1024, 4096, 1024)]
    products = [Product("fp32", m, k, n, float(compute.matmul(machine, "fp32", m, k, n))) for m, k, n in shapes]
    attended = []
    for length in (128, 512):
        work = compute.attention_work("fp32", 8, length, 64)
        attended.append(Attended(8, length, 64, *(float(part) for part in compute.attention(machine, work))))
    messages = [
        MessageTime("send", 2, size, float(network.point_to_point(machine, size, 2))) for size in (1024, 1 << 22)
    ]
    for kind, price in COLLECTIVES.items():
        for ranks in (2, 4):
            messages += [
                MessageTime(kind, ranks, size, float(price(machine, size, ranks))) for size in (1 << 10, 1 << 22)
            ]
    return Timings(
        products=tuple(products),
        copies=(TrafficTime("copy", 20, 1e-9),),
        traffic=(TrafficTime("sum", 10, 1e-9),),
        attention=tuple(attended),
        gelu_ns=3.0,
        launch_us=9.0,
        messages=tuple(messages),
    )


def test_constants_come_back(machine):
    found = cluster_of(replace(machine, efficiency=Efficiency()), timed(machine), "a test")
    assert found.device.memory_gbs == pytest.approx(20.0)
    assert found.efficiency.memory == pytest.approx(0.5)
    assert found.efficiency.launch_us == 9.0
    assert found.efficiency.source == "a test"
    (link,) = found.links
    assert link.gbs == pytest.approx(2.0, rel=1e-3)
    assert link.latency_us == pytest.approx(20.0, rel=1e-3)
    assert found.efficiency.collective_us == pytest.approx(90.0, rel=1e-3)


def test_predictions_come_back(machine):
    found = cluster_of(replace(machine, efficiency=Efficiency()), timed(machine), "a test")
    for shape in [(256, 256, 1024), (4096, 512, 512)]:
        expected = float(compute.matmul(machine, "fp32", *shape))
        assert float(compute.matmul(found, "fp32", *shape)) == pytest.approx(expected, rel=0.02)
    work = compute.attention_work("fp32", 8, 256, 64)
    expected = [float(part) for part in compute.attention(machine, work)]
    assert [float(part) for part in compute.attention(found, work)] == pytest.approx(expected, rel=1e-6)


def test_no_share_above_one(machine):
    fast = replace(timed(machine), traffic=(TrafficTime("sum", 30, 1e-9),))  # from the cache, faster than any copy
    assert cluster_of(machine, fast, "a test").efficiency.memory == 1.0


def test_a_disturbed_pass_is_outvoted(machine):
    quiet = timed(machine)
    slow = [Product(*product[:4], 9 * product.seconds) for product in quiet.products]
    passes = [quiet, replace(quiet, products=tuple(slow), launch_us=99.0), quiet, quiet, quiet]
    found = typical(passes)
    assert found.launch_us == pytest.approx(quiet.launch_us)
    for one, other in zip(found.products, quiet.products, strict=True):
        assert one == pytest.approx(other)


def test_one_process_has_no_links():
    alone = blank("core", 8.0, None, True, 1, None)
    found = cluster_of(alone, replace(timed(_with_peak(alone)), messages=()), "a test")
    assert found.links == ()


def test_on_a_cpu_nothing_overlaps(machine):
    overlap = cluster_of(machine, timed(machine), "a test").efficiency.overlap
    assert overlap == (0.0 if machine.device.host else machine.efficiency.overlap)


def _with_peak(cluster: Cluster) -> Cluster:
    return replace(cluster, device=replace(cluster.device, tflops=Peak(fp32=0.1), memory_gbs=20.0))


def test_measured_runs_calibrate_a_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cluster.toml").write_text(CLUSTER)
    Path("rows.csv").write_text(
        "\n".join([HEADER, *(ROW.format(n, 2.5, 1 + n % 4, 4 * (1 + n % 4)) for n in range(16))])
    )
    found = answer(
        ["calibrate", "--cluster", "cluster.toml", "--from", "rows.csv", "-o", "made.toml", "--fit", "matmul"]
    )
    assert found.code == 0, found.err
    made = tomllib.loads(Path("made.toml").read_text())["cluster"]
    assert 0 < made["efficiency"]["matmul"] < 0.7  # the file says 0.7, and these runs are slower than that


@pytest.mark.parametrize("row", ["4,0,5", "1,1024,5", "2,1024,0", "2,1024,1e-300"])
def test_a_collective_that_cannot_be_is_named(tmp_path, row):
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    rows = [f"{2 ** (1 + n % 3)},{2 ** (10 + n)},{10_000 + 40 * 2**n}" for n in range(9)]
    (tmp_path / "c.csv").write_text("\n".join(["n_ranks,bytes,time_ns", *rows, row]))
    words = ["calibrate", "--cluster", "cluster.toml", "--from", "c.csv", "-o", "made.toml"]
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        found = answer(words)
    finally:
        os.chdir(before)
    assert found.code == 2, found
    assert "Measured collective 10" in found.err
