"""The one place that knows what kind of device this process runs on.

Everything else asks here: which device, its memory, its clock, how far it has come, how its processes talk. So a run on
GPUs is the same code as one on CPUs, but for this file.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d

from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.runtime import cuda
from heddle.runtime.environment import local_place
from heddle.spec.job import Storage
from heddle.spec.this_machine import asks_for_cpus, driver_version

DTYPES: dict[Storage, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def has_gpus() -> bool:
    """Whether this process sees any. Asking starts CUDA, so what it reads from the environment is set before."""
    if asks_for_cpus():
        return False
    if torch.version.cuda is not None:
        cuda.set_defaults()
    return torch.cuda.is_available()


def refuse_unusable_gpus() -> None:
    """Refuse to compute on CPUs beside GPUs that this PyTorch cannot use, unless somebody insists."""
    if has_gpus() or asks_for_cpus() or not (driver := driver_version()):
        return
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    raise HeddleError(
        f"This machine has GPUs, but PyTorch {torch.__version__} cannot use them.",
        f"It was built {built}, and the driver is {driver}. Training on the CPUs instead would be very slow.",
        "Install a build of PyTorch for this driver, or a newer driver; HEDDLE_DEVICE=cpu insists on the CPUs.",
    )


def device_type() -> str:
    """The kind of device that tensors of a run live on."""
    return "cuda" if has_gpus() else "cpu"


def backend(gpus: bool | None = None) -> str:
    """What the processes of a run talk over, with GPUs or without; by default as here."""
    return "nccl" if (has_gpus() if gpus is None else gpus) else "gloo"


def gpu_count() -> int:
    """How many this process sees."""
    return torch.cuda.device_count() if has_gpus() else 0


def built_for() -> str:
    """What this PyTorch was made to compute on."""
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"


def versions() -> dict[str, str]:
    """Of PyTorch and what it talks to devices with."""
    found = {"torch": str(torch.__version__)}
    if has_gpus():
        found |= {"cuda": str(torch.version.cuda), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    return found


def pick_device() -> torch.device:
    """This process's GPU where there is one, else the CPU."""
    if not has_gpus():
        refuse_unusable_gpus()
        return torch.device("cpu")
    device = torch.device("cuda", _index(torch.cuda.device_count()))
    torch.cuda.set_device(device)
    allow_tf32()
    return device


@contextmanager
def repeatable(wanted: bool) -> Iterator[None]:
    """Let whatever is computed inside give the same bits when it is computed again.

    On a GPU the fastest backwards of attention and of lookups add in the order in which their blocks end. To be entered
    before the GPU multiplies anything: cuBLAS reads its setting once.
    """
    if not wanted:
        yield
        return
    for name, value in cuda.REPEATABLE.items():
        os.environ.setdefault(name, value)
    filling: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), filling.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    filling.fill_uninitialized_memory = False  # nothing here reads memory that it has not written
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        filling.fill_uninitialized_memory = before[1]


def allow_tf32() -> None:
    """Let fp32 products use TF32's tensor cores, where a GPU has them: 8 to 16 times as fast, with 10 of 23 bits."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


def _index(visible: int) -> int:
    """Which of the GPUs that this process sees is its own.

    A launcher either shows all GPUs of a node to all of its processes, or to each its own only, which then is the
    first. That no two have the same one is looked at when they have met.
    """
    local, processes = local_place()
    if local < visible:
        return local
    if visible == 1:
        return 0
    needed = f"{processes} processes" if processes else f"at least {local + 1} processes"
    raise HeddleError(
        f"This node has {visible} GPUs for {needed}.",
        f"Every process needs its own GPU, and this is process {local}, counting from 0. CUDA_VISIBLE_DEVICES is "
        f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}.",
        f"Start {visible} processes on each node, or ask for more GPUs: --gpus-per-node under Slurm.",
    )


@dataclass(frozen=True)
class DeviceFacts:
    """What one process found out about its device."""

    name: str
    memory: int  # bytes
    identity: str = ""  # of the piece of hardware; a CPU is shared, and has none
    peers: bool = False  # whether it reaches the memory of the other GPUs that this process sees


def describe(device: torch.device) -> DeviceFacts:
    """Describe this process's device."""
    if device.type != "cuda":
        return DeviceFacts("cpu", memory_limit())
    about = torch.cuda.get_device_properties(device)
    others = [i for i in range(torch.cuda.device_count()) if i != device.index]
    peers = bool(others) and all(torch.cuda.can_device_access_peer(device.index, i) for i in others)
    return DeviceFacts(about.name, about.total_memory, str(about.uuid), peers)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given, so that a clock tells the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def on_gpu(device: torch.device) -> bool:
    """Whether it is one."""
    return device.type == "cuda"


def runs_ahead(device: torch.device) -> bool:
    """Whether this process only hands out work, and goes on before it is done."""
    return on_gpu(device)


class Mark:
    """A moment in the work of a device: now on a CPU; on a GPU when all that it was given before is done."""

    def __init__(self, device: torch.device, timed: bool = True) -> None:
        self.event: Any = None
        self.at = time.perf_counter()
        if device.type == "cuda":
            self.event = torch.cuda.Event(enable_timing=timed)
            self.event.record()

    def reached(self) -> bool:
        """Whether the device has come so far; asks without waiting."""
        return self.event is None or bool(self.event.query())

    def wait(self) -> None:
        """Until the device has come so far."""
        if self.event is not None:
            self.event.synchronize()

    def hold(self, device: torch.device) -> None:
        """Let what the device is given from now on wait until it has come so far; its host goes on."""
        if self.event is not None:
            torch.cuda.current_stream(device).wait_event(self.event)

    def since(self, earlier: Mark) -> float:
        """Seconds from an earlier mark to this one, both of which the device has reached."""
        if self.event is None:
            return self.at - earlier.at
        return float(earlier.event.elapsed_time(self.event)) / 1000


class SideStream:
    """Copies that neither wait for the computation that follows nor hold it up; on a CPU they are plain ones."""

    def __init__(self) -> None:
        self.streams: dict[torch.device, torch.cuda.Stream] = {}

    @contextmanager
    def copying(self, device: torch.device, ready: Mark) -> Iterator[bool]:
        """Copies inside begin once `ready` is reached, and are complete on leaving; yields whether they may overlap."""
        if device.type != "cuda":
            yield False
            return
        if device not in self.streams:
            self.streams[device] = torch.cuda.Stream(device)
        stream = self.streams[device]
        stream.wait_event(ready.event)
        with torch.cuda.stream(stream):
            yield True
        stream.synchronize()


class CopyStream:
    """A stream of a GPU for copies beside its computation, whose ends are marks."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()

    def uses(self, x: Tensor) -> None:
        """Let the memory of a tensor, once it is forgotten, go to others only when this stream is done with it."""
        x.record_stream(self.stream)

    @contextmanager
    def copying(self, device: torch.device, after: Mark | None = None) -> Iterator[None]:
        """Copies inside begin once all is done that the device was given before, and what is `after`."""
        self.stream.wait_stream(torch.cuda.current_stream(device))
        if after is not None:
            self.stream.wait_event(after.event)
        with torch.cuda.stream(self.stream):
            yield


class HostCopy:
    """Numbers on their way from the device to its host, which waits for them only when it looks."""

    def __init__(self, x: Tensor) -> None:
        if x.device.type == "cuda":
            self.values = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
            self.values.copy_(x, non_blocking=True)
        else:
            self.values = x
        self.mark = Mark(x.device)

    def read(self) -> list[float]:
        """The numbers, once they have arrived."""
        self.mark.wait()
        return list(self.values.tolist())


def pending_collectives() -> list[dict[str, Any]]:
    """Collectives that were given to the network and are not done, oldest first: torch's flight recorder.

    Empty where it records nothing, which `TORCH_FR_BUFFER_SIZE` decides.
    """
    dump = getattr(_distributed_c10d, "_dump_nccl_trace_json", None) if has_gpus() else None
    dump = dump or getattr(_distributed_c10d, "_dump_fr_trace_json", None)
    if dump is None:
        return []
    entries = json.loads(dump(includeCollectives=True, onlyActive=False)).get("entries", [])
    return [each for each in entries if not each.get("retired") and each.get("state") != "completed"]


def abandon() -> None:
    """Part from processes that wait for this one and will wait in vain. Destroying the groups would wait for them."""
    if dist.is_initialized():
        dist.distributed_c10d._abort_process_group()


@contextmanager
def host_threads(device: torch.device) -> Iterator[None]:
    """Let the host of a GPU compute with this process's share of the cores: launchers give it a single thread."""
    if not on_gpu(device):
        yield
        return
    before, (_, processes) = torch.get_num_threads(), local_place()
    torch.set_num_threads(max(before, len(os.sched_getaffinity(0)) // max(1, processes or 1)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def memory_limit() -> int:
    """Bytes that this process may have: those of its GPU, its own limit, or all that the machine has left."""
    if has_gpus():
        return torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    if own != resource.RLIM_INFINITY:
        return own - RESERVED
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        rows = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(rows["MemAvailable"].split()[0]) * 1024 + memory_in_use()
    return torch.iinfo(torch.int64).max


# A limit on addresses counts those, too, that threads reserve and hardly use: glibc takes 64 MiB for each, beside its
# stack of 8, and a run has four threads that allocate.
RESERVED = 4 * (64 + 8) << 20


def memory_outside() -> int:
    """Bytes of this process's GPU that torch does not hand out: CUDA's own, NCCL's buffers, other processes'."""
    if not has_gpus():
        return 0
    free, total = torch.cuda.mem_get_info()
    return max(0, total - free - torch.cuda.memory_reserved())


def memory_in_use() -> int:
    """Bytes this process has now, in the terms of its limit."""
    if has_gpus():
        return torch.cuda.memory_allocated()
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    pages = statm.read_text().split()
    return int(pages[0 if limited else 1]) * resource.getpagesize()


def memory_gib(device: torch.device) -> float:
    """Peak memory of a GPU, present memory of a CPU process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / GIB
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / GIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def forget_peak(device: torch.device) -> None:
    """Let the peak of a GPU's memory be that from now on."""
    if on_gpu(device):
        torch.cuda.reset_peak_memory_stats(device)


def free_unused() -> None:
    """Free what nobody names any more: modules and their hooks hold each other, and a GPU's allocator keeps memory."""
    gc.collect()
    torch.cuda.empty_cache()  # nothing, where there is none


def multiprocessors(device: torch.device) -> int | None:
    """How many a GPU has."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else None


def capability(device: torch.device) -> float | None:
    """A GPU's compute capability."""
    return float("{}.{}".format(*torch.cuda.get_device_capability(device))) if device.type == "cuda" else None


def multiplies_float8(device: torch.device) -> bool:
    """Whether a device has units for products in 8 bits: NVIDIA's have from compute capability 8.9 on."""
    return (capability(device) or 0.0) >= 8.9


@cache
def measured_flops(dtype: torch.dtype, device: torch.device, seconds: float = 0.4) -> float:
    """The best rate of a large matrix product on this device with the threads this process has."""
    size = 4096 if device.type == "cuda" else 1024
    if device.type == "cpu" and dtype != torch.float32:
        size = 256  # low precision is emulated on most CPUs, and slow
    a = torch.ones(size, size, dtype=dtype, device=device)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        synchronize(device)
        start = time.perf_counter()
        a @ a
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
