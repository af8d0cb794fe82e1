"""The learning rate of each step: warm-up, then cosine, linear, warm-up–stable–decay, or constant."""

from __future__ import annotations

import math

from heddle.spec.job import Train


def learning_rate(train: Train, step: int) -> float:
    """The rate for the step that is number `step`, counted from 0."""
    return train.learning_rate * _share(train, step)


def change_in_words(before: Train, now: Train, step: int) -> str | None:
    """What to say where a run that goes on with this step learns at another rate than it would have; None if not."""
    old, new = learning_rate(before, step), learning_rate(now, step)
    if step >= now.steps or math.isclose(old, new, rel_tol=0.01):
        return None
    times = f", {new / old:.3g} × as high" if old else ""
    steps = f" train.steps = {now.steps}, no longer {before.steps}, stretches the {now.schedule} schedule."
    return (
        f"The learning rate changes: from step {step + 1} on it is {new:.2e} instead of {old:.2e}{times}."
        f"{steps if before.steps != now.steps else ''} To go on at the old rate, add "
        f"--set train.schedule=constant --set train.learning_rate={old:.6g} --allow-changes."
    )


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
