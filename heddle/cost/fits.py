"""Whether a plan fits into its devices: decided here alone, and said in the same words wherever it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heddle.cost.memory import MemoryBreakdown
from heddle.format import GIB
from heddle.schedule.rule import Column, Mask
from heddle.spec.cluster import Device


def fits(needs: Column, device: Device) -> Mask:
    """Whether so many bytes, slack included, fit into a device."""
    return needs <= device.memory_gib * GIB


@dataclass(frozen=True)
class MemoryVerdict:
    """Whether a plan fits, in the same words wherever it is asked."""

    stage: int  # the fullest
    needs: float  # bytes, slack included
    device: Device
    slack: float = 0.0  # of these, what the allocator cannot use

    @property
    def fits(self) -> bool:
        """Whether the fullest stage fits into its device."""
        return bool(fits(self.needs, self.device))

    def __str__(self) -> str:
        has = f"the {self.device.memory_gib:.4g} GiB of {self.device.name}"
        needs = f"stage {self.stage} needs {self.needs / GIB:.2f} GiB"
        if self.fits:
            return f"{needs}, which fits into {has}"
        over = f"{needs}, {self.needs / GIB - self.device.memory_gib:.2f} GiB more than {has}"
        live = self.needs - self.slack
        if self.slack and fits(live, self.device):
            # PyTorch's allocator gives unused memory back before it fails, so such a plan may run, if slowly
            over += f"; {live / GIB:.2f} GiB of it is in use, the rest is slack (efficiency.slack)"
        return over


def verdict(breakdowns: Sequence[MemoryBreakdown], device: Device) -> MemoryVerdict:
    """Of the breakdowns of all stages."""
    totals = [float(breakdown.total) for breakdown in breakdowns]
    stage = totals.index(max(totals))
    return MemoryVerdict(stage, totals[stage], device, float(breakdowns[stage].slack))
