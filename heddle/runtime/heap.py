"""The heap of a CPU process, kept from growing: what is freed between blocks that live goes back to the system.

glibc gives memory back from the end of its heap only. Where buffers of collectives are freed at moments that differ
from step to step, holes stay between blocks that live and new tensors do not fit into them, so the process grows though
nothing is leaked: by half within some hundred steps of a small model on two processes. `malloc_trim` returns the pages
of all holes. It takes milliseconds, and the next use of a page is a fault, so it is called only once a process has
grown by a quarter. A fixed `M_MMAP_THRESHOLD` would keep it small, too, but then every tensor is new pages.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import torch

from heddle.runtime.device import memory_in_use, on_gpu

GROWN = 1.25  # times what the process held after the step that followed the last trimming
LEAST = 32 << 20  # bytes that are worth it


class Heap:
    """Looks at what a process holds after each of its steps."""

    def __init__(self, device: torch.device) -> None:
        self.trim = None if on_gpu(device) else _malloc_trim()
        self.usual: int | None = None  # bytes after a step, when there was nothing to give back

    def after_step(self) -> None:
        """Give back what is free once there is much of it."""
        if self.trim is None:
            return
        now = memory_in_use()
        if self.usual is None:
            self.usual = now
        elif now > max(GROWN * self.usual, self.usual + LEAST):
            self.trim(0)
            self.usual = None  # the next step takes its pages again; what it holds then is the measure


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Of the C library, where it is glibc."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
