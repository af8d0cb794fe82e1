"""A run that is watched: rows as they come, lines that are taken back, and what should worry its owner."""

import json
import os

import pytest

from heddle.explore.signs import alarms, all_alarms, folder_alarms, slow_ranks
from heddle.explore.watch import MOST_POINTS, Follower, state, thinned
from heddle.runs.folder import Run
from heddle.trace import Trace
from heddle.trace.steps import write_rank
from tests.helpers.subjects import write_run


def row(step, loss=2.0, seconds=1.0):
    return {"step": step, "loss": loss, "seconds": seconds, "tokens_per_second": 100.0, "mfu": 0.4, "memory_gib": 1.0}


def write(path, rows):
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))


def test_only_what_is_new_is_told(tmp_path):
    path = tmp_path / "metrics.jsonl"
    follower = Follower(tmp_path)
    assert follower.look() == (False, [])  # the run has not begun
    write(path, [row(1), row(2)])
    assert [each["step"] for each in follower.look()[1]] == [1, 2]
    assert follower.look() == (False, [])
    write(path, [row(1), row(2), row(3)])
    assert [each["step"] for each in follower.look()[1]] == [3]


def test_lines_that_a_resumed_run_takes_back_are_forgotten(tmp_path):
    path = tmp_path / "metrics.jsonl"
    follower = Follower(tmp_path)
    write(path, [row(step) for step in range(1, 9)])
    follower.look()
    write(path, [row(step, loss=3.0 if step > 4 else 2.0) for step in range(1, 6)])
    anew, rows = follower.look()
    assert anew
    assert [each["step"] for each in rows] == [1, 2, 3, 4, 5]


def test_only_what_was_added_is_read_again(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    follower = Follower(tmp_path)
    write(path, [row(step) for step in range(1, 1001)])
    follower.look()
    read = []
    monkeypatch.setattr("heddle.explore.watch.parse_row", lambda line: read.append(line) or json.loads(line))
    with path.open("a") as file:
        file.write(json.dumps(row(1001)) + "\n" + json.dumps(row(1002))[:20])
    assert [each["step"] for each in follower.look()[1]] == [1001]
    with path.open("a") as file:
        file.write(json.dumps(row(1002))[20:] + "\n")
    assert [each["step"] for each in follower.look()[1]] == [1002]  # once it is whole
    assert len(read) == 2
    assert len(follower.rows) == 1002


def test_a_pipe_in_place_of_metrics_holds_up_nobody(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert Follower(tmp_path).look() == (False, [])


def test_a_long_run_is_thinned_out_but_keeps_its_extremes():
    rows = [row(step, loss=9.0 if step == 70_001 else 2.0) for step in range(1, 100_001)]
    kept = thinned([*rows, {"step": 50_000, "validation_loss": 2.5}])
    assert len(kept) <= 1.6 * MOST_POINTS
    assert max(each.get("loss", 0.0) for each in kept) == 9.0
    assert kept[-1]["step"] == 100_000
    assert any("validation_loss" in each for each in kept)
    assert [each["step"] for each in kept] == sorted(each["step"] for each in kept)


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (row(31, loss=None), "not a number"),
        (row(31, loss=4.0), "jumped to 4.000"),
        (row(31, seconds=2.5), "took 2.5 s, usually 1 s"),
        (row(31, loss=2.05), None),
        (row(31, loss=1.0), None),
        ({"step": 31, "validation_loss": 9.0}, None),
        (row(31) | {"link_seconds": 0.5}, "waited for a link 0.5 s, usually 0.1 s"),
        ({"step": 31, "expert_balance": 9.0}, "9.0 times the mean's tokens"),
    ],
)
def test_what_should_worry_one_is_told(last, says):
    before = [row(step, loss=2.0 + 0.01 * (step % 3)) | {"link_seconds": 0.1} for step in range(1, 31)]
    found = [each["what"] for each in alarms([*before, last], last)]
    assert len(found) == (says is not None)
    if says is not None:
        assert says in found[0]
    assert [each["what"] for each in all_alarms([*before, last])] == found


def test_a_run_goes_on_stands_still_or_is_done(tmp_path):
    folder = write_run(tmp_path / "small")
    run = Run(folder)
    text = run.job_file.read_text()
    changed = (folder / "metrics.jsonl").stat().st_mtime
    rows = [row(step) for step in range(1, 5)]
    assert state(tmp_path / "none", [], 0.0)["state"] == "has not begun"
    run.job_file.write_text(text.replace("steps = ", "steps = 10 # ", 1))
    going = state(folder, rows, changed + 1)
    assert (going["state"], going["done"], going["ends_in"]) == ("goes on", 4, 6)
    assert state(folder, rows, changed + 100)["state"].startswith("stands still")
    assert state(folder, [row(step) for step in range(1, 11)], changed + 100)["state"] == "done"


def test_a_rank_that_holds_up_the_others_is_named(tmp_path):
    folder = write_run(tmp_path / "small")
    assert slow_ranks(folder) == []
    path = folder / "traces" / "step-00000003-rank-00005.jsonl"
    trace = Trace.read(path)
    slower = [
        span._replace(end=span.start + 1.5 * (span.end - span.start)) if span.lane == "compute" else span
        for span in trace.spans
    ]
    write_rank(folder / "traces", 3, 5, Trace(trace.ranks, slower))
    found = slow_ranks(folder)
    assert [each["step"] for each in found] == [3]
    assert "Rank 5 computed 1.5" in found[0]["what"]
    assert "stage 1" in found[0]["what"]


def test_files_of_a_run_tell_of_hangs_and_links(tmp_path):
    folder = write_run(tmp_path / "small")
    assert folder_alarms(folder) == []
    (folder / "hang").mkdir()
    (folder / "hang" / "report.txt").write_text("rank 0 waits")
    (folder / "links-now.toml").write_text("")
    words = [each["what"] for each in folder_alarms(folder)]
    assert "hung" in words[0]
    assert "Links" in words[1]
