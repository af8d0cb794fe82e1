"""Calibration finds the constants that rows were made with, and refuses what rows cannot carry."""

import re
from dataclasses import replace

import numpy as np
import pytest

from heddle.calibrate.fit import PRIORS, check_rows, fit, fit_collectives
from heddle.cost.model_columns import model_columns
from heddle.cost.network import all_reduce
from heddle.cost.work import Work
from heddle.errors import HeddleError
from heddle.simulating.closed_form import closed_form
from heddle.spec import ModelSpec
from heddle.spec.shorthand import cluster_from_table

A100 = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 16})


def runs(count=24):
    draw = np.random.default_rng(1)
    model = ModelSpec(layers=24, hidden=4096, heads=32, vocab=50_304, sequence=2048)
    tensor, microbatch = 2 ** draw.integers(0, 4, count), 2 ** draw.integers(0, 3, count)
    return Work(**model_columns(model), batch=256, precision="bf16", tensor=tensor, microbatch=microbatch, data=8)


def test_the_constants_that_made_the_rows_are_found():
    work = runs()
    truth = replace(A100, efficiency=replace(A100.efficiency, matmul=0.71, memory=0.9))
    seconds = closed_form(work, truth).seconds

    def predict(cluster):
        return closed_form(work, cluster).seconds

    found = fit(A100, predict, seconds, ["matmul", "memory"])
    assert found.constants["matmul"] == pytest.approx(0.71, rel=0.03)
    assert found.mape < 1
    assert found.mape <= found.leave_one_out < 2


def fitted_to_slow_rows(count, slower, loosen=1.0, names=("matmul",)):
    """A fit to rows that were all measured slower than predicted by one factor."""
    work = runs(count)
    seconds = slower * closed_form(work, A100).seconds
    return fit(A100, lambda cluster: closed_form(work, cluster).seconds, seconds, names, loosen=loosen)  # type: ignore[return-value]


@pytest.mark.parametrize(("count", "slower"), [(4, 1.25), (4, 1.4), (8, 1 / 0.6), (16, 2.0)])
def test_rows_that_are_all_far_off_are_a_message_not_outliers(count, slower):
    found = fitted_to_slow_rows(count, slower)
    assert found.unfitted == pytest.approx(100 * (1 - 1 / slower))
    assert found.mape < found.unfitted / 5  # what is left is time that is not spent in products
    assert not found.held


def test_a_prior_that_holds_the_fit_back_is_named_and_can_be_loosened():
    found = fitted_to_slow_rows(2, 1 / 0.6)
    assert found.mape > 20
    (words,) = found.held
    wanted = float(re.search(r"the rows alone ask for ([\d.]+)", words)[1])
    assert words.startswith("matmul = ")
    assert "prior" in words
    loose = fitted_to_slow_rows(2, 1 / 0.6, loosen=4)
    assert loose.constants["matmul"] == pytest.approx(wanted, rel=0.05)
    assert loose.mape < 5
    assert not loose.held


def test_rows_faster_than_any_hardware_are_said_to_be_at_a_limit():
    found = fitted_to_slow_rows(4, 0.5)
    assert found.constants["matmul"] <= 1
    assert any("cannot exceed 1" in words for words in found.held)


def test_one_outlier_among_many_rows_is_still_one():
    work = runs(12)
    seconds = closed_form(work, A100).seconds * np.where(np.arange(12) == 5, 3.0, 1.0)
    found = fit(A100, lambda cluster: closed_form(work, cluster).seconds, seconds, ["matmul"])  # type: ignore[return-value]
    assert found.constants["matmul"] == pytest.approx(A100.efficiency.matmul, rel=0.01)
    assert not found.held


def test_leave_one_out_is_what_leaving_one_out_gives():
    work = runs(12)
    noise = np.exp(np.random.default_rng(2).normal(0, 0.03, 12))
    seconds = closed_form(work, A100).seconds * noise

    def without(index):
        rest = np.delete(np.arange(12), index)
        some = work.take(rest) if np.ndim(work.tensor) else work
        fitted = fit(A100, lambda cluster: closed_form(some, cluster).seconds, seconds[rest], ["matmul"])  # type: ignore[return-value]
        return abs(closed_form(work, fitted.cluster).seconds[index] / seconds[index] - 1)

    found = fit(A100, lambda cluster: closed_form(work, cluster).seconds, seconds, ["matmul"])  # type: ignore[return-value]
    assert found.leave_one_out == pytest.approx(100 * np.mean([without(index) for index in range(12)]), rel=0.1)


def test_a_wild_row_counts_little():
    work = runs()
    seconds = closed_form(work, A100).seconds.copy()
    seconds[0] *= 3
    found = fit(A100, lambda cluster: closed_form(work, cluster).seconds, seconds, ["matmul"])  # type: ignore[return-value]
    assert found.constants["matmul"] == pytest.approx(A100.efficiency.matmul, rel=0.02)


def test_no_share_is_fitted_above_1():
    work = runs()
    seconds = closed_form(work, A100).seconds / 3
    found = fit(A100, lambda cluster: closed_form(work, cluster).seconds, seconds, ["matmul", "memory"])  # type: ignore[return-value]
    assert all(found.constants[name] <= PRIORS[name][1] for name in found.constants)


def test_fewer_rows_than_constants_carry_none():
    with pytest.raises(HeddleError, match="3 rows cannot determine 2 constants") as error:
        check_rows(3, ["matmul", "memory"])
    assert "--fit matmul" in error.value.hint
    check_rows(4, ["matmul", "memory"])


def test_collectives_give_back_what_made_them():
    count, ranks = (grid.ravel().astype(float) for grid in np.meshgrid([1e6, 1e7, 1e8, 1e9], [2, 3, 4, 8]))
    seconds = np.array([float(all_reduce(A100, size, n)) for size, n in zip(count, ranks, strict=True)])
    start, hop, speed = fit_collectives(count, ranks, seconds)
    nvlink = A100.links[0]
    assert start * 1e6 == pytest.approx(A100.efficiency.collective_us)
    assert hop * 1e6 == pytest.approx(nvlink.latency_us)
    assert speed == pytest.approx(nvlink.gbs * 1e9 * nvlink.efficiency)
