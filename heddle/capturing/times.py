"""What each operator takes, forward and backward: measured here, or modeled for a device without running anything."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from heddle.capturing.program import Program, bytes_of, is_part, is_view, tensors_of
from heddle.capturing.split import CapturedStage, fake_values, whole
from heddle.capturing.walk import walk
from heddle.errors import HeddleError
from heddle.runtime.device import synchronize
from heddle.spec.cluster import Cluster, Efficiency, Peak
from heddle.spec.this_machine import this_machine

ROUNDS = 7
Seconds = tuple[list[float], list[float]]  # of each operator, forward and backward


@dataclass(frozen=True)
class Times:
    """Seconds of each operator, by its number, and of a message."""

    forward: list[float]
    backward: list[float]  # zeros where there is no training
    latency: float  # of a message between devices
    bandwidth: float  # bytes per second

    def move(self, size: int) -> float:
        """Seconds to move so many bytes from one device to another."""
        return self.latency + size / self.bandwidth


def measured(
    stage: CapturedStage, inputs: Sequence[Any], training: bool, device: torch.device, rounds: int = ROUNDS
) -> Seconds:
    """Medians of a few walks on this machine, scaled so that together they take what the whole module takes.

    Operators are timed where they stand, one after the other, so that caches hold what they would hold in a run.
    """
    count = sum(node.op == "call_function" for node in stage.module.graph.nodes)
    seconds: list[list[list[float]]] = [[[] for _ in range(count)] for _ in range(2)]

    @contextmanager
    def meter(number: int, back: bool) -> Iterator[None]:
        synchronize(device)
        start = time.perf_counter()
        yield
        synchronize(device)
        seconds[back][number].append(time.perf_counter() - start)

    totals: list[tuple[float, float]] = []
    for _ in range(rounds + 1):  # the first is to warm up
        walk(stage, inputs, training, meter)
        totals.append(_together(stage, inputs, training, device))
    found = []
    for way, each in enumerate(seconds):
        medians = [statistics.median(taken[1:]) if taken else 0.0 for taken in each]
        total, added = statistics.median(pair[way] for pair in totals[1:]), sum(medians)
        found.append([value * total / added for value in medians] if added else medians)
    return found[0], found[1]


def _together(stage: CapturedStage, inputs: Sequence[Any], training: bool, device: torch.device) -> tuple[float, float]:
    """Seconds of all operators with nothing between them, forward and backward."""
    with torch.set_grad_enabled(training):
        start = time.perf_counter()
        _, outputs = stage(*(inputs[number] for number in stage.inputs))
        synchronize(device)
        middle = time.perf_counter()
        if training and outputs[0].requires_grad:
            outputs[0].backward()
        synchronize(device)
        end = time.perf_counter()
    return middle - start, end - middle


def modeled(program: Program, cluster: Cluster) -> Seconds:
    """From FLOPs and bytes alone: fake tensors walk through the program, and nothing is computed."""
    peak, efficiency = _peak(cluster), cluster.efficiency
    if not peak or not cluster.device.memory_gbs:
        raise HeddleError(
            f"Cluster '{cluster.name}' does not state device.{'memory_gbs' if peak else 'tflops'}.",
            "Without it no time can be modeled.",
            "Name a cluster that does, such as the preset dgx-a100-80gb, or measure the times here.",
        )
    speed, memory = peak * efficiency.matmul, cluster.device.memory_gbs * 1e9 * efficiency.memory
    start = efficiency.launch_us * 1e-6
    flops: list[dict[int, int]] = [{}, {}]

    @contextmanager
    def meter(number: int, back: bool) -> Iterator[None]:
        with FlopCounterMode(display=False) as counter:
            yield
        flops[back][number] = counter.get_total_flops()

    values = fake_values(program)
    inputs = [values[node] for node in program.inputs]
    modes = (getattr(tensor, "fake_mode", None) for value in values.values() for tensor in tensors_of(value))
    with next(mode for mode in modes if mode is not None):
        walk(whole(program, values), inputs, program.training, meter)

    def seconds(way: int) -> Iterator[float]:
        for number, node in enumerate(program.operators):
            if number not in flops[way] or is_part(node) or is_view(node):
                yield 0.0
                continue
            moved = bytes_of(node) + sum(bytes_of(before) for before in node.all_input_nodes)
            yield max(flops[way][number] / speed, (1 + way) * moved / memory, start)

    return list(seconds(0)), list(seconds(1))


def _peak(cluster: Cluster) -> float:
    stated = (cluster.device.tflops.flops(precision) for precision in ("tf32", "fp32", "bf16", "fp16"))
    return next((value for value in stated if value), 0.0)


def this_core() -> Cluster:
    """This machine; of a CPU, what a core multiplies and moves in a second is found out by doing it."""
    cluster = this_machine()
    if cluster.device.memory_gbs:
        return cluster
    a, b = torch.ones(512, 512), torch.ones(2**22)
    peak = Peak(fp32=2 * 512**3 / _best(lambda: a @ a) / 1e12)
    device = replace(cluster.device, tflops=peak, memory_gbs=8 * b.numel() / _best(b.clone) / 1e9)
    # What was measured is what is reached; an operator takes about 3 µs to start on a CPU.
    return replace(cluster, device=device, efficiency=Efficiency(matmul=1.0, memory=1.0, launch_us=3.0))


def _best(work: Callable[[], object]) -> float:
    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return min(once() for _ in range(5))
