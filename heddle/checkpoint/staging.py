"""What goes on beside the computation: page-locked host memory for copies, and making the next batch ahead."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch
from torch import Tensor

from heddle.runtime.device import on_gpu
from heddle.runtime.tiers import tier_of

T = TypeVar("T")


def host_like(values: Tensor) -> Tensor:
    """Host memory for a copy of `values`; page-locked where they lie on a GPU, or the copy would block and crawl."""
    tier = tier_of(values)
    if tier is not None:  # what does not live in memory is not copied there either
        return tier.reserve(values.numel(), values.dtype).view_as(values)
    return torch.empty_like(values, device="cpu", pin_memory=on_gpu(values.device))


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
