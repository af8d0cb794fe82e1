"""The machine Heddle runs on, with the numbers that are on no CPU's label: a quick look, if it was never profiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from heddle.spec.cluster import Cluster, Efficiency, Peak
from heddle.spec.this import this_machine

WINDOW = 0.05  # seconds of each of the two measurements

# What PyTorch's kernels and gloo reach on common CPUs; `heddle profile` measures them.
USUAL = Efficiency(
    matmul=0.95,
    half_dim=15.0,
    attention=0.5,
    memory=0.9,
    gather=1.0,
    overlap=0.0,
    jitter=0.0,
    launch_us=10.0,
    gelu_ns=1.0,
    collective_us=150.0,
    source="a quick look at this CPU; `heddle profile` looks closely",
)


def measured_machine(cluster: Cluster | None) -> Cluster:
    """A job's cluster, or this machine where it names none; CPU cores without numbers get those of this one."""
    cluster = cluster or this_machine()
    device = cluster.device
    if not device.host or device.tflops != Peak() or device.memory_gbs is not None:
        return cluster
    a = np.ones((512, 512), dtype=np.float32)
    b, copied = np.ones(1 << 23, dtype=np.float32), np.empty(1 << 23, dtype=np.float32)
    flops = 2 * 512**3 / _seconds(lambda: a @ a)
    moved = 2 * b.nbytes / _seconds(lambda: np.copyto(copied, b))
    tflops = flops / 1e12  # of the shorter types, too: some CPUs multiply them faster, some only imitate them
    known = replace(device, tflops=Peak(fp32=tflops, bf16=tflops, fp16=tflops), memory_gbs=moved / 1e9)
    return replace(cluster, device=known, efficiency=USUAL)


def machine_for(cluster: Cluster | None, world: int) -> Cluster:
    """Where that many processes run: a job's cluster, or where it names none this machine, its cores shared."""
    found = measured_machine(cluster)
    return found if cluster is not None else sharing_cores(found, world)


def sharing_cores(machine: Cluster, world: int) -> Cluster:
    """A machine on which more processes than it has cores take turns, and share its memory; `source` says so."""
    if not machine.device.host or world <= machine.devices:
        return machine
    device = replace(machine.device, memory_gib=machine.device.memory_gib * machine.devices / world)
    said = (
        f"{machine.efficiency.source}; {world} processes share {machine.devices} cores: "
        f"`heddle profile --processes {world}` measures how"
    )
    efficiency = replace(machine.efficiency, source=said)
    return replace(machine, devices=world, cores=machine.devices, device=device, efficiency=efficiency)


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of one call on one core, the quickest of many; several threads are as many times as long."""
    work()
    best, cpu, began = float("inf"), time.process_time(), time.perf_counter()
    now = began
    while now < began + WINDOW:
        before = now
        work()
        now = time.perf_counter()
        best = min(best, now - before)
    return best * max(1, round((time.process_time() - cpu) / (now - began)))
