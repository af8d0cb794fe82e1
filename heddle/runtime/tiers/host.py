"""Host memory beside a GPU: page-locked, copied on a stream of its own.

Where the device is the CPU itself this is memory of the same kind, counted apart. It saves nothing there, and lets a
plan for GPUs be proven on a laptop.
"""

from __future__ import annotations

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
        self.copies = CopyStream() if has_gpus() else None
        self.adding: tuple[Tensor, Mark] | None = None  # what is on its way here, and when it has arrived

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
            copied = Mark(x.device, timed=False)
        device, held = x.device, [x]  # its memory is not given to others before it is copied

        def wait() -> None:
            # the device waits and the host goes on: what gets the memory next is behind the copy in the device's order
            copied.hold(device)
            held.clear()

        slot.wait = wait

    def _begin(self, slot: Slot) -> None:
        if self.copies is not None:
            value = torch.empty(slot.size, dtype=torch.uint8, device=slot.device)
            with self.copies.copying(slot.device):
                value.copy_(slot.region, non_blocking=True)
                slot.coming = value, Mark(slot.device, timed=False)

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
