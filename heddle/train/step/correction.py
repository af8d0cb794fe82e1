"""What is done about gradients that come late: a delayed update is larger than the weights it meets can bear."""

from __future__ import annotations

from typing import NamedTuple

from heddle.spec.job import Train


class Correction(NamedTuple):
    """Of one chunk."""

    rate: float  # that its learning rate is multiplied by
    beta1: float


def corrected(train: Train, delay: int) -> Correction:
    """How a chunk with so late gradients is updated.

    On a quadratic, the largest stable rate falls with one step of delay from 38 over the curvature to 1 at beta1 = 0.9,
    and from 2 to 1 without momentum: so either the rate is divided by the delay (PipeMare, arXiv 1910.05124), or there
    is no momentum.
    """
    match train.delay_correction:
        case "rate":
            return Correction(1 / max(1, delay), train.beta1)
        case "beta1":
            return Correction(1.0, 0.0 if delay else train.beta1)
    return Correction(1.0, train.beta1)
