"""The learning rate of each step: warm-up, then cosine, linear, warm-up–stable–decay, or constant."""

from __future__ import annotations

import math

from heddle.spec.job import Train


def learning_rate(train: Train, step: int) -> float:
    """The rate for the step that is number `step`, counted from 0."""
    return train.learning_rate * _share(train, step)


def _share(train: Train, step: int) -> float:
    if step < train.warmup:
        return (step + 1) / train.warmup  # the first step already learns
    if train.schedule == "constant":
        return 1.0
    last = train.steps - 1  # the last step has exactly the final rate
    start = train.warmup  # and this one, the first after the warm-up, still the full one
    if train.schedule == "wsd":
        start = max(start, last - max(1, round(train.decay * train.steps)))
    progress = min(1.0, max(0.0, (step - start) / (last - start))) if last > start else 0.0
    falling = (1 + math.cos(math.pi * progress)) / 2 if train.schedule == "cosine" else 1 - progress
    return train.final_learning_rate + (1 - train.final_learning_rate) * falling
