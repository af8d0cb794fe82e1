"""Moving tensors between host and device beside the computation: page-locked host memory and a stream of its own.

On the CPU there is nothing to move: copies are plain, and all that is here about streams does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def host_like(values: Tensor) -> Tensor:
    """Host memory for a copy of `values`; page-locked where they lie on a GPU, or the copy would block and crawl."""
    return torch.empty_like(values, device="cpu", pin_memory=values.device.type == "cuda")


class SideStream:
    """Copies that neither wait for the computation that follows nor hold it up."""

    def __init__(self) -> None:
        self.streams: dict[torch.device, torch.cuda.Stream] = {}

    def mark(self, device: torch.device) -> torch.cuda.Event | None:
        """The present point in the work of a device, for `copying` to wait for; call it where that work is queued."""
        return torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None

    @contextmanager
    def copying(self, device: torch.device, ready: torch.cuda.Event | None) -> Iterator[bool]:
        """Copies inside begin once `ready` is reached, and are complete on leaving; gives whether they may overlap."""
        if device.type != "cuda":
            yield False
            return
        if device not in self.streams:
            self.streams[device] = torch.cuda.Stream(device)
        stream = self.streams[device]
        if ready is not None:
            stream.wait_event(ready)
        with torch.cuda.stream(stream):
            yield True
        stream.synchronize()


class Prefetch(Generic[T]):
    """Makes the next thing in a thread while the present one is used; keys say which one that is.

    Whoever asks for another than was foreseen, after a checkpoint was loaded, gets it made at once.
    """

    def __init__(self, make: Callable[[int], T], ahead: bool) -> None:
        self.make, self.ahead = make, ahead
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="prefetch") if ahead else None
        self.pending: tuple[int, Future[T]] | None = None

    def take(self, key: int, following: int) -> T:
        """What belongs to `key`; that of `following` is being made from now on."""
        pending, self.pending = self.pending, None
        made = pending[1].result() if pending is not None and pending[0] == key else self.make(key)
        if self.executor is not None:
            self.pending = following, self.executor.submit(self.make, following)
        return made
