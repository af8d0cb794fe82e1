"""The clock that kernels and exchanges are timed by, and what they work on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from heddle.parallel.collectives import all_reduce
from heddle.parallel.mesh import Mesh
from heddle.runtime.device import synchronize


class SharedClock:
    """Times work that all processes do at once."""

    def __init__(self, mesh: Mesh, device: torch.device, window: float) -> None:
        self.mesh, self.device, self.window = mesh, device, window

    def __call__(self, work: Callable[[], object]) -> float:
        """Seconds of `work`, as a mean over processes."""
        work()
        synchronize(self.device)
        if self.mesh.world.size > 1:
            dist.barrier(group=self.mesh.world.group)
        calls, began = 0, time.perf_counter()
        while (taken := time.perf_counter() - began) < self.window or not calls:
            work()
            calls += 1
            if calls % 8 == 0:  # a GPU is given work faster than it does it
                synchronize(self.device)
        if self.device.type != "cpu":
            synchronize(self.device)
            taken = time.perf_counter() - began
        return mean(taken / calls, self.mesh, self.device)


def mean(value: float, mesh: Mesh, device: torch.device) -> float:
    """Over all processes."""
    return all_reduce(torch.tensor([value], dtype=torch.float64, device=device), mesh.world).item() / mesh.world.size


def some(device: torch.device, *shape: int) -> Tensor:
    """Numbers to compute with; drawing random ones would take longer than most that is timed."""
    return torch.linspace(-1.0, 1.0, math.prod(shape), device=device).view(shape)
