"""Who holds which stage of which pipeline, over links that differ: the problem as DT-FM states it.

Yuan et al., "Decentralized Training of Foundation Models in Heterogeneous Environments" (arXiv 2206.01288), eq. 1-4:

    message(d, e, x) = delay(d, e) + x / bandwidth(d, e)
    data     = max over stages j, devices d of j: sum over the other devices e of j of 2 · message(d, e, gradients / D)
    hop(j,k) = min over perfect matchings of j's devices with k's: the largest message(d, e, activations)
    pipeline = 2 · the cheapest path through all stages over hop
    cost     = data + pipeline

Devices are equal and all links are used at once. The path is open, and delay and bandwidth are the means of the two
directions of a pair: a layout is a set of stages, and the order is found for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Problem:
    """Devices, what their messages take, and how many stages and replicas they make."""

    groups: tuple[str, ...]  # the group of each device: the file's regions, nodes or sites
    exchange: Floats  # (devices, devices): seconds of one replica's gradients to another and back, 0 on the diagonal
    hop: Floats  # (devices, devices): seconds of a batch's activations, infinite on the diagonal
    stages: int
    replicas: int

    @property
    def devices(self) -> int:
        return self.stages * self.replicas

    @cached_property
    def twins(self) -> Ints:
        """(devices,): a number for each device; those with the same number can be exchanged and nothing changes.

        Two devices are twins if each third one sees no difference between them. That is an equivalence: of twins d, e
        and e, f, the pairs d-f, e-f and d-e all cost the same.
        """
        number = np.arange(self.devices)
        # Twins have equal sums. Rounding may part some, which costs time and nothing else.
        sums = [f"{a:.9e} {b:.9e}" for a, b in zip(self.exchange.sum(1), _finite(self.hop).sum(1), strict=True)]
        first: dict[str, list[int]] = {}
        for device, key in enumerate(sums):
            for other in first.setdefault(key, []):
                third = np.ones(self.devices, dtype=bool)
                third[[device, other]] = False
                if all((m[device, third] == m[other, third]).all() for m in (self.exchange, self.hop)):
                    number[device] = other
                    break
            else:
                first[key].append(device)
        return number


def _finite(matrix: Floats) -> Floats:
    return np.where(np.isfinite(matrix), matrix, 0.0)


def problem_from(
    groups: Sequence[str],
    delay: Floats,
    bandwidth: Floats,
    *,
    stages: int,
    replicas: int,
    gradients: float,
    activations: float,
) -> Problem:
    """The problem of a network: delay in seconds, bandwidth in bytes per second, both (devices, devices) by sender.

    `gradients` are the bytes of a stage, `activations` those of a batch across one boundary.
    """
    delay, bandwidth = (delay + delay.T) / 2, (bandwidth + bandwidth.T) / 2
    inside = np.eye(len(groups), dtype=bool)
    with np.errstate(divide="ignore"):
        exchange = np.where(inside, 0.0, 2 * (delay + gradients / replicas / bandwidth))
        hop = np.where(inside, np.inf, delay + activations / bandwidth)
    return Problem(tuple(groups), exchange, hop, stages, replicas)
