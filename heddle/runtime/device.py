"""The one place that knows what kind of device this process runs on."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

import torch

from heddle.runtime import cuda
from heddle.spec.cluster import GIB, Cluster
from heddle.spec.job import Precision

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device() -> torch.device:
    """This process's GPU where there is one, else the CPU."""
    if torch.version.cuda is not None:
        cuda.set_defaults()
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
        allow_tf32()
        return device
    return torch.device("cpu")


def allow_tf32() -> None:
    """Let fp32 products use TF32's tensor cores, where a GPU has them: 8 to 16 times as fast, with 10 of 23 bits."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given, so that a clock tells the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def memory_gib(device: torch.device) -> float:
    """Peak memory of a GPU, present memory of a CPU process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / GIB
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / GIB
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def peak_flops(cluster: Cluster | None, precision: Precision, device: torch.device) -> tuple[float, str]:
    """FLOP/s to hold utilisation against, and where that comes from: the cluster's file, or a measurement here."""
    stated = cluster.device.tflops.flops(precision) if cluster else None
    if cluster and stated:
        return stated, f"stated for {cluster.device.name}"
    return measured_flops(DTYPES[precision], device), "measured here"


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
