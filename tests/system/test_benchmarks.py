"""Every benchmark runs, in a setting too small to tell anything, and prints one line of valid JSON."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.all import FOLDERS, modules, rows
from tests.helpers.commands import ENVIRONMENT, REPOSITORY
from tests.helpers.published import needs_data

MODULES = modules(list(FOLDERS))
TINY = ["--layers", "4", "--sequence", "16", "--microbatch", "1", "--rounds", "1"]


def run(name: str, *arguments: str) -> dict[str, Any]:
    (module,) = [module for module in MODULES if module.endswith(f".{name}")]
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, done.stdout
    result = json.loads(done.stdout, parse_constant=lambda word: 1 / 0)
    assert result["benchmark"] == name
    assert result["peer"]
    return result


def positive(case: dict[str, Any], *names: str) -> bool:
    return all(math.isfinite(case[name]) and case[name] > 0 for name in names)


@pytest.mark.slow
def test_single_device():
    result = run("single_device", "--hidden", "64", "--sequence", "16", "--rounds", "1", "--layers", "1")
    assert positive(result, "ratio", "a_a")


def test_simulate():
    result = run("simulate", "--plans", "5000", "--rounds", "1", "--pipeline", "4", "--microbatches", "8")
    assert positive(result, "ratio", "a_a", "plans_per_second")


@pytest.mark.slow
@pytest.mark.dist
def test_context():
    result = run("context", "--sequence", "64", "--rounds", "1")
    (case,) = result["cases"]
    assert positive(case, "ring_speedup", "gather_ratio", "all-to-all_speedup", "a_a")
    assert case["loss_difference"] < 1e-5
    assert all(0.475 <= share <= 0.525 for share in case["saved"].values())  # half of the activations, within 5 %


@pytest.mark.slow
@pytest.mark.dist
def test_tensor_parallel():
    result = run("tensor_parallel", *TINY, "--hidden", "128", "--vocab", "64")
    assert [case["sequence_parallel"] for case in result["cases"]] == [False, True]
    assert all(positive(case, "ratio", "a_a") and positive(case["cpu"], "ratio", "a_a") for case in result["cases"])
    assert all(case["loss_difference"] < 1e-5 for case in result["cases"])


@pytest.mark.slow
@pytest.mark.dist
def test_pipeline_parallel():
    result = run("pipeline_parallel", *TINY, "--hidden", "64", "--vocab", "64", "--microbatches", "2", "4")
    cases = [(case["schedule"], case["microbatches"]) for case in result["cases"]]
    assert cases == [("1f1b", 2), ("1f1b", 4), ("interleaved", 2), ("interleaved", 4)]
    assert all(positive(case, "ratio", "a_a") for case in result["cases"])
    assert result["deepspeed"]  # measured, or a word on why not


@pytest.mark.slow
@pytest.mark.dist
def test_data_parallel():
    result = run("data_parallel", *TINY, "--hidden", "64", "--vocab", "64", "--steps", "1")
    assert [case["zero"] for case in result["cases"]] == [0, 1, 3]
    assert all(positive(case, "ratio", "a_a") for case in result["cases"])
    assert result["deepspeed"]


@pytest.mark.slow
@pytest.mark.dist
def test_own_modules():
    result = run("own_modules", *TINY, "--hidden", "64", "--vocab", "64")
    assert [case["zero"] for case in result["cases"]] == [0, 3]
    assert all(positive(case, "ratio", "a_a") and case["loss_difference"] < 1e-5 for case in result["cases"])


@pytest.mark.slow
@pytest.mark.dist
def test_memory():
    sizes = ["--hidden", "64", "--layers", "4", "--vocab", "256", "--microbatches", "4", "--rounds", "1"]
    result = run("memory", *sizes, "--budgets", "2", "--quick")
    assert [case["layout"] for case in result["cases"]] == ["one", "one", "pipeline2", "pipeline2"]
    assert all(positive(case, "ratio", "a_a", "predicted_ratio") for case in result["cases"])
    assert result["kept"]


@pytest.mark.slow
def test_largest_model():
    sizes = ["--limit-mib", "450", "--hidden", "128", "--start", "128", "--arms", "fixed"]
    result = run("largest_model", *sizes)
    assert result["cases"][0]["layers"] > 0


@pytest.mark.slow
@pytest.mark.dist
def test_checkpoint():
    result = run("checkpoint", "--hidden", "64", "--layers", "1", "--vocab", "256", "--rounds", "1")
    assert [case["plan"] for case in result["cases"]] == ["one process", "data 2, zero 1", "tensor 2"]
    assert all(positive(case, "megabytes", "stall", "throughput", "a_a") for case in result["cases"])


@pytest.mark.slow
@pytest.mark.dist
def test_faults():
    result = run("faults", "--kills", "2", "--layouts", "data 2", "serial")
    assert result["kills"] == result["in_training"] + result["in_saving"] == 2
    assert result["finished"] == result["equal"] == result["runs"]
    assert result["lost_checkpoints"] == 0
    assert positive(result["seconds_lost"], "median", "worst")


@pytest.mark.slow
@pytest.mark.dist
def test_bubble():
    result = run("bubble", *TINY[2:], "--layers", "8", "--hidden", "64", "--microbatches", "4")
    cases = [(case["pipeline"], case["schedule"], case["formula"]) for case in result["cases"]]
    assert cases == [(2, "1f1b", 0.25), (2, "interleaved", 0.125), (4, "1f1b", 0.75), (4, "interleaved", 0.375)]
    assert all(positive(case, "measured", "replayed", "stretch") for case in result["cases"])


@needs_data
def test_piper():
    result = run("piper", "--rounds", "1", "--rows", "bert32_a100:16:8")
    assert positive(result["cases"][0], "ratio", "cpu_seconds", "cold_cpu_seconds")


@needs_data
def test_placement():
    result = run("placement", "--rounds", "1", "--graphs", "layer/bert24_training")
    assert [case["method"] for case in result["cases"]] == ["dpl", "dp"]
    assert all(positive(case, "ratio", "value", "peer_value") for case in result["cases"])


def test_regions():
    result = run("regions", "--candidates", "120", "--cases", "drawn-4")
    assert positive(result["cases"][0], "ratio", "a_a", "cost", "bound", "cpu_seconds")
    assert result["cases"][0]["ratio"] >= 1


@pytest.mark.slow
@pytest.mark.dist
def test_prediction():
    sizes = ["--hidden", "64", "--layers", "4", "--sequence", "16", "--vocab", "64", "--rounds", "1"]
    result = run("prediction", *sizes, "--processes", "1", "--quick")
    assert len(result["cases"]) == 4
    assert all(positive(case, "predicted_s", "measured_s", "predicted_mib") for case in result["cases"])
    assert positive(result, "error", "worst")


@pytest.mark.slow
@pytest.mark.dist
def test_planner():
    result = run("planner", "--rounds", "1", "--jobs", "deep", "--quick")
    assert positive(result, "worst")
    assert positive(result["cases"][0], "ratio", "a_a", "choice_s", "best_s")


@pytest.mark.slow
@pytest.mark.dist
def test_capture():
    sizes = {"rounds": 1, "microbatches": 3, "width": 8, "image": 64, "hidden": 64, "length": 32}
    result = run("capture", *(word for name, value in sizes.items() for word in (f"--{name}", str(value))))
    assert [case["training"] for case in result["cases"]] == [False, True]
    assert all(positive(case, "ratio", "a_a", "predicted", "measured", "accuracy") for case in result["cases"])
    assert all(case["loss_difference"] < 1e-5 for case in result["cases"])


@pytest.mark.slow
def test_tiles():
    pytest.importorskip("llvmlite")
    pytest.importorskip("transformers")
    result = run("tiles", "--networks", "small", "--threads", "1", "--peers", "eager", "--rounds", "1")
    (case,) = result["cases"]
    assert positive(case, "ratio", "ratio_minimum", "over_eager", "a_a", "tiles")
    assert case["max_error"] < 1e-5


def test_the_table_has_a_row_for_every_case_and_says_what_failed():
    found = {"benchmark": "b", "peer": "p", "cases": [{"zero": 1, "ratio": 1.25, "a_a": 1.0}, {"zero": 3}]}
    assert rows(found) == [("b", "zero 1", "1.250", "1.000"), ("b", "zero 3", "–", "–")]
    assert rows({"benchmark": "b", "failed": "exit code 1"}) == [("b", "exit code 1", "–", "–")]


def test_the_manual_names_every_benchmark():
    page = (REPOSITORY / "docs" / "background" / "benchmarks.md").read_text(encoding="utf-8")
    assert {module for module in MODULES if f"`{module.removeprefix('benchmarks.')}`" not in page} == set()
