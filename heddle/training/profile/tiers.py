"""Copies to the tiers that a plan may offload to, through the very code that training uses."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from heddle.cost.measured.from_timings import TierTime
from heddle.errors import HeddleError
from heddle.runtime.device import on_gpu
from heddle.runtime.tiers import Disk, Host, Tier
from heddle.training.profile.clock import SharedClock, some

MIB = 8  # of one copy: about what a layer leaves


def tiers(clock: SharedClock, device: torch.device, folder: Path | None = None) -> Iterator[TierTime]:
    """Seconds to put something away and to take it back; a disk that cannot be written to is left out.

    Beside a CPU host memory is the device's own, which is measured as such.
    """
    found: list[Tier] = [Disk(folder or tempfile.gettempdir())]
    if on_gpu(device):
        found.append(Host())
    for tier in found:
        x = some(device, MIB << 18).view(torch.uint8)

        def there_and_back(tier: Tier = tier, x: torch.Tensor = x) -> None:
            slot = tier.put(x)
            slot.wait()
            tier.take(slot)

        try:
            yield TierTime(tier.name, 2 * x.numel(), clock(there_and_back))
        except HeddleError:
            continue
