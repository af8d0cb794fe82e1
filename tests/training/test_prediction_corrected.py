"""What a run tells of itself: a wrong prediction is corrected by the first steps."""

from __future__ import annotations

import io

import pytest

from heddle.console import plain_console
from heddle.errors import HeddleError
from heddle.runs.metrics import StepMetrics
from heddle.training.metrics import FIRST, Metrics


def told(folder, predicted, seconds):
    console = plain_console(file=io.StringIO(), width=200)
    with Metrics(folder, 100, 100, console, predicted=predicted) as metrics:
        for step, taken in enumerate(seconds, 1):
            metrics.step(StepMetrics(step, 1.0, 1e-3, 1.0, taken, 1.0, 0.1, 1.0))
        remaining = metrics.smoothed_seconds
    return console.file.getvalue(), remaining  # type: ignore[attr-defined]


def test_the_first_steps_correct_a_wrong_prediction(tmp_path):
    words, remaining = told(tmp_path, 46.7, [5.0, 0.34, 0.35, 0.33])
    assert "predicted to take 46.7 s. The first 4 take 340 ms, 137 times as fast:" in words
    assert remaining == pytest.approx(0.34)  # and the slow first step no longer rules the estimate


@pytest.mark.parametrize("predicted", [None, 0.3])
def test_a_good_prediction_is_not_talked_about(tmp_path, predicted):
    assert "predicted" not in told(tmp_path, predicted, [5.0, 0.34, 0.35, 0.33, 9.0])[0]


def test_an_mfu_above_the_peak_is_explained_once(tmp_path):
    console = plain_console(file=io.StringIO(), width=200)
    explained = HeddleError("MFU is 412%.", "The machine was busy.", "Measure again.")
    with Metrics(tmp_path, 9, 100, console, above_peak=lambda _: explained) as metrics:
        for step, mfu in enumerate((0.9, 4.12, 4.0), 1):
            metrics.step(StepMetrics(step, 1.0, 1e-3, 1.0, 1.0, 1.0, mfu, 1.0))
    assert console.file.getvalue().count("MFU is 412%. The machine was busy. Measure again.") == 1  # type: ignore[attr-defined]


def test_nothing_is_corrected_before_there_are_steps_enough(tmp_path):
    assert "predicted" not in told(tmp_path, 46.7, [0.3] * (FIRST - 1))[0]
