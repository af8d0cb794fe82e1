"""Measuring the machine: matrix products, memory, attention, starting kernels, messages; by all processes at once.

Processes compute at the same time, as they do in training, so that what they take from each other (memory bandwidth,
cores, clock) is in the numbers. Every process counts what it gets done in the same stretch of time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from heddle.cost.compute import KERNELS
from heddle.cost.from_timings import Attended, Measured, Message, Product, Traffic, blank, cluster_of, typical
from heddle.models.transformer import Layer, Microbatch
from heddle.parallel.collectives import all_reduce, gather, reduce_scatter
from heddle.parallel.mesh import Axis, Mesh
from heddle.runtime.device import DTYPES, describe, has_gpus, multiprocessors, on_gpu, pick_device, synchronize
from heddle.runtime.launch import run_processes
from heddle.spec.cluster import GIB, Cluster
from heddle.spec.job import Precision
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.spec.this_machine import this_machine

WINDOW = 0.05  # seconds of one timing: long beside the turns that processes take on a shared core
QUICK = 0.02
PASSES = 5
# What layers of small and middling models multiply, forward and for both gradients; GPUs get eight times as much.
SHAPES = ((64, 256, 256), (256, 256, 256), (256, 256, 1024), (256, 1024, 256), (1024, 512, 512), (512, 512, 2048))
LENGTHS = (128, 256, 512)  # of sequences
BETWEEN = 3  # products between two collectives
CACHE = 96 << 20  # bytes beyond most caches: kernels between products mostly find what they read in memory
SIZES = tuple(1 << power for power in (10, 16, 18, 20, 22, 24))  # of messages, bytes


def profile(processes: int, quick: bool = False) -> Cluster:
    """Measure this machine with that many processes at work, and describe it as a cluster of so many devices."""
    if processes == 1:
        found = measure(Mesh(), quick)
    else:
        even = processes % 2 == 0
        plan = Plan(tensor=2 if even else processes, data=processes // 2 if even else 1)
        found = run_processes(plan, measure, quick)
    return described(processes, found)


def described(processes: int, found: Measured) -> Cluster:
    """What was measured, as a cluster of so many devices."""
    several = f"{processes} process{'es' * (processes > 1)}"
    return cluster_of(machine(processes), found, f"measured by heddle profile with {several} at work")


def machine(processes: int) -> Cluster:
    """What this machine says of itself, cut into as many devices as there are processes."""
    if has_gpus():
        device = pick_device()
        about = describe(device)
        return blank(about.name, about.memory / GIB, multiprocessors(device), False, processes, None)
    whole = this_machine()
    cores = whole.devices
    memory = whole.device.memory_gib * cores / processes
    return blank("cpu", memory, None, True, processes, cores if cores < processes else None)


def measure(mesh: Mesh, quick: bool = False) -> Measured:
    """One process's part of the measurement; rank 0's answer is the mean over all."""
    return typical([measure_once(mesh, quick) for _ in range(1 if quick else PASSES)])


def measure_once(mesh: Mesh, quick: bool = False) -> Measured:
    """One pass over everything."""
    device = pick_device()
    clock = Clock(mesh, device, QUICK if quick else WINDOW)
    return Measured(
        products=tuple(_products(clock, device)),
        copies=tuple(_copies(clock, device)),
        traffic=tuple(_traffic(clock, device)),
        attention=tuple(_attention(clock, device)),
        gelu_ns=_gelu(clock, device),
        launch_us=_launch(clock, device),
        messages=tuple(_messages(clock, mesh, device, quick)),
    )


class Clock:
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


def worth_it(device: torch.device) -> list[Precision]:
    """Precisions that multiply at least half as fast as fp32; most CPUs only imitate the short ones."""
    seconds: dict[Precision, float] = {}
    for precision, dtype in DTYPES.items():
        a = torch.ones(256, 256, dtype=dtype, device=device)
        took = []
        for _ in range(4):
            synchronize(device)
            began = time.perf_counter()
            a @ a
            synchronize(device)
            took.append(time.perf_counter() - began)
        seconds[precision] = min(took)
    return [name for name, value in seconds.items() if value < 2 * seconds["fp32"]]


def _products(clock: Clock, device: torch.device) -> Iterator[Product]:
    scale = 8 if on_gpu(device) else 1
    known = worth_it(device)
    if clock.mesh.world.size > 1:  # all must time the same ones
        shared = [known]
        dist.broadcast_object_list(shared, src=0, group=clock.mesh.host.group)
        known = shared[0]
    for precision in known:
        for shape in SHAPES:
            m, k, n = (scale * size for size in shape)
            x, weight, y = (_some(device, *dims).to(DTYPES[precision]) for dims in ((m, k), (n, k), (m, n)))
            yield Product(precision, m, k, n, clock(partial(F.linear, x, weight)))
            yield Product(precision, k, m, n, clock(partial(torch.mm, y.t(), x)))  # the gradient of the weight


def _cold(build: Callable[[], Callable[[], object]], count: int) -> Callable[[], object]:
    """Work on so many bytes that finds none of them in a cache: the same on one set of tensors after the other."""
    several = cycle([build() for _ in range(max(1, CACHE // count))])
    return lambda: next(several)()


def _copies(clock: Clock, device: torch.device) -> Iterator[Traffic]:
    for mib in (4, 16, 64):
        count = 2 * mib << 20

        def copy(mib: int = mib) -> Callable[[], object]:
            x = _some(device, mib << 18)
            return partial(torch.empty_like(x).copy_, x)

        yield Traffic("copy", count, clock(_cold(copy, count)))


def _traffic(clock: Clock, device: torch.device) -> Iterator[Traffic]:
    """What layers and the optimizer do beside products, with the bytes that `heddle.cost.compute` counts for it."""
    rows, hidden = (16384, 4096) if on_gpu(device) else (1024, 512)
    size = 4 * rows * hidden
    weight, bias = _some(device, hidden).requires_grad_(), _some(device, hidden).requires_grad_()
    targets = torch.zeros(rows, dtype=torch.long, device=device)

    def one() -> Tensor:
        return _some(device, rows, hidden)

    def norm_backward() -> Callable[[], object]:
        leaf = one().requires_grad_()
        made = F.layer_norm(leaf, (hidden,), weight, bias)
        return partial(torch.autograd.grad, made, (leaf, weight, bias), one(), retain_graph=True)

    def update() -> Callable[[], object]:
        parameter = _some(device, 16 * hidden * hidden // 4).requires_grad_()
        parameter.grad = torch.ones_like(parameter)
        adam = torch.optim.AdamW([parameter], fused=True)

        def step() -> None:
            torch._foreach_norm([parameter.grad])  # type: ignore[list-item]
            adam.step()

        return step

    kernels: dict[str, tuple[int, Callable[[], Callable[[], object]]]] = {
        "sum": (3 * size, lambda: partial(torch.add, one(), one())),
        "norm": (2 * size, lambda: partial(F.layer_norm, one(), (hidden,), weight, bias)),
        "norm, backward": (3 * size, norm_backward),
        "update": (36 * 4 * hidden * hidden, update),
        "loss": (6 * size, lambda: partial(F.cross_entropy, one(), targets)),
    }
    for name, (count, build) in kernels.items():
        yield Traffic(name, count, clock(_cold(build, count)))


def _attention(clock: Clock, device: torch.device) -> Iterator[Attended]:
    scale = 8 if on_gpu(device) else 1
    dtype = torch.bfloat16 if on_gpu(device) else torch.float32
    heads, size = 8, 64
    for length in (scale * sequence for sequence in LENGTHS):
        q, k, v = (_some(device, 1, heads, length, size).to(dtype).requires_grad_() for _ in range(3))
        attend = partial(F.scaled_dot_product_attention, q, k, v, is_causal=True)
        y = attend()
        back = partial(torch.autograd.grad, y, (q, k, v), torch.ones_like(y), retain_graph=True)
        yield Attended(heads, length, size, clock(attend), clock(back))


def _gelu(clock: Clock, device: torch.device) -> float:
    """Nanoseconds a number, where that is more than its bytes explain: a GPU's memory is always the slower."""
    if on_gpu(device):
        return 0.0
    count = 1 << 19

    def forward() -> Callable[[], object]:
        return partial(F.gelu, _some(device, count), approximate="tanh")

    def backward() -> Callable[[], object]:
        x = _some(device, count).requires_grad_()
        made = F.gelu(x, approximate="tanh")
        return partial(torch.autograd.grad, made, x, torch.ones_like(made), retain_graph=True)

    both = clock(_cold(forward, 8 * count)) + clock(_cold(backward, 12 * count))
    return both / 2 / count * 1e9


def _launch(clock: Clock, device: torch.device) -> float:
    """Microseconds a kernel: a layer so small that starting its kernels is all the work there is."""
    spec = ModelSpec(layers=1, hidden=16, heads=2, vocab=16, sequence=4)
    layer, batch = Layer(spec, 0).to(device), Microbatch(sequence=4)
    x = _some(device, 4, 16).requires_grad_()

    def once() -> None:
        layer(x, batch).sum().backward()

    return clock(once) / (3 * KERNELS) * 1e6


def _messages(clock: Clock, mesh: Mesh, device: torch.device, quick: bool) -> Iterator[Message]:
    """Collectives as layers meet them, after some products: whoever is done first waits for the others, and sleeps."""
    groups = {axis.size: axis for axis in (mesh.world, mesh.tensor) if axis.size > 1}
    kinds: dict[str, Callable[[Tensor, Axis], object]] = {
        "all-reduce": all_reduce,
        "all-gather": _gather_whole,
        "reduce-scatter": reduce_scatter,
        "send": _send,
    }
    side = 2048 if on_gpu(device) else 256 if quick else 512
    square = _some(device, side, side)

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
                    yield Message(kind, axis.size, x.nbytes // 2, _time_together(work, size, mesh, device, quick) / 2)
                    continue

                def layer(work: Callable[[], object] = work) -> None:
                    products()
                    work()

                free = clock(products)
                seconds = _time_together(layer, size, mesh, device, quick) - free
                if seconds <= 0:  # the products were disturbed: at least what a collective takes by itself
                    seconds = _time_together(work, size, mesh, device, quick)
                yield Message(kind, axis.size, x.nbytes, seconds)


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


def _some(device: torch.device, *shape: int) -> Tensor:
    """Numbers to compute with; drawing random ones would take longer than most that is timed."""
    return torch.linspace(-1.0, 1.0, math.prod(shape), device=device).view(shape)
