"""Host memory beside a GPU: page-locked, copied on a stream of its own.

Where the device is the CPU itself this is memory of the same kind, counted apart. It saves nothing there, and lets a
plan for GPUs be proven on a laptop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from heddle.runtime.device import CopyStream, Mark, has_gpus, on_gpu
from heddle.runtime.tiers.tier import Slot, Tier, tag


class Host(Tier):
    """Page-locked memory; copies in both directions run beside the computation."""

    name = "host"

    def __init__(self) -> None:
        super().__init__()
        # a stream for each direction: the bus carries both at once
        self.copies = CopyStream() if has_gpus() else None
        self.returns = CopyStream() if has_gpus() else None
        self.adding: tuple[Tensor, Mark] | None = None  # what is on its way here, and when it has arrived
        self.received: Mark | None = None  # when the last that was received has
        self.landings: dict[tuple[int, torch.dtype], Tensor] = {}  # page-locked, by whose place and in which precision

    def _region(self, size: int) -> Tensor:
        return tag(torch.empty(size, dtype=torch.uint8, pin_memory=self.copies is not None), self)

    def _home(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.uint8, pin_memory=self.copies is not None)

    def _write(self, slot: Slot, region: object, x: Tensor) -> None:
        assert isinstance(region, Tensor)
        slot.region = region[: slot.size]
        if self.copies is None or not on_gpu(x.device):
            slot.region.copy_(x)
            return
        with self.copies.copying(x.device):
            slot.region.copy_(x, non_blocking=True)
            slot.away = copied = Mark(x.device, timed=False)
        device, held = x.device, [x]  # its memory is not given to others before it is copied

        def wait() -> None:
            # the device waits and the host goes on: what gets the memory next is behind the copy in the device's order
            copied.hold(device)
            held.clear()

        slot.wait = wait

    def _begin(self, slot: Slot) -> None:
        if self.returns is not None and on_gpu(slot.device):
            value = torch.empty(slot.size, dtype=torch.uint8, device=slot.device)
            with self.returns.copying(slot.device, after=slot.away):
                value.copy_(slot.region, non_blocking=True)
                slot.coming = value, Mark(slot.device, timed=False)
            # a slot may be forgotten before it is taken: its memory is then not for the computation's next tensor
            self.returns.uses(value)

    def add(self, home: Tensor, x: Tensor, first: bool) -> None:
        if self.copies is None or not on_gpu(x.device) or isinstance(x, FakeTensor):
            super().add(home, x, first)
            return
        x = x.clone()  # a view would keep the whole
        if self.adding is not None:
            self.adding[1].hold(x.device)  # one at a time: its memory is free for the next
        with self.copies.copying(x.device):
            if not first:  # the device adds: its host would have to wait for it
                x.add_(home.to(x.device, non_blocking=True))
            home.copy_(x, non_blocking=True)
            self.adding = x, Mark(x.device, timed=False)

    def arrive(self) -> None:
        if self.adding is not None:
            self.adding[1].wait()
            self.adding = None
        if self.received is not None:
            self.received.wait()
            self.received = None

    def receive(self, home: Tensor, x: Tensor) -> Tensor:
        if self.copies is None or not on_gpu(x.device) or isinstance(x, FakeTensor):
            return super().receive(home, x)
        landing = self._landing(home, x.dtype)
        with self.copies.copying(x.device):
            landing.copy_(x, non_blocking=True)
            self.received = Mark(x.device, timed=False)
        return landing

    def give(self, target: Tensor, home: Tensor) -> None:
        if self.copies is None or not on_gpu(target.device) or isinstance(target, FakeTensor):
            super().give(target, home)
            return
        # Rounded by the host, so that half as much travels. It next writes here when it has read the gradients of
        # another step, which this copy comes before.
        rounded = home if target.dtype == home.dtype else self._landing(home, target.dtype).copy_(home)
        target.copy_(rounded, non_blocking=True)

    def _landing(self, home: Tensor, dtype: torch.dtype) -> Tensor:
        key = home.data_ptr(), dtype
        if key not in self.landings:
            self.landings[key] = self.reserve(home.numel(), dtype)
        return self.landings[key]

    def hides(self, device: torch.device) -> bool:
        """A GPU has a stream for it."""
        return self.returns is not None and on_gpu(device)

    @contextmanager
    def beside(self, device: torch.device) -> Iterator[list[Mark]]:
        """See the base class."""
        arrived: list[Mark] = []
        if self.returns is None or not on_gpu(device):
            yield arrived
            return
        with self.returns.copying(device):
            yield arrived
            arrived.append(Mark(device, timed=False))

    def expect(self, home: Tensor) -> None:
        """It is there."""

    def leave(self, home: Tensor) -> None:
        """It stays."""

    def _read(self, slot: Slot) -> Tensor:
        if slot.coming is not None:
            value, mark = slot.coming
            slot.coming = None
            mark.hold(slot.device)
            return value
        return torch.empty(slot.size, dtype=torch.uint8, device=slot.device).copy_(slot.region)
