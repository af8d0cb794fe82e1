"""The cluster preset `this`: the machine that Heddle runs on, found without torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache

from heddle.format import GIB
from heddle.spec.cluster import Cluster, Device, Link


def this_machine() -> Cluster:
    """Describe this machine: its GPUs where it has some, else its CPU cores, one device a core."""
    return _gpus() or _cpu()


def _gpus() -> Cluster | None:
    from heddle.spec.presets import known_devices

    if asks_for_cpus() or shutil.which("nvidia-smi") is None:
        return None
    rows = nvidia_smi("name", "memory.total", "compute_cap") or nvidia_smi("name", "memory.total")  # drivers of 2021
    rows = rows[: _visible(len(rows))]
    if not rows:
        return None
    name, mib, *capability = rows[0]
    stated = next((known for key, known in known_devices().items() if key in name), None)
    # a GPU that shares the machine's memory reports "[N/A]"
    memory = float(mib) / 1024 if mib.isdecimal() else _memory_gib()
    device = replace(stated or Device(name=name, memory_gib=memory), name=name, memory_gib=memory)
    if capability and re.fullmatch(r"\d+\.\d+", capability[0]):
        device = replace(device, capability=float(capability[0]))
    return Cluster(name="this", devices=len(rows), device=device, links=(_link(),))


def asks_for_cpus() -> bool:
    """Whether the environment hides the GPUs that there may be."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1") or os.environ.get("HEDDLE_DEVICE") == "cpu"


def _visible(count: int) -> int:
    """How many of the machine's GPUs this process may use."""
    stated = os.environ.get("CUDA_VISIBLE_DEVICES")
    return count if stated is None else min(count, len([word for word in stated.split(",") if word.strip()]))


@cache
def driver_version() -> str | None:
    """Of the GPUs' driver; None where there are no GPUs."""
    if shutil.which("nvidia-smi") is None:
        return None
    rows = nvidia_smi("driver_version")
    return rows[0][0] if rows else None


def _link() -> Link:
    """What joins the GPUs of this machine: NVLink, by the sum of its links' speeds, or PCIe."""
    answer = subprocess.run(["nvidia-smi", "nvlink", "-s", "-i", "0"], capture_output=True, text=True, check=False)
    speeds = [float(word) for word in re.findall(r"Link \d+: ([\d.]+) GB/s", answer.stdout)]
    if answer.returncode == 0 and sum(speeds) > 0:
        return Link(name="nvlink", gbs=sum(speeds))
    # PCIe 4.0 ×16 is the least that joins GPUs of one machine; `heddle profile` measures the truth
    return Link(name="pcie", gbs=32.0)


def nvidia_smi(*columns: str) -> list[list[str]]:
    """What it says of each GPU; nothing where it does not know a column."""
    query = ["nvidia-smi", f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False)
    lines = answer.stdout.splitlines() if answer.returncode == 0 else []
    rows = [[word.strip() for word in line.rsplit(",", len(columns) - 1)] for line in lines]
    return [row for row in rows if len(row) == len(columns)]


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB


def _cpu() -> Cluster:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Peak FLOP/s and bandwidth stay open: they are not on a CPU's label; `cost.measured.local_machine` looks for them.
    device = Device(name="cpu core", memory_gib=_memory_gib() / cores, host=True)
    return Cluster(name="this", devices=cores, device=device, links=(Link(name="loopback", gbs=2.0),))
