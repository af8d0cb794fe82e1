"""What a report is made of, and what it says of what is missing or broken."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html import escape

import pytest

from heddle.cost.measured.local_machine import measured_machine
from heddle.errors import HeddleError
from heddle.reporting import memory, sections
from heddle.reporting.page import render
from heddle.reporting.subject import Subject, read_subject
from heddle.runs.decision import read_decision
from heddle.runs.folder import open_run
from heddle.runs.metrics import typical_step
from heddle.simulating.simulation import simulate
from heddle.spec import load_job
from heddle.spec.cluster import dumps_cluster
from heddle.spec.job import dumps_job, job_from_tables
from heddle.spec.tables import to_table
from tests.helpers.cases import thinned
from tests.helpers.commands import REPOSITORY, call
from tests.helpers.subjects import write_run

PLAN = REPOSITORY / "examples" / "plans" / "gpt3-175b.toml"
SMALLER = {
    '"gpt3-175b"\n\n': '"gpt3-175b"\nlayers = 24\n\n',
    "nodes = 64": "nodes = 8",
    "= 1536": "= 48",
    "data = 8": "data = 1",
}


def told(subject):
    """The notices of a subject, which its page shows, too."""
    page = render([subject])
    words = [str(notice).replace("\n", " ") for notice in subject.notices]
    assert all(escape(notice.what) in page and escape(notice.hint) in page for notice in subject.notices)
    return " ".join(words)


def test_a_whole_run(tmp_path):
    subject = read_subject(write_run(tmp_path / "run"))
    assert subject.notices == ()
    assert subject.measured.trace.ranks == 8
    assert subject.measured.step_seconds == 0.1
    page = render([subject])
    for words in ("Where the step", "Memory of each stage", "Loss and speed", "Plans in time and memory", "rank 7"):
        assert words in page


def test_a_run_that_adapted_says_what_changed_and_why(tmp_path, capsys):
    folder = write_run(tmp_path / "run", traced=False)
    plan = load_job(folder / "job.toml").planned.plan
    given = replace(plan, recompute="full")
    why = "A step takes 1.42 s, predicted 0.98 s. Layers 0–3: keep everything (before: recompute in full)."
    record = {"step": 7, "changed": True, "why": why, "given": given.hash, "plan": to_table(plan)}
    (folder / "adapted.json").write_text(json.dumps(record))
    assert call("report", str(folder), "-o", str(tmp_path / "page.html")) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    described = page.partition('id="plan"')[2].partition("</section>")[0]
    assert "Adapted after step 7." in described
    assert why in described
    assert f"{folder}: Adapted after step 7. {why}" in capsys.readouterr().out
    other = record | {"plan": to_table(replace(plan, microbatch=2))}  # the plan was changed by hand since
    for found, words in ((other, ""), ({"step": 7}, "is not the record of a decision"), ([], "is not a JSON object")):
        (folder / "adapted.json").write_text(json.dumps(found))
        run = open_run(folder)
        if words:
            with pytest.raises(HeddleError, match=words):
                read_decision(run.adapted, plan)
        else:
            assert read_decision(run.adapted, plan) is None
    assert "is not a JSON object" in told(read_subject(folder))  # and the page is there


def test_a_run_without_a_trace_says_how_to_record_one(tmp_path):
    subject = read_subject(write_run(tmp_path / "run", traced=False))
    assert subject.measured.trace is None
    assert "heddle train JOB.toml --trace" in told(subject)


ODD = ['{"step": 41, "lo', "\x00\x00\x00", "[1]", '{"step": "7"}', '{"step": 41, "loss": []}', "[" * 10**5, "9" * 5000]


# what else is no row: tests/training/test_metrics.py
@pytest.mark.parametrize("rest", thinned(ODD, slow=ODD[1:5]), ids=range(len(ODD)))
def test_half_written_metrics_are_read_up_to_what_is_whole(tmp_path, rest):
    folder = write_run(tmp_path / "run", steps=40)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(rest)
    subject = read_subject(folder)
    assert len(subject.measured.steps) == 40
    assert told(subject) == ""  # a run that goes on is often just at its next line
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("\n")
    subject = read_subject(folder)
    assert len(subject.measured.steps) == 40
    assert "has 44 complete rows; 1 of its 45 lines are incomplete" in told(subject)


def test_metrics_that_are_no_text_and_none_at_all(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "metrics.jsonl").write_bytes(b"\xff\xfe\x00")
    assert "has no steps yet" in told(read_subject(folder))
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").mkdir()
    assert "is a folder" in told(read_subject(folder))
    (folder / "metrics.jsonl").rmdir()
    assert "has no steps yet" in told(read_subject(folder))


def test_losses_that_overflowed_leave_gaps(tmp_path):
    folder = write_run(tmp_path / "run", steps=3)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 4, "loss": None, "seconds": 0.1}) + "\n")
    assert "NaN" not in render([read_subject(folder)])


def test_a_trace_of_another_format(tmp_path):
    folder = write_run(tmp_path / "run")
    for path in (folder / "traces").iterdir():
        path.write_text('{"traceEvents": []}\n')
    subject = read_subject(folder)
    assert subject.measured.trace is None
    assert "is not a Heddle trace" in told(subject)


def test_a_trace_of_another_plan(tmp_path):
    folder = write_run(tmp_path / "run")
    job = folder / "job.toml"
    job.write_text(job.read_text().replace("data = 2", "data = 1"))
    assert "resumed under another plan" in told(read_subject(folder))


@pytest.mark.parametrize("make", ["folder", "nothing", "trace", "step"])
def test_what_is_no_run(tmp_path, make, capsys):
    path, more = tmp_path / "runs", []
    if make == "folder":
        path.mkdir()
        write_run(path / "one")
    elif make == "trace":
        path = tmp_path / "trace.json"
        path.write_text("{}")
    elif make == "step":
        path, more = write_run(path / "one"), ["--step", "30"]
    assert call("report", path, *more) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert len(error.splitlines()) == 3
    assert {"folder": "Runs near it", "nothing": "heddle train", "trace": "run's folder", "step": "Traced steps: 1, 2"}[
        make
    ] in error


def test_a_step_of_a_job_file_is_refused():
    with pytest.raises(HeddleError, match="has a prediction only"):
        read_subject(PLAN, 3)


def test_a_plan_is_ranked_and_a_job_without_one_is_planned(tmp_path):
    text = PLAN.read_text()
    for large, less in SMALLER.items():
        assert large in text
        text = text.replace(large, less)
    fixed, free = tmp_path / "fixed.toml", tmp_path / "free.toml"
    fixed.write_text(text)
    own = read_subject(fixed)
    assert not own.was_planned
    assert "feasible plans, " in render([own])
    found = own.search  # a plan has one number on the page: its place among all, not its row
    listed = re.findall(r"<tr><t[hd][^>]*>([\d,]+)</t[hd]>", render([own]).partition("The best plan of each")[2])
    assert listed == [f"{found.rank(each.plan):,}" for each in found.plans]
    assert listed != [str(i + 1) for i in range(len(listed))]
    free.write_text(re.sub(r"\[plan\][^\[]*", "", text))
    planned = read_subject(free)
    assert planned.was_planned
    page = render([planned, own])
    assert "Why not another?" in page
    assert "Side by side" in page


def test_a_name_cannot_end_the_script(tmp_path):
    folder = write_run(tmp_path / "<script>alert(1)</script>")
    page = render([read_subject(folder)])
    assert "<script>alert" not in page
    assert page.count("</script>") == 2


def test_the_typical_step():
    steps = [{"step": step, "seconds": seconds} for step, seconds in enumerate([9.0, 1.0, 3.0, 2.0], 1)]
    assert typical_step([1, 2, 3, 4], steps) == 4
    assert typical_step([1], steps) == 1
    assert typical_step([5, 6], []) == 6
    assert typical_step([], steps) is None


def test_no_torch_is_imported(tmp_path):
    folder = write_run(tmp_path / "run")
    code = "import sys; sys.modules['torch'] = None; from heddle.cli import main; main()"
    subprocess.run([sys.executable, "-c", code, "report", folder, "-o", tmp_path / "out.html"], check=True)
    page = (tmp_path / "out.html").read_text()
    assert not re.search(r"(src|href)=.?(https?:|//)", page)
    assert "@import" not in page


def test_the_command_opens_what_it_wrote(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    folder = write_run(tmp_path / "run", traced=False)
    assert call("report", folder, "-o", "here.html", "--open") == 0
    said = capsys.readouterr().out
    assert "note: " in said
    assert "Written to here.html" in said
    assert opened == [(tmp_path / "here.html").as_uri()]
    assert call("report", folder, "-o", "missing/here.html") == 2


def without_cluster(folder, **predicted):
    """The run as one on this machine, which keeps its numbers where the job has none."""
    job = load_job(folder / "job.toml")
    kept = replace(predicted_of(job), **predicted) if predicted else None
    (folder / "job.toml").write_text(dumps_job(replace(job, cluster=None, predicted=kept)))
    machine = replace(measured_machine(None), devices=8, name="kept")
    (folder / "machine.toml").write_text(dumps_cluster(machine))
    return machine


def predicted_of(job):
    return simulate(job).predicted


def test_a_run_is_predicted_for_the_machine_as_it_was(tmp_path):
    folder = write_run(tmp_path / "run")
    machine = without_cluster(folder)
    subject = read_subject(folder)
    assert subject.notices == ()
    assert subject.prediction.cluster == machine
    (folder / "machine.toml").unlink()  # as an earlier Heddle left it
    assert "does not say how fast its machine was" in told(read_subject(folder))


def test_the_page_tells_the_rank_that_the_run_was_told(tmp_path):
    folder = write_run(tmp_path / "run")
    without_cluster(folder, rank=12, feasible=4321)
    described = render([read_subject(folder)]).partition('id="plan"')[2].partition("</section>")[0]
    assert "Number 12 of 4,321 feasible plans, " in described
    without_cluster(folder, rank=1, feasible=4321)
    assert "The best of 4,321 feasible plans" in render([read_subject(folder)])


def test_no_plan_is_called_the_fastest_where_one_is_faster(tmp_path):
    folder = write_run(tmp_path / "run")
    subject = read_subject(folder)
    for slower, words in ((1.0, "none is predicted to be faster"), (1.0002, "less than 0.1% slower than the fastest")):
        near = replace(subject.search.fastest, step_seconds=slower * subject.search.fastest.step_seconds)
        said = sections._standing(replace(subject, prediction=near))
        assert words in said
        assert ("none is" in said) == (slower == 1.0)


def test_an_mfu_above_the_peak_is_explained(tmp_path):
    folder = write_run(tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    fast = [row | {"mfu": 4.119} if "mfu" in row else row for row in rows]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in fast))
    said = told(read_subject(folder))
    assert "MFU is 412%. It cannot exceed 100%: the peak of 312 TFLOP/s per device is too low." in said
    assert "[cluster] states it for A100" in said
    without_cluster(folder)
    assert "heddle profile -o" in told(read_subject(folder))
    assert "as PaLM and Megatron-LM count" in render([read_subject(folder)])


def test_what_memory_is_worth_is_no_more_than_the_step_takes(tmp_path):
    """Also where the whole range of budgets is a thousandth of a GiB."""
    folder = write_run(tmp_path / "run")
    subject = read_subject(folder)
    shown = memory.prices(subject)
    cells = re.findall(r"<td class=.n.>([^<]*)</td>", shown)
    steps, saved = ([seconds_of(cell) for cell in cells[column::2]] for column in (0, 1))
    assert len(steps) > 2
    assert sum(saved[1:]) == pytest.approx(steps[0] - steps[-1], abs=0.02 * steps[0])
    assert "MiB per device" in shown


def seconds_of(cell):
    if cell == "–":
        return 0.0
    count, unit = cell.split()
    return float(count) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]


def test_a_page_of_an_odd_model_does_not_price_each_of_its_layers(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "price_of_memory", None)  # which would take minutes
    widths = {"layers": 64, "hidden": 64, "heads": 4, "vocab": 99, "sequence": 64, "ffn": [64 + n for n in range(64)]}
    tables = {"model": widths, "cluster": {"preset": "dgx-a100-80gb"}, "plan": {"pipeline": 4}}
    prediction = simulate(job_from_tables(tables))
    shown = memory.prices(Subject("odd", prediction.job, prediction, None, None))
    assert "64 layers of 64 kinds" in shown
