"""Error bars: as wide as what was missed, and true of runs that they were not made from."""

import math

import numpy as np
import pytest

from heddle.calibrate.validate import residual_lines
from heddle.simulating.error_bar import FEWEST, Residual, RunKind, error_bar, generation_of, residuals
from heddle.simulating.simulation import simulate
from heddle.spec import Device
from heddle.spec.job import job_from_tables
from tests.helpers.published import DATA, needs_data
from tests.helpers.residuals import every_run

KIND = RunKind("Hopper", "megatron-core", False, False, False)
FOLDER = DATA / "measured" / "validation"


def job(preset="dgx-h100", **plan):
    return job_from_tables(
        {
            "model": {"preset": "llama-7b"},
            "train": {"global_batch": 64},
            "cluster": {"preset": preset, "nodes": 1},
            "plan": {"tensor": 1, "pipeline": 1, "data": 8, "microbatch": 1, "recompute": "full", "zero": 1} | plan,
        }
    )


def test_a_bar_is_the_quantile_that_holds_runs_yet_unseen():
    known = [Residual(KIND, (-1) ** place * place / 1000) for place in range(1, 25)]
    found = error_bar(KIND, known)
    assert found.runs == 24
    assert found.share == pytest.approx(math.expm1(0.020))  # ceil(25 · 0.8) = 20, of 24
    assert str(found) == "± 2 % (80 % of 24 similar runs lie within)"


def test_runs_that_share_less_are_asked_where_few_share_all():
    others = [Residual(KIND._replace(software="torch"), 0.3)] * FEWEST
    few = error_bar(KIND, [*[Residual(KIND, 0.01)] * (FEWEST - 1), *others])
    assert few.share > 0.3
    assert "software" not in few.shared
    enough = error_bar(KIND, [*[Residual(KIND, 0.01)] * FEWEST, *others])
    assert enough.share == pytest.approx(math.expm1(0.01))
    assert enough.shared == RunKind._fields


def test_nothing_is_claimed_of_devices_that_nobody_measured():
    assert error_bar(KIND._replace(generation="")) is None
    names = ("A100-SXM4-40GB", "H200", "GB200", "H100 80GB HBM3", "AMD EPYC", "MI300X")
    found = [generation_of(Device(name=name, memory_gib=80.0)) for name in names]
    assert found == ["Ampere", "Hopper", "Blackwell", "Hopper", "", ""]


def test_four_of_five_runs_lie_within_the_bar_that_others_give():
    known = residuals()
    inside = []
    for place, each in enumerate(known):
        bar = error_bar(each.kind, known[:place] + known[place + 1 :])
        inside.append(abs(each.log_ratio) <= math.log1p(bar.share))
    assert 0.75 <= np.mean(inside) <= 0.88


@needs_data
def test_four_of_five_runs_lie_within_the_bar_that_other_sources_give(tmp_path):
    runs = every_run(FOLDER, tmp_path)
    known = [(run.group.split()[0], Residual(run.kind, math.log(run.measured_s / run.predicted_s))) for run in runs]
    inside = []
    for source, each in known:
        bar = error_bar(each.kind, [other for name, other in known if name != source])
        inside.append(abs(each.log_ratio) <= math.log1p(bar.share))
    assert 0.75 <= np.mean(inside) <= 0.88


@needs_data
def test_the_residuals_are_those_of_the_cost_model_as_it_is(tmp_path):
    found = [line.split(",") for line in residual_lines(every_run(FOLDER, tmp_path))[3:]]
    assert len(found) == len(residuals()), "run benchmarks/accuracy/residuals.py"
    for line, shipped in zip(found, residuals(), strict=True):
        assert float(line[-1]) == pytest.approx(shipped.log_ratio, abs=2e-3), "run benchmarks/accuracy/residuals.py"


def test_a_simulation_has_the_bar_of_its_kind():
    found = simulate(job())
    bar = found.error_bar
    assert found.to_json()["error_bar"]["similar_runs"] == bar.runs >= FEWEST
    assert 0 < bar.share < 0.5
