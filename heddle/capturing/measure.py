"""Measuring a module in as many processes at once as will run it: they share caches, memory and links."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from heddle.capturing.files import load_stage, save_stage
from heddle.capturing.split import CapturedStage
from heddle.capturing.times import ROUNDS, Times, measured
from heddle.parallel.mesh import Mesh
from heddle.runtime.device import pick_device, synchronize
from heddle.runtime.scratch import scratch_folder
from heddle.spec.plan import Plan

SMALL, LARGE = 2**12, 2**22  # bytes of the messages that latency and bandwidth are taken from


def measured_together(stage: CapturedStage, inputs: list[Any], training: bool, devices: int) -> Times:
    """What operators and messages take while every device is at work."""
    from heddle.runtime.launch import run_processes

    with scratch_folder() as folder:
        save_stage(stage, folder / "stage.pt")
        torch.save(inputs, folder / "inputs.pt")
        plan = Plan(pipeline=devices)
        forward, backward, latency, bandwidth = run_processes(plan, _measure, folder, training, script=True)
    return Times(forward, backward, latency, bandwidth)


def _measure(mesh: Mesh, folder: Path, training: bool) -> tuple[list[float], list[float], float, float]:
    device = pick_device()
    stage = load_stage(folder / "stage.pt", device)
    inputs = torch.load(folder / "inputs.pt", map_location=device, weights_only=False)
    if mesh.world.size > 1:
        dist.barrier(group=mesh.world.group)
    rounds = ROUNDS + (mesh.rank > 0)  # the first one is measured, and never alone
    forward, backward = measured(stage, inputs, training, device, rounds)
    latency, bandwidth = _link(mesh, device)
    return forward, backward, latency, bandwidth


def _link(mesh: Mesh, device: torch.device) -> tuple[float, float]:
    """Seconds that any message takes, and bytes per second, between the first two stages."""
    if mesh.world.size == 1:
        return 0.0, 1e12
    found = {}
    for size in (SMALL, LARGE):
        dist.barrier(group=mesh.world.group)
        message = torch.empty(size, dtype=torch.uint8, device=device)
        found[size] = statistics.median(_round_trip(mesh, message) for _ in range(12)) / 2
    bandwidth = (LARGE - SMALL) / max(found[LARGE] - found[SMALL], 1e-9)
    return max(found[SMALL] - SMALL / bandwidth, 0.0), bandwidth


def _round_trip(mesh: Mesh, message: torch.Tensor) -> float:
    if mesh.pipeline.rank > 1:
        return 0.0
    there, back = mesh.channels[0, 1], mesh.channels[1, 0]
    first, second = mesh.pipeline.ranks[:2]
    synchronize(message.device)
    start = time.perf_counter()
    if mesh.pipeline.rank == 0:
        dist.send(message, second, group=there)
        dist.recv(message, second, group=back)
    else:
        dist.recv(message, first, group=there)
        dist.send(message, first, group=back)
    synchronize(message.device)
    return time.perf_counter() - start
