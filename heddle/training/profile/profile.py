"""Measuring the machine: products, memory, attention, kernel launches, messages, tiers; by all processes at once.

Processes compute at the same time, as they do in training, so that what they take from each other (memory bandwidth,
cores, clock) is in the numbers. Every process counts what it gets done in the same stretch of time.
"""

from __future__ import annotations

from dataclasses import replace

from heddle.cost.measured.from_timings import Timings, blank, cluster_of, typical
from heddle.format import GIB
from heddle.parallel.mesh import Mesh
from heddle.runtime.device import capability, describe, has_gpus, multiprocessors, pick_device
from heddle.runtime.launch import run_processes
from heddle.spec.cluster import Cluster
from heddle.spec.plan import Plan
from heddle.spec.this_machine import this_machine
from heddle.training.profile import kernels
from heddle.training.profile.clock import SharedClock
from heddle.training.profile.messages import messages
from heddle.training.profile.steps import steps, with_steps
from heddle.training.profile.tiers import tiers

WINDOW = 0.05  # seconds of one timing: long beside the turns that processes take on a shared core
QUICK = 0.02
PASSES = 5


def profile(processes: int, quick: bool = False) -> Cluster:
    """Measure this machine with that many processes at work, and describe it as a cluster of so many devices."""
    if processes == 1:
        found = measure(Mesh(), quick)
    else:
        even = processes % 2 == 0
        plan = Plan(tensor=2 if even else processes, data=processes // 2 if even else 1)
        found = run_processes(plan, measure, quick)
    return described(processes, found)


def described(processes: int, found: Timings) -> Cluster:
    """What was measured, as a cluster of so many devices."""
    several = f"{processes} process{'es' * (processes > 1)}"
    cluster = cluster_of(machine(processes), found, f"measured by heddle profile with {several} running")
    return with_steps(cluster, found.steps, processes)


def machine(processes: int) -> Cluster:
    """What this machine says of itself, cut into as many devices as there are processes."""
    if has_gpus():
        device = pick_device()
        about = describe(device)
        found = blank(about.name, about.memory / GIB, multiprocessors(device), False, processes, None)
        return replace(found, device=replace(found.device, capability=capability(device)))
    whole = this_machine()
    cores = whole.devices
    memory = whole.device.memory_gib * cores / processes
    return blank("cpu", memory, None, True, processes, cores if cores < processes else None)


def measure(mesh: Mesh, quick: bool = False) -> Timings:
    """One process's part of the measurement; rank 0's answer is the mean over all."""
    return typical([measure_once(mesh, quick) for _ in range(1 if quick else PASSES)])


def measure_once(mesh: Mesh, quick: bool = False) -> Timings:
    """One pass over everything."""
    device = pick_device()
    clock = SharedClock(mesh, device, QUICK if quick else WINDOW)
    return Timings(
        products=tuple(kernels.products(clock, device)),
        copies=tuple(kernels.copies(clock, device)),
        traffic=tuple(kernels.traffic(clock, device)),
        attention=tuple(kernels.attention(clock, device)),
        gelu_ns=kernels.gelu(clock, device),
        launch_us=kernels.launch(clock, device),
        messages=tuple(messages(clock, mesh, device, quick)),
        steps=tuple(steps(mesh, quick)),
        tiers=tuple(tiers(clock, device)),
    )
