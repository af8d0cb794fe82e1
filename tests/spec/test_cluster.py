"""What the user has: presets, link levels, the machine itself, and what is refused."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.spec import Cluster, Device, Link, Peak
from heddle.spec.presets import cluster_presets
from heddle.spec.shorthand import cluster_from_table
from heddle.spec.this_machine import this_machine

DEVICE = Device(name="some", memory_gib=16.0)
NEAR = Link(name="near", devices=4, gbs=100.0)
FAR = Link(name="far", gbs=10.0)


def test_a_part_of_an_efficiency_leaves_the_rest_of_a_presets_fit() -> None:
    preset = cluster_from_table({"preset": "dgx-h100"})
    changed = cluster_from_table({"preset": "dgx-h100", "efficiency": {"matmul": 0.5}})
    assert changed.efficiency.source == f"{preset.efficiency.source}; matmul as given"
    assert changed.efficiency == replace(preset.efficiency, matmul=0.5, source=changed.efficiency.source)
    named = cluster_from_table({"preset": "dgx-h100", "device": {"name": "other", "memory_gib": 40.0}})
    assert named.device.tflops != preset.device.tflops
    less = cluster_from_table({"preset": "dgx-h100", "device": {"memory_gib": 40.0}})
    assert less.device == replace(preset.device, memory_gib=40.0)


@pytest.mark.parametrize("name", cluster_presets())
def test_presets_load(name: str) -> None:
    cluster = cluster_from_table({"preset": name, "nodes": 16})
    each = {"gh200": 1, "tpu-v5p": 8960, "tpu-v7": 9216, "trn2": 16}.get(name, 8)
    each = 72 if "nvl72" in name else 256 if name in ("tpu-v5e", "tpu-v6e") else each
    assert (cluster.name, cluster.nodes, cluster.devices, cluster.world) == (name, 16, each, 16 * each)
    *inside, between = cluster.links
    assert all(link.gbs > between.gbs for link in inside)
    assert [link.devices for link in cluster.links] == [each, None][each == 1 :]
    assert cluster.device.host_gbs is not None
    assert cluster.device.host_gib is not None
    fp32, bf16 = (cluster.device.tflops.flops(precision) for precision in ("fp32", "bf16"))
    bf16 = cluster.device.tflops.flops("fp16") if name == "dgx-v100" else bf16
    assert bf16 is not None
    assert fp32 is not None or name.startswith("tpu")
    assert 1e12 < (fp32 or 2e12) < bf16 < 1e16
    assert re.search(r"; (not validated|validated on \d+ runs, mean error [\d.]+ %)$", cluster.efficiency.source)
    assert cluster.device.memory_gbs is not None


def test_peak_is_what_the_data_sheet_says() -> None:
    a100 = cluster_from_table({"preset": "dgx-a100-80gb"}).device.tflops
    assert a100.flops("bf16") == 312e12  # the figure that the PTD-P paper's percentages of peak refer to
    assert a100.flops("fp8") is None
    assert Peak().flops("fp32") is None


def test_an_override_replaces_only_its_key() -> None:
    plain, slow = cluster_from_table({"preset": "dgx-h100"}), [{"name": "ethernet", "gbs": 1.0}]
    changed = cluster_from_table({"preset": "dgx-h100", "name": "mine", "links": slow})
    link = Link(name="ethernet", gbs=1.0)
    assert changed == replace(plain, name="mine", links=(link,))


@pytest.mark.parametrize(
    ("group", "name"), [(1, "nvlink"), (2, "nvlink"), (8, "nvlink"), (9, "infiniband"), (32, "infiniband")]
)
def test_a_group_talks_over_the_innermost_link_that_joins_it(group: int, name: str) -> None:
    assert cluster_from_table({"preset": "dgx-a100-40gb", "nodes": 4}).link(group).name == name


@given(st.lists(st.integers(1, 64), unique=True, max_size=4).map(sorted), st.integers(1, 64))
def test_no_inner_link_would_do(spans: list[int], group: int) -> None:
    links = [Link(name=str(span), devices=span, gbs=1.0) for span in spans]
    cluster = Cluster(devices=64, device=DEVICE, links=(*links, FAR))
    chosen = cluster.link(group)
    assert chosen.devices is None or chosen.devices >= group
    assert all(span < group for span in spans[: cluster.links.index(chosen)])


def test_a_lone_device_needs_no_link_and_has_none() -> None:
    cluster = Cluster(device=DEVICE)
    assert cluster.world == 1
    with pytest.raises(HeddleError, match="No link of cluster 'custom' joins 1 devices"):
        cluster.link(1)


def test_a_group_larger_than_the_cluster_is_refused() -> None:
    with pytest.raises(HeddleError, match="joins 5 devices"):
        Cluster(devices=4, device=DEVICE, links=(NEAR,)).link(5)


def test_the_outermost_link_reaches_every_device() -> None:
    with pytest.raises(HeddleError, match="joins all its 8 devices") as caught:
        Cluster(nodes=2, devices=4, device=DEVICE, links=(NEAR,))
    assert "Leave `devices` out of the last" in caught.value.hint
    assert Cluster(nodes=2, devices=4, device=DEVICE, links=(Link(name="near", gbs=100.0),)).world == 8
    with pytest.raises(HeddleError, match="joins all its 2 devices"):
        Cluster(devices=2, device=DEVICE)


@pytest.mark.parametrize("links", [(Link(name="wide", devices=8, gbs=1.0), NEAR, FAR), (FAR, NEAR)])
def test_links_go_from_the_inside_out(links: tuple[Link, ...]) -> None:
    with pytest.raises(HeddleError, match="links of the cluster are out of order") as caught:
        Cluster(nodes=2, devices=4, device=DEVICE, links=links)
    order = caught.value.hint.removeprefix("Write them in this order: ").removesuffix(".").split(", ")
    mended = tuple(sorted(links, key=lambda link: order.index(link.name)))
    assert Cluster(nodes=2, devices=4, device=DEVICE, links=mended).link(3) == NEAR


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (Cluster, {"device": DEVICE, "nodes": 0}, "cluster.nodes must be in [1, 1e6], got 0"),
        (Cluster, {"device": DEVICE, "devices": -1}, "cluster.devices must be in [1, 1e6], got -1"),
        (Device, {"name": "d", "memory_gib": 0.0}, "cluster.device.memory_gib must be in (0, 1e9], got 0.0"),
        (
            Device,
            {"name": "d", "memory_gib": 1.0, "memory_gbs": -1.0},
            "cluster.device.memory_gbs must be in (0, 1e9], got -1.0",
        ),
        (Link, {"name": "wire", "gbs": 0.0}, "cluster.links 'wire'.gbs must be in (0, 1e9], got 0.0"),
        (Link, {"name": "wire", "gbs": 1.0, "devices": 0}, "cluster.links 'wire'.devices must be in [1, 1e9], got 0"),
        (
            Link,
            {"name": "wire", "gbs": 1.0, "latency_us": -1.0},
            "cluster.links 'wire'.latency_us must be in [0, 1e9], got -1.0",
        ),
    ],
)
def test_quantities_are_positive(make: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(HeddleError, match=re.escape(message)):
        make(**changes)


# --- The preset `this` ------------------------------------------------------------------------------------


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A PATH on which nvidia-smi is what the test says, or nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(*rows: str, status: int = 0, columns: str = "name,memory.total") -> None:
        lines = "\n".join(f"echo '{row}'" for row in rows)
        # It answers only the question that is asked of the real one.
        asked = f'[ "$*" = "--query-gpu={columns} --format=csv,noheader,nounits" ] || exit 2'
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{asked}\n{lines}\nexit {status}\n")
        program.chmod(0o755)

    return install


def test_this_machine_without_gpus_is_its_cores(nvidia_smi: Any) -> None:
    cluster = this_machine()
    assert (cluster.name, cluster.nodes, cluster.device.name) == ("this", 1, "cpu core")
    assert 1 <= cluster.devices <= (os.cpu_count() or 1)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert cluster.device.memory_gib * cluster.devices == pytest.approx(total / GIB)
    assert cluster.device.tflops == Peak()  # not on a CPU's label
    assert cluster.link(cluster.world).gbs > 0


def test_this_machine_with_known_gpus(nvidia_smi: Any) -> None:
    nvidia_smi(*["NVIDIA A100-SXM4-80GB, 81920"] * 4)
    cluster = this_machine()
    assert (cluster.name, cluster.world, cluster.device.memory_gib) == ("this", 4, 80.0)
    stated = cluster_from_table({"preset": "dgx-a100-80gb"}).device
    assert (cluster.device.tflops, cluster.device.memory_gbs) == (stated.tflops, stated.memory_gbs)
    assert cluster.device.name == "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize("nothing", ["", "-1"])
def test_gpus_that_are_hidden_are_not_there(nvidia_smi: Any, monkeypatch: pytest.MonkeyPatch, nothing: str) -> None:
    nvidia_smi("NVIDIA A100-SXM4-80GB, 81920")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", nothing)
    assert this_machine().device.host


@pytest.mark.parametrize(("stated", "count"), [("0,1", 2), ("3", 1), ("0,1,2,3,4,5,6,7,8", 4), ("GPU-5,GPU-7", 2)])
def test_only_the_gpus_that_are_shown_are_there(
    nvidia_smi: Any, monkeypatch: pytest.MonkeyPatch, stated: str, count: int
) -> None:
    nvidia_smi(*["NVIDIA A100-SXM4-80GB, 81920"] * 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", stated)
    assert this_machine().world == count


def test_whoever_insists_on_cpus_gets_them(nvidia_smi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi("NVIDIA A100-SXM4-80GB, 81920")
    monkeypatch.setenv("HEDDLE_DEVICE", "cpu")
    assert this_machine().device.host


def test_gpus_joined_by_nvlink_are_not_taken_for_pcie(tmp_path: Path, nvidia_smi: Any) -> None:
    nvidia_smi("NVIDIA H100 80GB HBM3, 81559")
    program = tmp_path / "nvidia-smi"
    links = "\n".join(f"echo '\t Link {number}: 26.562 GB/s'" for number in range(18))
    program.write_text(
        program.read_text().replace("#!/bin/sh", f'#!/bin/sh\nif [ "$1" = nvlink ]; then\n{links}\nexit 0\nfi')
    )
    assert this_machine().link(1).name == "nvlink"
    assert this_machine().link(1).gbs == pytest.approx(18 * 26.562)


def test_this_machine_with_an_unknown_gpu(nvidia_smi: Any) -> None:
    nvidia_smi("NVIDIA GeForce GTX 1050, Mobile, 4096")  # with a comma in its name
    device = this_machine().device
    assert device == Device(name="NVIDIA GeForce GTX 1050, Mobile", memory_gib=4.0)


@pytest.mark.parametrize(
    ("capability", "precision"),
    [("7.5", "fp32"), ("8.0", "bf16"), ("8.9", "bf16"), ("12.0", "bf16"), ("[N/A]", "fp32")],
)
def test_a_gpu_is_best_at_bf16_from_capability_8_on(nvidia_smi: Any, capability: str, precision: str) -> None:
    nvidia_smi(f"NVIDIA Something, 24576, {capability}", columns="name,memory.total,compute_cap")
    device = this_machine().device
    assert device.capability == (float(capability) if capability[0] != "[" else None)
    assert device.precision == precision


def test_devices_of_unknown_capability_are_best_at_what_is_stated() -> None:
    gpu = Device(name="x", memory_gib=1, tflops=Peak(fp32=1, bf16=2))
    assert gpu.precision == "bf16"
    assert replace(gpu, tflops=Peak(fp32=1, fp16=2)).precision == "fp32"
    assert replace(gpu, host=True).precision == "fp32"  # measured, yes; but most CPUs only imitate it
    assert replace(gpu, capability=7.5).precision == "fp32"


def test_a_gpu_that_shares_the_machines_memory(nvidia_smi: Any) -> None:
    nvidia_smi("NVIDIA GB10, [N/A]")
    cluster = this_machine()
    assert (cluster.device.name, cluster.devices) == ("NVIDIA GB10", 1)
    assert cluster.device.memory_gib == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB


@pytest.mark.parametrize(("rows", "status"), [((), 0), (("No devices were found",), 0), (("A100, 40960",), 9)])
def test_a_driver_without_gpus_leaves_the_cores(nvidia_smi: Any, rows: tuple[str, ...], status: int) -> None:
    nvidia_smi(*rows, status=status)
    assert this_machine().device.name == "cpu core"


def test_this_is_a_preset_like_the_others(nvidia_smi: Any) -> None:
    nvidia_smi(*["NVIDIA H200, 143771"] * 2)
    assert cluster_from_table({"preset": "this"}) == this_machine()
    both = cluster_from_table({"preset": "this", "nodes": 3})
    assert (both.world, both.name) == (6, "this")
