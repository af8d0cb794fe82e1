"""Loss against tokens and against time: the curve of one run, and what the seeds of one setting have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import HeddleError
from heddle.runs.folder import open_run
from heddle.runs.metrics import read_metrics
from heddle.spec.job import load_job

Numbers = NDArray[np.float64]
SMOOTHED = 0.05  # share of a run that the running mean looks back over: one batch's loss says little
POINTS = 200  # of a mean over seeds


@dataclass(frozen=True)
class Curve:
    """One run. Seconds are those of its steps: evaluating and saving are not what is compared."""

    run: Path
    seed: int
    tokens: Numbers
    seconds: Numbers
    loss: Numbers  # a running mean
    validation: float | None  # of the last evaluation

    @property
    def final(self) -> float:
        """The loss at the end."""
        return float(self.loss[-1])

    def reach(self, loss: float) -> tuple[float, float] | None:
        """Tokens and seconds after which the loss is first as low as that; None where it never is."""
        found = np.flatnonzero(self.loss <= loss)
        return (float(self.tokens[found[0]]), float(self.seconds[found[0]])) if len(found) else None


@dataclass(frozen=True)
class Setting:
    """What is compared: one job, trained with one seed or several."""

    name: str
    curves: tuple[Curve, ...]

    @property
    def final(self) -> float:
        """The mean over seeds of the loss at the end."""
        return float(np.mean([curve.final for curve in self.curves]))

    def reach(self, loss: float) -> tuple[float, float] | None:
        """Mean tokens and seconds to a loss; None unless every seed gets there."""
        found = [curve.reach(loss) for curve in self.curves]
        reached = [each for each in found if each is not None]
        return None if len(reached) < len(found) else tuple(np.mean(reached, axis=0))

    def band(self, along: str) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Tokens or seconds, and there the mean, the lowest and the highest loss over the seeds."""
        axes = [getattr(curve, along) for curve in self.curves]
        common = np.linspace(max(axis[0] for axis in axes), min(axis[-1] for axis in axes), POINTS)
        losses = np.array([np.interp(common, axis, curve.loss) for axis, curve in zip(axes, self.curves, strict=True)])
        return common, losses.mean(axis=0), losses.min(axis=0), losses.max(axis=0)


def read_curve(folder: Path, skipped: Callable[[int], None] = lambda _: None) -> Curve:
    """The curve of a run's folder."""
    run = open_run(folder)
    job = load_job(run.job_file)
    rows = read_metrics(folder / "metrics.jsonl", skipped)
    steps = [row for row in rows if _finite(row, "loss") and _finite(row, "seconds")]
    if not steps:
        raise HeddleError(
            f"{folder} has no steps yet.", "A comparison needs the losses of both runs.", "Let it take a few steps."
        )
    validation = [row["validation_loss"] for row in rows if _finite(row, "validation_loss")]
    return Curve(
        run=folder,
        seed=job.train.seed,
        tokens=np.array([row["step"] for row in steps], dtype=float) * job.train.global_batch * job.sequence,
        seconds=np.cumsum([row["seconds"] for row in steps], dtype=float),
        loss=running_mean([row["loss"] for row in steps], max(1, round(SMOOTHED * len(steps)))),
        validation=validation[-1] if validation else None,
    )


def running_mean(values: Sequence[float], window: int) -> Numbers:
    """The mean of the last `window` values, of fewer at the start. It looks back only: no point knows its future."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=float)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    return (sums[ends] - sums[starts]) / (ends - starts)  # type: ignore[no-any-return]


def common_loss(settings: Sequence[Setting]) -> float:
    """The lowest loss that every run gets to, rounded up to a thousandth."""
    worst = max(float(curve.loss.min()) for setting in settings for curve in setting.curves)
    return math.ceil(worst * 1000) / 1000


def _finite(row: dict[str, Any], name: str) -> bool:
    value = row.get(name)
    return isinstance(value, int | float) and math.isfinite(value)
