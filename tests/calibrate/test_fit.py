"""Calibration finds the constants that rows were made with, and refuses what rows cannot carry."""

from dataclasses import replace

import numpy as np
import pytest

from heddle.calibrate.fit import PRIORS, check_rows, fit, fit_collectives
from heddle.cost.network import all_reduce
from heddle.cost.work import Work, model_columns
from heddle.errors import HeddleError
from heddle.simulate.closed_form import closed_form
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


def test_leave_one_out_is_what_leaving_one_out_gives():
    work = runs(12)
    noise = np.exp(np.random.default_rng(2).normal(0, 0.03, 12))
    seconds = closed_form(work, A100).seconds * noise

    def without(index):
        rest = np.delete(np.arange(12), index)
        some = work.take(rest) if np.ndim(work.tensor) else work
        fitted = fit(A100, lambda cluster: closed_form(some, cluster).seconds, seconds[rest], ["matmul"])
        return abs(closed_form(work, fitted.cluster).seconds[index] / seconds[index] - 1)

    found = fit(A100, lambda cluster: closed_form(work, cluster).seconds, seconds, ["matmul"])
    assert found.leave_one_out == pytest.approx(100 * np.mean([without(index) for index in range(12)]), rel=0.1)


def test_a_wild_row_counts_little():
    work = runs()
    seconds = closed_form(work, A100).seconds.copy()
    seconds[0] *= 3
    found = fit(A100, lambda cluster: closed_form(work, cluster).seconds, seconds, ["matmul"])
    assert found.constants["matmul"] == pytest.approx(A100.efficiency.matmul, rel=0.02)


def test_no_share_is_fitted_above_1():
    work = runs()
    seconds = closed_form(work, A100).seconds / 3
    found = fit(A100, lambda cluster: closed_form(work, cluster).seconds, seconds, ["matmul", "memory"])
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
