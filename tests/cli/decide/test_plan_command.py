"""`heddle plan` as a user runs it, and `heddle train` of a job that has no plan."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from heddle.spec import load_job
from tests.helpers.commands import (
    JOB,
    PLAN,
    REPOSITORY,
    blocks,
    call,
    heddle,
    run_commands,
    steps_of,
    write_job,
    write_named_blocks,
)

GPT3 = ["plan", "--model", "gpt3-175b", "--cluster", "dgx-a100", "--nodes", "64", "--global-batch", "1536"]
LESS = [*GPT3, "--set", "model.layers=24", "--nodes", "8", "--global-batch", "96"]  # planned in a fraction of the time


@pytest.fixture
def job(tmp_path):
    """A job that leaves its plan to us."""
    path = write_job(tmp_path / "here")
    path.write_text(JOB.replace(PLAN, ""))
    return path


def said(capsys, *arguments, code=0):
    assert call(*arguments) == code
    out, err = capsys.readouterr()
    return out + err


def test_json_has_the_promised_keys(capsys):
    found = json.loads(said(capsys, *LESS, "--json", "--top", "3"))
    assert found.keys() >= {"plans", "considered", "feasible", "seconds"}
    assert len(found["plans"]) == 3
    keys = {"plan", "step_seconds", "mfu", "worst_stage_gib", "bubble", "headroom_gib", "tokens_per_second", "devices"}
    assert all(each.keys() >= keys for each in found["plans"])
    assert found["considered"] > found["feasible"] > 1000


def test_the_table_says_how_many_replicas_share(capsys):
    model = ["plan", "--model", "llama-3-8b", "--cluster", "dgx-h100", "--nodes", "2", "--global-batch", "64"]
    shown = said(capsys, *model, "--zero", "3", "--tensor", "1", "--pipeline", "1", "--top", "1")
    assert re.search(r"^1 +1 +1 +16 +3/8 ", shown, re.MULTILINE)
    assert "zero 3/8: shared within groups of 8 replicas" in shown


def test_counts_and_ranks_do_not_depend_on_what_is_shown(capsys, tmp_path):
    """What is looked at for a longer table or an explanation changes neither how many plans fit nor a plan's place."""
    job = tmp_path / "job.toml"
    model = '[model]\npreset = "gpt3-175b"\nlayers = 24\n'
    cluster = '[cluster]\npreset = "dgx-a100-80gb"\nnodes = 8\n[train]\nglobal_batch = 96\nprecision = "bf16"\n'
    data, plan = '[data]\ntext = "x"\ntokenizer = "bpe:50257"\n', "[plan]\ntensor = 8\npipeline = 4\ndata = 2\n"
    job.write_text(model + data + cluster + plan)
    counts = set()
    for more in (["--top", "1"], ["--top", "12"], ["--explain"]):
        shown = said(capsys, "plan", str(job), "--free", *more)
        rank, feasible = re.search(r"about number ([\d,]+) of ([\d,]+)", shown).groups()
        counts.add((rank, feasible, re.search(r"([\d,]+) legal plans, ([\d,]+) feasible", shown)[0]))
        assert f"legal plans, {feasible} feasible" in shown
    assert len(counts) == 1


def test_the_manual_shows_what_is_printed(tmp_path, capsys, monkeypatch):
    """The table of alternatives on the page about planning."""
    write_named_blocks(REPOSITORY / "docs/decide/plan.md", tmp_path)
    page = (REPOSITORY / "docs/decide/plan.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    shown = [" ".join(line.split()) for line in said(capsys, "plan", "gpt3.toml", "--explain").splitlines()]
    table = page.split("```text\n  change ", 1)[1].split("```", 1)[0].splitlines()[1:]
    assert len(table) == 4
    for line in table:
        assert " ".join(line.split()) in shown
    legal, feasible = re.search(r"([\d,]+) legal plans, ([\d,]+) feasible", "\n".join(shown)).groups()
    thinking = (REPOSITORY / "docs/decide/how-the-planner-thinks.md").read_text(encoding="utf-8")
    assert f"({legal.replace(',', '')}, {feasible.replace(',', '')})" in thinking


def test_the_table_explains_itself(capsys):
    shown = said(capsys, *LESS, "--top", "4", "--explain")
    for word in ("tokens/s", "MFU", "GiB", "free", "bubble", "Why not", "What would help", "takeaway 1"):
        assert word in shown
    lines = [line.split() for line in shown.splitlines() if line.strip()]
    rows = [line for line in lines if line[0] in "1234" and line[-1].startswith("+")]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert all("…" not in line for line in shown.splitlines())


def test_the_written_plan_is_taken_as_it_is(job, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    shown = said(capsys, "plan", job, "--cluster", "this", "--pipeline", "1", "-o", "there/plan.toml")
    assert "Written to there/plan.toml" in shown
    written = load_job("there/plan.toml")
    assert [os.path.normpath(text) for text in written.data.text] == list(load_job(job).data.text)
    assert written.plan.pipeline == 1
    assert written.predicted.step_seconds > 0
    table = tomllib.loads(Path("there/plan.toml").read_text())
    assert table["data"]["text"] == "../here/corpus/*.txt"
    assert said(capsys, "simulate", "there/plan.toml")
    # everything is fixed now: planning the plan gives the plan
    again = json.loads(said(capsys, "plan", "there/plan.toml", "--json"))
    assert again["considered"] == 1
    assert again["plans"][0]["plan"] == table["plan"]


def test_the_table_folds_variants_and_says_how_ties_are_ordered(capsys):
    shown = said(capsys, *LESS)
    rows = [line.split() for line in shown.splitlines() if line.strip() and line.split()[0].isdigit()]
    rows = [row for row in rows if row[-1].startswith("+")]
    choices = [(row[1].rstrip("s"), row[2].split("×")[0], row[3], row[5]) for row in rows]
    assert len(choices) == len(set(choices)) == 10
    assert "variants: other plans with these degrees and microbatch, which differ in " in shown
    times = [float(row[-7]) for row in rows]
    ties = re.search(r"Plans 1 to (\d+) are within 1% of the fastest", shown)
    tied = int(ties[1]) if ties else 1
    assert max(times[:tied]) <= min(times) * 1.011
    assert times[tied:] == sorted(times[tied:])
    assert ("Plans 1 to" in shown) == (tied > 1)
    found = json.loads(said(capsys, *LESS, "--json"))
    assert all(plan["variants"] >= 0 and plan["variants_differ_in"] for plan in found["plans"])
    assert found["fastest"]["step_seconds"] <= min(plan["step_seconds"] for plan in found["plans"])


def test_a_batch_that_nobody_named_is_told_and_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["plan", "--model", "llama-2-70b", "--cluster", "dgx-a100", "--nodes", "16"]
    shown = said(capsys, *options, "-o", "plan.toml")
    assert "planned for global_batch = 8" in shown
    assert json.loads(said(capsys, *options, "--json"))["assumed"] == {"global_batch": 8, "precision": "bf16"}
    assert "No batch size is given" not in said(capsys, *options, "--global-batch", "64")
    written = tomllib.loads(Path("plan.toml").read_text())
    assert written["train"] == {"global_batch": 8, "precision": "bf16"}
    # nobody trains 70 billion parameters on Python's own library by accident
    assert "data" not in written
    assert "add [data] to train" in shown
    assert any(" x " in str(entry) for entry in written["plan"]["stages"])
    assert load_job("plan.toml").plan.chunks == len(load_job("plan.toml").plan.stages)


def test_the_files_own_plan_is_ranked(capsys):
    shown = said(capsys, "plan", REPOSITORY / "examples/plans/gpt3-175b.toml", "--free")
    assert "The file's own plan, tensor 8 × pipeline 8 × data 8" in shown
    assert " of " in shown.split("number ")[1]


def test_the_smallest_plan_is_compared_by_memory(capsys):
    less = ["--set", "model.layers=24", "--set", "plan.stages=[]"]
    shown = said(
        capsys, "plan", REPOSITORY / "examples/plans/gpt3-175b.toml", "--free", "--objective", "smallest", *less
    )
    assert re.search(r"The file's own plan.*: [\d.]+ GiB on the fullest stage \(\+[\d.]+%\), [\d.]+ s per step", shown)


def test_long_names_of_schedules_cut_no_numbers(capsys):
    shown = said(capsys, *LESS, "--schedule", "dualpipev", "--top", "3")
    rows = [line for line in shown.splitlines() if " dualpipev " in line]
    assert rows
    assert "…" not in shown


def test_a_written_prediction_has_few_digits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said(capsys, *LESS, "--memory-gib", "71.123456789", "-o", "plan.toml")
    predicted = tomllib.loads(Path("plan.toml").read_text())["predicted"]
    assert predicted.pop("budget_gib") == 71.123456789
    assert all(float(f"{value:.6g}") == value for value in predicted.values())


SMALL = ["plan", "--model", "gpt2", "--cluster", "dgx-a100", "--nodes", "1", "--global-batch", "64", "--top", "1"]


def test_tokens_are_told_in_days_and_dollars(capsys):
    options = [*SMALL, "--tokens", "300e9", "--price", "2"]
    found = json.loads(said(capsys, *options, "--json"))
    best = found["plans"][0]
    seconds = 300e9 / best["tokens_per_second"]
    assert found["tokens"] == 300e9
    assert best["days"] == pytest.approx(seconds / 86_400)
    assert best["dollars"] == pytest.approx(seconds / 3600 * 8 * 2)
    shown = said(capsys, *options)
    assert f"training on 300B tokens: {best['days']:.3g} days" in shown
    assert re.search(r"device-hours, \$[\d.]+k", shown)
    fewest = said(capsys, *SMALL, "--objective", "fewest", "--days", "2", "--tokens", "1e9")
    assert re.search(r"training on 1B tokens: [\d.]+ (hours|days)", fewest)


def test_a_schedule_that_is_not_searched_is_told_where_it_is_faster(capsys):
    shown = said(capsys, *GPT3, "--top", "1")
    told = re.search(r"Not searched: with schedule = '(.*)' this split takes ([\d.]+) s", shown)
    best = re.search(r"([\d.]+) s$", shown.split("time of 1")[1].splitlines()[0])
    assert float(told[2]) < 0.99 * float(best[1])
    assert "--schedule all" in shown


def test_a_key_of_a_nested_table_is_changed(capsys):
    """And only that: all else of a preset's fit stays."""
    options = [*SMALL, "--json", "--set"]
    slow, same = (
        json.loads(said(capsys, *options, f"cluster.efficiency.{change}"))["plans"][0]["step_seconds"]
        for change in ("matmul=0.4", "matmul=0.834")
    )
    assert json.loads(said(capsys, *SMALL, "--json"))["plans"][0]["step_seconds"] == same < slow


def test_fields_that_the_planner_does_not_keep_are_not_said_to_be_unknown(capsys):
    changes = ("offload=['optimizer:host']", "prefetch=2", "shares=[1, 1]", "devices=[0]", "fragments=2")
    for change in changes:
        shown = said(capsys, *SMALL, "--set", f"plan.{change}", code=2)
        assert f"does not keep plan.{change.partition('=')[0]}" in shown
        assert "--free" in shown


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("train.steps=5\nprecision='fp32'", "more than one line"),
        ("cluster.nodes.many=2", "cluster.nodes is not a table"),
        ("train..steps=5", "does not give a key"),
    ],
)
def test_a_change_that_would_be_lost_is_refused(change, what, capsys):
    assert what in said(capsys, *SMALL, "--set", change, code=2)


def test_the_longest_sequence_of_a_config_is_said_aloud(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sizes = {"n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}
    Path("config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    options = ["plan", "--model", "config.json", "--cluster", "dgx-h100", "--global-batch", "64"]
    assert "planned for the model's longest, 1,024 tokens" in said(capsys, *options)
    assert "No sequence length" not in said(capsys, *options, "--sequence-length", "512")


def test_options_beat_the_file(job, capsys):
    options = ["--cluster", "dgx-h100", "--nodes", "2", "--global-batch", "32", "--precision", "bf16"]
    shown = said(capsys, "plan", job, *options, "--set", "model.layers=8", "--sequence-length", "8")
    assert "16 × H100" in shown
    assert "batch 32 × 8 tokens, bf16" in shown


@pytest.mark.parametrize(
    ("options", "what", "hint"),
    [
        ([], "There is nothing to plan.", "Name a job file"),
        (["--model", "gpt3-175b", "--cluster", "dgx-a100", "--nodes", "0"], "--nodes must be in [1, 1e6], got 0", ""),
        ([*GPT3[1:], "--devices", "9999"], "A plan cannot use 9999 devices.", "Use 1 to 512"),
        ([*GPT3[1:], "--tensor", "5"], "No plan on 512 devices has tensor = 5.", "Tensor can be 1, 2, 4"),
        (
            [*GPT3[1:], "--pipeline", "2", "--zero", "3", "--tensor", "256"],
            "No plan on 512 devices",
            "",
        ),
        ([*GPT3[1:], "--schedule", "2f2b"], "There is no schedule '2f2b'", "interleaved"),
        ([*GPT3[1:], "--objective", "best"], "There is no objective 'best'.", "fastest"),
        (["--model", "gpt3-175b", "--cluster", "dgx-a100", "--nodes", "1"], "none fits", "16 devices"),
        (["--model", "config.json"], "There is no file", ""),
        (["job.toml"], "There is no file job.toml", ""),
    ],
)
def test_bad_input_is_told_in_three_parts(options, what, hint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shown = said(capsys, "plan", *options, code=2)
    assert what in shown
    assert hint in shown


def test_an_odd_cluster_and_its_batch(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    odd = ["--model", "gpt2", "--cluster", "dgx-a100", "--set", "cluster.devices=7"]
    assert "7 × A100" in said(capsys, "plan", *odd, "--global-batch", "8")  # pipeline = 7
    shown = said(capsys, "plan", *odd, "--global-batch", "8", "--set", "model.layers=5", code=2)
    assert "global_batch = 8 cannot be divided over 7 devices." in shown
    assert "Use global_batch = 7, or 6 of the devices." in shown


def test_the_manual_works(tmp_path, monkeypatch, capsys):
    page = REPOSITORY / "docs" / "decide/plan.md"
    monkeypatch.chdir(tmp_path)
    write_named_blocks(page, tmp_path)
    small = {'"gpt3-175b"': '"gpt3-175b"\nlayers = 12', "nodes = 64": "nodes = 32", "= 1536": "= 768"}
    job = tmp_path / "gpt3.toml"
    for large, less in small.items():  # the page's commands, in a fraction of the time
        assert large in job.read_text()
        job.write_text(job.read_text().replace(large, less))
    assert len(run_commands(page, tmp_path)) == 14
    (code,) = blocks(page, "python")
    capsys.readouterr()
    exec(compile(code, str(page), "exec"), {})
    assert "tensor = 16 tensor is fixed" in capsys.readouterr().out


def test_planning_needs_no_torch(job):
    code = "import sys; sys.modules['torch'] = None; from heddle.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "plan", str(job), "--explain"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "speed of this machine" in done.stdout


@pytest.mark.dist
def test_a_job_without_a_plan_is_planned_and_trained(job, tmp_path):
    shown = heddle("train", job, cwd=tmp_path)
    assert "Planned for cluster" in shown
    assert "Predicted" in shown
    trained = load_job(tmp_path / "runs/small/job.toml")
    assert trained.plan is not None
    assert trained.predicted is not None
    assert len(steps_of(tmp_path / "runs/small")) == 6
    # and goes on under the plan it began with
    more = heddle("train", job, "--resume", "--set", "train.steps=8", cwd=tmp_path)
    assert "Planned for cluster" not in more
    assert load_job(tmp_path / "runs/small/job.toml").plan == trained.plan


def test_a_cluster_is_not_trained_on_a_laptop(job, capsys):
    job.write_text(job.read_text() + '\n[cluster]\npreset = "dgx-a100"\nnodes = 64\n')
    shown = said(capsys, "train", job, code=2)
    assert "The job's cluster has 512 devices" in shown
    assert "heddle plan" in shown


def test_processes_of_a_launcher_do_not_plan_each_for_itself(job, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "2 processes were started, but the job has no [plan]." in said(capsys, "train", job, code=2)
