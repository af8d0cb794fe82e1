"""Host memory beside a GPU: page-locked, copied on a stream of its own.

Where the device is the CPU itself this is memory of the same kind, counted apart. It saves nothing there, and lets a
plan for GPUs be proven on a laptop.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heddle.runtime.device import CopyStream, Mark, has_gpus, on_gpu
from heddle.runtime.tiers.tier import Slot, Tier, tag


class Host(Tier):
    """Page-locked memory; copies in both directions run beside the computation."""

    name = "host"

    def __init__(self) -> None:
        super().__init__()
        self.copies = CopyStream() if has_gpus() else None

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

    def prefetch(self, slot: Slot) -> None:
        if slot.value is None and slot.coming is None and self.copies is not None and slot.region is not None:
            value = torch.empty(slot.size, dtype=torch.uint8, device=slot.device)
            with self.copies.copying(slot.device):
                value.copy_(slot.region, non_blocking=True)
                slot.coming = value, Mark(slot.device, timed=False)

    def expect(self, home: Tensor) -> None:
        """It is there."""

    def leave(self, home: Tensor) -> None:
        """It stays."""

    def _read(self, slot: Slot) -> Tensor:
        self.prefetch(slot)
        if slot.coming is not None:
            value, mark = slot.coming
            slot.coming = None
            mark.hold(slot.device)
            return value
        value = torch.empty(slot.size, dtype=torch.uint8, device=slot.device)
        return value if slot.region is None else value.copy_(slot.region)
