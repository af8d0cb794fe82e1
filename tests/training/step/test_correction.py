"""Corrections of late updates, on a quadratic: what each lets the rate be."""

import pytest
import torch

from heddle.spec.job import Train
from heddle.training.step.correction import Mending, corrected

EPSILON = 1e6  # so large that Adam's step is momentum's, rate / EPSILON · m


def distance(correction: str, delay: int, rate: float, beta1: float = 0.9, steps: int = 1000) -> float:
    """From the minimum of w² / 2 after so many steps from 1, each with the gradient of the weights `delay` before."""
    train = Train(delay_correction=correction, beta1=beta1)
    w = torch.ones(1)
    found = corrected(train, delay, step=steps)
    group = {"params": [w], "late": delay}
    options = {"lr": rate * EPSILON * found.rate, "betas": (found.beta1, 0.999), "eps": EPSILON, "weight_decay": 0.0}
    adam, mending = torch.optim.AdamW([group], **options), Mending(train)
    before = [w.clone() for _ in range(delay + 1)]
    for _ in range(steps):
        w.grad = before.pop(0)
        mending.step(adam)
        before.append(w.clone())
        if not w.abs() < 1e6:
            break
    return float(w.abs())


# the largest stable rate times curvature, from the roots of the recurrence's characteriztic polynomial
LIMITS = [
    ("none", 1, 1.0),
    ("none", 4, 0.263),
    ("beta1", 1, 1.0),
    ("beta1", 4, 0.347),
    ("feedback", 1, 2.70),
    ("feedback", 4, 0.35),
    ("nesterov", 1, 5.33),
    ("nesterov", 4, 1.40),
]


@pytest.mark.parametrize(("correction", "delay", "limit"), LIMITS)
def test_the_largest_stable_rate_is_that_of_theory(correction, delay, limit):
    assert distance(correction, delay, 0.8 * limit) < 0.1
    assert distance(correction, delay, 1.2 * limit) > 10


def test_the_rate_is_divided_by_the_delay():
    assert distance("rate", 4, 0.8 * 4 * 0.263) < 0.1
    assert distance("rate", 4, 1.2 * 4 * 0.263) > 10


def test_looking_ahead_stops_at_the_gradient():
    """With hardly any memory, the delay would take it further: then it is a step without momentum."""
    assert distance("nesterov", 4, 0.32, beta1=0.1) < 0.1  # without the limit, 0.30 is too much


def test_memory_is_never_longer_than_a_third_of_the_steps():
    train = Train(delay_correction="nesterov", beta1=0.9)
    found = [corrected(train, 4, step).beta1 for step in (0, 29, 59, 10**4)]
    assert found == pytest.approx([0.9, 0.9, 0.95, 0.9**0.2])
    assert corrected(train, 0, 10**4).beta1 == 0.9  # nothing is late
