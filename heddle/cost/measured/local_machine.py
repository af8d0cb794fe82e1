"""The machine Heddle runs on, with the numbers that are on no CPU's label: a quick look, if it was never profiled.

A look is short, and others may be at work meanwhile. So its clock is the processor time of the thread that looks, which
does not run while others have its core, and the look itself says whether it was disturbed: it then goes on for longer,
and what it found carries the reason why it is not to be trusted.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np

from heddle.cost.measured.blas import one_thread
from heddle.spec.cluster import Cluster, Efficiency, Peak
from heddle.spec.this_machine import this_machine

WINDOW = 0.05  # seconds of each of the two measurements
LONGER = 0.5  # seconds if the first look was disturbed
AWAY = 0.8  # share of a look's time that its own work has on a core that nobody else wants
ALONE = 1.2  # threads at work in a process whose one thread looks; a clock tick may fall to another one
SPREAD = 1.5  # the usual sample over the quickest, where nobody slows the core or its memory down

SIDE = 512  # of the matrices that are multiplied
COPIED = 1 << 25  # bytes

DISTURBED = "a quick measurement of this CPU that cannot be trusted"

# What PyTorch's kernels and gloo reach on common CPUs; `heddle profile` measures them.
USUAL = Efficiency(
    matmul=0.95,
    half_dim=15.0,
    attention=0.5,
    memory=0.9,
    gather_gbs=1000.0,  # the link alone limits it
    overlap=0.0,
    jitter=0.0,
    launch_us=10.0,
    gelu_ns=1.0,
    collective_us=150.0,
    source="a quick measurement of this CPU; `heddle profile` is more accurate",
)


# constants that are times of a core, which processes that share one take turns on
OF_A_CORE = ("launch_us", "gelu_ns", "collective_us", "step_us", "microbatch_us", "message_us")


@dataclass(frozen=True)
class Look:
    """What a look found: seconds of one call on one core, and why they may be wrong; empty if nothing was seen."""

    seconds: float
    doubt: str = ""


def measured_machine(cluster: Cluster | None) -> Cluster:
    """A job's cluster, or this machine where it names none; CPU cores without numbers get those of this one."""
    given, cluster = cluster, cluster or this_machine()
    device = cluster.device
    if not device.host or not to_be_measured(given):
        return cluster
    product, copy = looked()
    tflops = 2 * SIDE**3 / product.seconds / 1e12  # of the shorter types, too: some CPUs only imitate them
    speed = 2 * COPIED / copy.seconds / 1e9
    known = replace(device, tflops=Peak(fp32=tflops, bf16=tflops, fp16=tflops), memory_gbs=speed)
    efficiency = USUAL
    if doubt := product.doubt or copy.doubt:
        efficiency = replace(USUAL, source=f"{DISTURBED}: {doubt}; run `heddle profile` when the machine is quiet")
    return replace(cluster, device=known, efficiency=efficiency)


def to_be_measured(cluster: Cluster | None) -> bool:
    """Whether a job leaves open how fast its devices are, so that it takes a look at this machine to know."""
    if cluster is None:
        return True
    device = cluster.device
    return device.host and device.tflops == Peak() and device.memory_gbs is None


@cache  # one process has one opinion of its machine: what is planned, trained and reported in it agrees
def looked() -> tuple[Look, Look]:
    """A matrix product and a copy of this machine's cores, timed once per process."""
    a = np.ones((SIDE, SIDE), dtype=np.float32)
    b, copied = np.ones(COPIED // 4, dtype=np.float32), np.empty(COPIED // 4, dtype=np.float32)
    with one_thread():
        return look(lambda: a @ a), look(lambda: np.copyto(copied, b))


def disturbed(cluster: Cluster) -> bool:
    """Whether a cluster's numbers are of a look that was disturbed; its `efficiency.source` says by what."""
    return cluster.efficiency.source.startswith(DISTURBED)


def machine_for(cluster: Cluster | None, world: int) -> Cluster:
    """Where that many processes run: a job's cluster, or where it names none this machine, its cores shared."""
    found = measured_machine(cluster)
    return found if cluster is not None else sharing_cores(found, world)


def sharing_cores(machine: Cluster, world: int) -> Cluster:
    """A machine on which more processes than it has cores take turns, or fewer have several each; `source` says so."""
    if not machine.device.host or world == machine.devices:
        return machine
    if world < machine.devices:
        return _several_cores(machine, world, threads_of(world, machine.devices))
    # Numbers are of all at work, each with its share of a core; who works beside fewer is faster (`step.pace`). Waking
    # up takes as many turns longer as there are processes on the core.
    turns = world / machine.devices
    device = machine.device
    rates = {field.name: rate / turns for field in fields(Peak) if (rate := getattr(device.tflops, field.name))}
    device = replace(
        device,
        memory_gib=device.memory_gib / turns,
        memory_gbs=None if device.memory_gbs is None else device.memory_gbs / turns,
        tflops=Peak(**rates),
    )
    known = machine.efficiency
    said = (
        f"{known.source}; {world} processes share {machine.devices} cores: "
        f"`heddle profile --processes {world}` measures how fast each then is"
    )
    longer = {name: turns * getattr(known, name) for name in OF_A_CORE}
    return replace(
        machine, devices=world, cores=machine.devices, device=device, efficiency=replace(known, **longer, source=said)
    )


def threads_of(world: int, cores: int) -> int:
    """Threads that each of so many processes computes with: its share of the cores, or what the environment says."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    share = max(1, cores // world)
    return min(share, int(told)) if told.isascii() and told.isdecimal() and int(told) > 0 else share


def _several_cores(machine: Cluster, world: int, threads: int) -> Cluster:
    """Fewer processes than cores: each multiplies with all of its cores. One core nearly fills the memory's bus."""
    if threads == 1:
        return machine
    device, known = machine.device, machine.efficiency
    rates = {field.name: threads * rate for field in fields(Peak) if (rate := getattr(device.tflops, field.name))}
    device = replace(device, memory_gib=threads * device.memory_gib, tflops=Peak(**rates))
    said = (
        f"{known.source}; each process has {threads} cores: "
        f"`heddle profile --processes {world}` measures how fast each then is"
    )
    return replace(machine, devices=world, device=device, efficiency=replace(known, source=said))


def look(work: Callable[[], object]) -> Look:
    """Time a call, once more and for longer if something disturbed it."""
    work()
    found = _samples(work, WINDOW)
    return found if not found.doubt else _samples(work, LONGER)


def _samples(work: Callable[[], object], window: float) -> Look:
    """The quickest of many calls, in processor time of the thread that calls, and what speaks against it."""
    spent: list[float] = []
    began, cpu, whole = time.perf_counter(), time.thread_time(), time.process_time()
    now = cpu
    while time.perf_counter() < began + window or len(spent) < 3:
        before = now
        work()
        now = time.thread_time()
        spent.append(now - before)
    took, threads = time.perf_counter() - began, (time.process_time() - whole) / max(now - cpu, 1e-9)
    return Look(max(min(spent), 1e-9), _doubt((now - cpu) / took, spent, threads))


def _doubt(share: float, spent: list[float], threads: float = 1.0) -> str:
    """Why samples may be wrong, in words.

    Args:
        share: of the time that passed, what the thread that looked had a core.
        spent: the samples.
        threads: that were at work in its process, on average.
    """
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    if threads > ALONE:
        return f"{threads:.1f} threads of this process were at work, and not one"
    if share < AWAY:
        return f"other work used its core for {1 - share:.0%} of the time (load {load:.1f} on {cores} cores)"
    spread = statistics.median(spent) / max(min(spent), 1e-9)
    if spread > SPREAD:
        return f"its samples differ {spread:.1f}-fold (load {load:.1f} on {cores} cores)"
    return ""
