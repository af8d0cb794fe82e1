"""Timing exchanges: collectives and sends, over the groups of processes that training would have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from heddle.cost.measured.from_timings import MessageTime
from heddle.parallel.collectives import all_reduce, gather, reduce_scatter
from heddle.parallel.mesh import Axis, Mesh
from heddle.runtime.device import on_gpu, synchronize
from heddle.training.profile.clock import SharedClock, mean, some

BETWEEN = 3  # products between two collectives
SIZES = tuple(
    1 << power for power in (10, 16, 18, 20, 22, 24, 25)
)  # of messages, bytes; the last is a bucket of gradients


def messages(clock: SharedClock, mesh: Mesh, device: torch.device, quick: bool) -> Iterator[MessageTime]:
    """Collectives as layers meet them, after some products: whoever is done first waits for the others, and sleeps."""
    groups = {axis.size: axis for axis in (mesh.world, mesh.tensor) if axis.size > 1}
    kinds: dict[str, Callable[[Tensor, Axis], object]] = {
        "all-reduce": all_reduce,
        "all-gather": _gather_whole,
        "reduce-scatter": reduce_scatter,
        "send": _send,
    }
    side = 2048 if on_gpu(device) else 256 if quick else 512
    square = some(device, side, side)

    def products() -> None:
        for _ in range(BETWEEN):
            torch.mm(square, square)

    for axis in groups.values():
        for kind, communicate in kinds.items():
            if kind == "send" and axis.size > 2 and 2 in groups:
                continue
            for size in SIZES[:4] if quick else SIZES:
                x = torch.zeros(size // 4 // (2 * axis.size) * 2 * axis.size, device=device)
                work = partial(communicate, x, axis)
                if kind == "send":  # these are posted ahead, and nobody waits
                    yield MessageTime(
                        kind, axis.size, x.nbytes // 2, _time_together(work, size, mesh, device, quick) / 2
                    )
                    continue

                def layer(work: Callable[[], object] = work) -> None:
                    products()
                    work()

                free = clock(products)
                seconds = _time_together(layer, size, mesh, device, quick) - free
                if seconds <= 0:  # the products were disturbed: at least what a collective takes by itself
                    seconds = _time_together(work, size, mesh, device, quick)
                yield MessageTime(kind, axis.size, x.nbytes, seconds)


def _gather_whole(x: Tensor, axis: Axis) -> Tensor:
    return gather(x[: len(x) // axis.size], axis)


def _send(x: Tensor, axis: Axis) -> None:
    """Half of it from the first to the last rank of the axis, and half of it back."""
    peer = axis.ranks[axis.size - 1 - axis.rank]
    half = x[: len(x) // 2]
    if axis.ranks[axis.rank] == peer:
        return
    first = axis.rank < axis.size - 1 - axis.rank
    for sends in (first, not first):
        if sends:
            dist.send(half, dst=peer, group=axis.group)
        else:
            dist.recv(half, src=peer, group=axis.group)


def _time_together(work: Callable[[], object], size: int, mesh: Mesh, device: torch.device, quick: bool) -> float:
    """Seconds of something that all ranks take part in: equally often, so that they stay together."""
    calls = 6 if quick else max(4, min(12, (1 << 23) // size))
    work()
    synchronize(device)
    dist.barrier(group=mesh.world.group)
    began = time.perf_counter()
    for _ in range(calls):
        work()
    synchronize(device)
    return mean((time.perf_counter() - began) / calls, mesh, device)
