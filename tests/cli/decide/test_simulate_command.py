"""`heddle simulate`, `validate` and `calibrate`: their output, their JSON, their errors."""

import csv
import json

import pytest

from heddle.spec.shorthand import cluster_from_table
from tests.helpers.commands import REPOSITORY, blocks, call, run_commands, write_named_blocks

PLAN = REPOSITORY / "examples" / "plans" / "gpt3-175b.toml"
HEADER = [
    *("id", "step_s", "layers", "hidden", "heads", "vocab", "seq", "gbs", "mbs", "tp", "pp", "dp", "gpu", "n_gpus"),
    *("precision", "attn", "recompute", "framework", "cp"),
]
RUN = ["1.0", "24", "2048", "16", "50304", "1024"]


def write_rows(path, count=8, factor=1.0, **columns):
    rows = []
    for number in range(count):
        batch, seconds = 8 * (number + 1), factor * 0.12 * (number + 1)
        row = dict(
            zip(
                HEADER,
                [f"r{number}", seconds, *RUN[1:], batch, 2, 1, 1, 4, "A100", 4, "bf16", "flash", "none", "x", 1],
                strict=True,
            )
        )
        rows.append(row | columns)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_simulate_prints_the_promised_json(capsys):
    assert call("simulate", PLAN, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {"step_seconds", "tokens_per_second", "mfu", "hfu", "bubble", "breakdown", "memory", "fits"} <= found.keys()
    assert found["breakdown"].keys() >= {"compute", "recompute", "tensor", "pipeline", "data", "optimizer", "bubble"}
    assert sum(found["breakdown"].values()) == pytest.approx(found["step_seconds"])
    assert [stage["stage"] for stage in found["memory"]] == list(range(8))
    first = found["memory"][0]
    parts = ("weights", "gradients", "optimizer", "activations", "buffers", "slack")
    assert sum(first[f"{part}_gib"] for part in parts) == pytest.approx(first["total_gib"])
    assert first["limit_gib"] == 80
    assert found["fits"] is True


def test_a_job_without_a_plan_is_planned_for_its_cluster(capsys, tmp_path):
    """As `heddle plan`, `train` and `report` do, and the output says so."""
    job = tmp_path / "job.toml"
    job.write_text(
        '[model]\npreset = "gpt2-xl"\n[data]\ntext = "x"\n[cluster]\npreset = "dgx-a100"\n'
        '[train]\nglobal_batch = 64\nprecision = "bf16"\n'
    )
    assert call("simulate", job) == 0
    shown = capsys.readouterr().out
    assert "has no [plan]. Planned for cluster" in shown
    assert "8 × A100" in shown
    assert call("simulate", job, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["planned"] is True
    assert call("plan", job, "--json") == 0
    best = json.loads(capsys.readouterr().out)["plans"][0]
    assert (best["plan"], best["step_seconds"]) == (found["plan"], found["step_seconds"])


def test_processes_that_share_cores_are_predicted_as_the_report_does(capsys, tmp_path):
    from heddle.reporting.subject import read_subject
    from heddle.spec.this_machine import this_machine

    here = this_machine()
    if not here.device.host:
        pytest.skip("this machine has GPUs")
    world = 2 * here.devices
    job = tmp_path / "job.toml"
    job.write_text(
        f'[model]\npreset = "tiny"\n[data]\ntext = "x"\n[train]\nglobal_batch = {world}\n[plan]\ndata = {world}\n'
    )
    assert call("simulate", job) == 0
    warning = f"{world} processes share {here.devices} cores"
    assert warning in capsys.readouterr().out
    subject = read_subject(job)
    assert subject.prediction is not None
    assert subject.prediction.cluster.cores == here.devices
    assert warning in subject.prediction.cluster.efficiency.source


def test_simulate_writes_a_trace_for_perfetto(capsys, tmp_path):
    assert call("simulate", PLAN, "--trace", tmp_path / "out.json", "--memory", "--tokens", "300e9") == 0
    said = capsys.readouterr().out
    assert "stage 7" in said
    assert " days for 300B tokens" in said
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"]


def test_what_does_not_fit_is_shown_and_then_refused(capsys):
    assert call("simulate", PLAN, "--json", "--set", "plan.recompute=none", "--set", "plan.microbatch=4") == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["fits"] is False
    assert "does not fit: stage 0 needs" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("cluster.nodes=8", "needs 512 devices"),
        ("plan.tensor=7", "cannot be split over tensor = 7"),
        ('cluster.links=[{name="x",gbs=0.0}]', "cluster.links[0].gbs must be in (0, 1e9], got 0.0"),
        ('cluster.links=[{name="x",gbs=-1.0}]', "cluster.links[0].gbs must be in (0, 1e9], got -1.0"),
        ("cluster.efficiency={matmul=1.2}", "cluster.efficiency.matmul must be in (0, 1], got 1.2"),
        ('cluster.device={name="X",memory_gib=80.0}', "has no device.tflops.bf16 for X"),
    ],
)
def test_bad_plans_and_clusters_are_told(capsys, change, word):
    assert call("simulate", PLAN, "--set", change) == 2
    assert word in capsys.readouterr().err


def test_validate_prints_the_promised_json(capsys, tmp_path):
    path = write_rows(tmp_path / "rows.csv")
    with path.open("a") as file:
        file.write(
            "odd,"
            + ",".join(["1.0", *RUN[1:], "8", "2", "1", "1", "4", "A100", "4", "bf16", "flash", "none", "x", "3"])
            + "\n"
        )
    assert call("validate", path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() >= {"rows", "mape", "median", "worst", "skipped"}
    assert found["rows"][0].keys() >= {"id", "measured_s", "predicted_s", "error_pct"}
    (skipped,) = found["skipped"]
    assert skipped["id"] == "odd"
    assert "cp = 3 does not divide" in skipped["why"]
    assert found["software"] == {"heddle": len(found["rows"])}
    assert call("validate", path) == 0
    printed = capsys.readouterr().out
    assert "skipped: cp = 3" in printed
    assert "software 'heddle'" in printed


def test_validate_refuses_rows_without_columns(capsys, tmp_path):
    (tmp_path / "rows.csv").write_text("id,layers\n1,2\n")
    assert call("validate", tmp_path / "rows.csv") == 2
    assert "lacks the columns step_s" in capsys.readouterr().err


def test_calibrate_writes_a_cluster_that_predicts_its_rows(capsys, tmp_path):
    path = write_rows(tmp_path / "rows.csv", factor=1.3)
    made = tmp_path / "mine.toml"
    assert call("calibrate", "--cluster", "dgx-a100", "--from", path, "-o", made, "--fit", "matmul", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == 8
    assert 0 < found["constants"]["matmul"] < 1
    assert found["leave_one_out"] >= 0
    cluster = cluster_from_table({"file": str(made)})
    assert cluster.efficiency.matmul == found["constants"]["matmul"]
    assert cluster.efficiency.source == "fitted to 8 rows of rows.csv"
    assert call("validate", path, "--cluster", made) == 0


def test_calibrate_refuses_what_rows_cannot_carry(capsys, tmp_path):
    path = write_rows(tmp_path / "rows.csv", count=3)
    assert call("calibrate", "--cluster", "dgx-a100-80gb", "--from", path, "-o", tmp_path / "mine.toml") == 2
    assert "3 rows cannot determine 7 constants" in capsys.readouterr().err
    assert call("calibrate", "--cluster", "dgx-a100-80gb", "--from", path, "-o", "mine.toml", "--fit", "speed") == 2
    assert "There is no constant 'speed'" in capsys.readouterr().err
    assert call("calibrate", "--cluster", "dgx-z9", "--from", path, "-o", "mine.toml") == 2
    assert "no cluster preset 'dgx-z9'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["decide/simulate.md", "decide/calibration.md"])
def test_the_commands_of_the_manual_work(tmp_path, name):
    page = REPOSITORY / "docs" / name
    write_named_blocks(page, tmp_path)
    for text in blocks(page, "csv"):
        (tmp_path / "rows.csv").write_text(text)
    assert run_commands(page, tmp_path)


def test_simulate_says_how_far_it_may_be_off_and_how_long_it_takes_with_failures(capsys):
    assert call("simulate", PLAN, "--tokens", "300e9", "--mtbf", "50000") == 0
    shown = capsys.readouterr().out
    step = next(line for line in shown.splitlines() if line.startswith("step "))
    assert " s ± " in step
    assert "similar runs lie within)" in step
    assert "expected " in shown
    options = ("--tokens", "300e9", "--mtbf", "50000", "--restart", "1200", "--json")
    assert call("simulate", PLAN, *options, "--checkpoint", "10") == 0
    found = json.loads(capsys.readouterr().out)
    bar, expected = found["error_bar"], found["expected"]
    assert 0 < bar["share"] < 1
    assert bar["covered"] == 0.8
    assert expected["days"] > found["days"]
    assert expected["failures"] == pytest.approx(expected["days"] * 24 / expected["hours_between_failures"])
    assert expected["checkpoint_interval_seconds"] == pytest.approx((2 * 10 * 50_000 * 3600 / 512) ** 0.5, rel=0.05)
    assert call("simulate", PLAN, "--mtbf", "0.001") != 0
    assert "never end" in capsys.readouterr().err
