"""How long a run takes with failures: checkpoints, restarts, and work that is done again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from heddle.errors import HeddleError
from heddle.format import duration

LONGEST = 200.0  # times the mean time between failures: e to that power is a number still


@dataclass(frozen=True)
class Reliability:
    """What stops a run, and what that costs."""

    device_hours: float  # mean time between failures that stop a run, of one device
    restart_seconds: float  # from a failure to the first step after it, work done again aside
    checkpoint_seconds: float  # that training stands still for each checkpoint


@dataclass(frozen=True)
class ExpectedRun:
    """What a run takes on average, with checkpoints at the best interval."""

    seconds: float
    interval: float  # seconds of training between two checkpoints
    failures: float
    between: float  # seconds between two failures, of all devices together
    effective: float  # share of the time that goes into steps which count

    def __str__(self) -> str:
        failures = f"{self.failures:,.0f}" if self.failures >= 10 else f"{self.failures:.2g}"
        return (
            f"{duration(self.seconds)} with {failures} failures, one in {duration(self.between)}: "
            f"{self.effective:.1%} of it is training, with a checkpoint every {duration(self.interval)}"
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "days": self.seconds / 86_400,
            "failures": self.failures,
            "hours_between_failures": self.between / 3600,
            "checkpoint_interval_seconds": self.interval,
            "effective": self.effective,
        }


def best_interval(checkpoint: float, between: float) -> float:
    """Seconds of training between two checkpoints that waste least.

    √(2 δ M) to first order (Young 1974, CACM 17 (9)); here to third (Daly 2006, Future Generation Computer Systems 22
    (3), Eq. 37). Where a checkpoint takes longer than twice the time between failures, that time.
    """
    if checkpoint >= 2 * between:
        return between
    ratio = math.sqrt(checkpoint / (2 * between))
    return math.sqrt(2 * checkpoint * between) * (1 + ratio / 3 + ratio**2 / 9) - checkpoint


def expected_run(seconds: float, devices: int, reliability: Reliability, interval: float | None = None) -> ExpectedRun:
    """A run of so many seconds of training, with failures that come independently of each other.

    M e^(R/M) (e^((τ + δ)/M) - 1) T/τ for checkpoints of δ seconds after every τ of T, restarts of R, and M between
    failures, which may also come during a restart (Daly 2006, Eq. 20).
    """
    between = reliability.device_hours * 3600 / devices
    saving, restart = reliability.checkpoint_seconds, reliability.restart_seconds
    each = min(seconds, max(best_interval(saving, between), 1.0) if interval is None else interval)
    if max(each + saving, restart) > LONGEST * between:
        raise HeddleError(
            f"A run on {devices:,} devices would never end: one fails every {duration(between)}.",
            f"A checkpoint takes {duration(saving)} and a restart {duration(restart)}.",
            "State the mean time between failures of one device, in hours: 50,000 for the H100s that trained Llama 3.",
        )
    growth = math.exp(restart / between) * math.expm1((each + saving) / between)
    taken = between * growth * seconds / each
    return ExpectedRun(taken, each, taken / between, between, seconds / taken)
