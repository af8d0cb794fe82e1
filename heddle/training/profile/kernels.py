"""Timing kernels: matrix products, copies, what layers do beside products, attention, and the start of a kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from heddle.cost.compute import KERNELS
from heddle.cost.measured.from_timings import Attended, Product, TrafficTime
from heddle.models.transformer import Layer, Microbatch
from heddle.runtime.device import DTYPES, on_gpu, synchronize
from heddle.spec.job import Storage
from heddle.spec.model import ModelSpec
from heddle.training.profile.clock import SharedClock, some

# What layers of small and middling models multiply, forward and for both gradients; GPUs get eight times as much.
SHAPES = ((64, 256, 256), (256, 256, 256), (256, 256, 1024), (256, 1024, 256), (1024, 512, 512), (512, 512, 2048))
LENGTHS = (128, 256, 512)  # of sequences
CACHE = 96 << 20  # bytes beyond most caches: kernels between products mostly find what they read in memory


def worth_it(device: torch.device) -> list[Storage]:
    """Precisions that multiply at least half as fast as fp32; most CPUs only imitate the short ones."""
    seconds: dict[Storage, float] = {}
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


def products(clock: SharedClock, device: torch.device) -> Iterator[Product]:
    """Matrix products, in every precision that is worth it."""
    scale = 8 if on_gpu(device) else 1
    known = worth_it(device)
    if clock.mesh.world.size > 1:  # all must time the same ones
        shared = [known]
        dist.broadcast_object_list(shared, src=0, group=clock.mesh.host.group)
        known = shared[0]
    for precision in known:
        for shape in SHAPES:
            m, k, n = (scale * size for size in shape)
            x, weight, y = (some(device, *dims).to(DTYPES[precision]) for dims in ((m, k), (n, k), (m, n)))
            yield Product(precision, m, k, n, clock(partial(F.linear, x, weight)))
            yield Product(precision, k, m, n, clock(partial(torch.mm, y.t(), x)))  # the gradient of the weight


def _cold(build: Callable[[], Callable[[], object]], count: int) -> Callable[[], object]:
    """Work on so many bytes that finds none of them in a cache: the same on one set of tensors after the other."""
    several = cycle([build() for _ in range(max(1, CACHE // count))])
    return lambda: next(several)()


def copies(clock: SharedClock, device: torch.device) -> Iterator[TrafficTime]:
    """Copies of memory, which set its bandwidth."""
    for mib in (4, 16, 64):
        count = 2 * mib << 20

        def copy(mib: int = mib) -> Callable[[], object]:
            x = some(device, mib << 18)
            return partial(torch.empty_like(x).copy_, x)

        yield TrafficTime("copy", count, clock(_cold(copy, count)))


def traffic(clock: SharedClock, device: torch.device) -> Iterator[TrafficTime]:
    """What layers and the optimizer do beside products, with the bytes that `heddle.cost.compute` counts for it."""
    rows, hidden = (16384, 4096) if on_gpu(device) else (1024, 512)
    size = 4 * rows * hidden
    weight, bias = some(device, hidden).requires_grad_(), some(device, hidden).requires_grad_()
    targets = torch.zeros(rows, dtype=torch.long, device=device)

    def one() -> Tensor:
        return some(device, rows, hidden)

    def norm_backward() -> Callable[[], object]:
        leaf = one().requires_grad_()
        made = F.layer_norm(leaf, (hidden,), weight, bias)
        return partial(torch.autograd.grad, made, (leaf, weight, bias), one(), retain_graph=True)

    def update() -> Callable[[], object]:
        parameter = some(device, 16 * hidden * hidden // 4).requires_grad_()
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
        yield TrafficTime(name, count, clock(_cold(build, count)))


def attention(clock: SharedClock, device: torch.device) -> Iterator[Attended]:
    """Causal attention, there and back."""
    scale = 8 if on_gpu(device) else 1
    dtype = torch.bfloat16 if on_gpu(device) else torch.float32
    heads, size = 8, 64
    for length in (scale * sequence for sequence in LENGTHS):
        q, k, v = (some(device, 1, heads, length, size).to(dtype).requires_grad_() for _ in range(3))
        attend = partial(F.scaled_dot_product_attention, q, k, v, is_causal=True)
        y = attend()
        back = partial(torch.autograd.grad, y, (q, k, v), torch.ones_like(y), retain_graph=True)
        yield Attended(heads, length, size, clock(attend), clock(back))


def gelu(clock: SharedClock, device: torch.device) -> float:
    """Nanoseconds per number, where that is more than its bytes explain: a GPU's memory is always the slower."""
    if on_gpu(device):
        return 0.0
    count = 1 << 19

    def forward() -> Callable[[], object]:
        return partial(F.gelu, some(device, count), approximate="tanh")

    def backward() -> Callable[[], object]:
        x = some(device, count).requires_grad_()
        made = F.gelu(x, approximate="tanh")
        return partial(torch.autograd.grad, made, x, torch.ones_like(made), retain_graph=True)

    both = clock(_cold(forward, 8 * count)) + clock(_cold(backward, 12 * count))
    return both / 2 / count * 1e9


def launch(clock: SharedClock, device: torch.device) -> float:
    """Microseconds per kernel: a layer so small that starting its kernels is all the work there is."""
    spec = ModelSpec(layers=1, hidden=16, heads=2, vocab=16, sequence=4)
    layer, batch = Layer(spec.layer(0), 0).to(device), Microbatch(sequence=4)
    x = some(device, 4, 16).requires_grad_()

    def once() -> None:
        layer(x, batch).sum().backward()

    return clock(once) / (3 * KERNELS) * 1e6
