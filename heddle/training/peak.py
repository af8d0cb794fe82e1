"""The peak that a run's MFU is relative to: the same one as in its prediction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from heddle.cost.measured.local_machine import to_be_measured
from heddle.errors import HeddleError
from heddle.runs.machine import above_peak
from heddle.runtime.device import DTYPES, measured_flops
from heddle.simulating.network.devices import peak_of
from heddle.simulating.network.over_network import OverNetwork
from heddle.spec.cluster import Cluster
from heddle.spec.job import PlannedJob


@dataclass(frozen=True)
class PeakFlops:
    """FLOP/s of all devices together and of one of them, where that comes from, and what to say if it is exceeded."""

    flops: float
    each: float
    origin: str
    exceeded: Callable[[float], HeddleError]


def peak_of_run(job: PlannedJob, machine: Cluster | None, device: torch.device) -> PeakFlops:
    """As the machine's file or a look at it says; only devices that nobody knows are measured by a matrix product.

    Ranks other than the first, which write no metrics, have no machine and no peak.
    """
    if machine is None:
        return PeakFlops(math.nan, math.nan, "known to the first rank", _unknown)
    world = job.plan.world
    here = replace(job, cluster=machine)
    origin = "measured here" if to_be_measured(job.cluster) else f"stated for {machine.device.name}"
    try:
        over = OverNetwork(here, job.network) if job.network is not None and world > 1 else None
        flops = peak_of(job.plan, machine, over, job.precision)
    except HeddleError:  # it states none for this precision
        flops, origin = world * measured_flops(DTYPES[job.storage], device), "measured here"
    return PeakFlops(flops, flops / world, origin, lambda mfu: above_peak(mfu, flops / world, job, machine))


def _unknown(mfu: float) -> HeddleError:
    return HeddleError(
        f"MFU is {mfu:.0%}.", "Only the first rank knows the peak.", "Read the metrics of the first rank."
    )
