"""`heddle compare` trains what is missing, takes up what is there, and refuses what cannot be compared."""

import json

import pytest

from tests.helpers.commands import REPOSITORY, call, run_commands, steps_of, write_job, write_named_blocks


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a = write_job(tmp_path)
    b = tmp_path / "fast.toml"
    b.write_text(a.read_text().replace("1e-2", "3e-2"))
    return "job.toml", "fast.toml"


def test_runs_take_turns_and_are_not_trained_twice(jobs, tmp_path, capsys):
    assert call("compare", *jobs, "--seeds", "2", "--json", "-o", "one.html") == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out[captured.out.index('{"loss"') :])
    runs = [run["run"] for setting in found["settings"] for run in setting["runs"]]
    assert runs == [f"runs/compare/{name}-seed-{seed}" for name in ("job", "fast") for seed in (0, 1)]
    for setting in found["settings"]:
        for run in setting["runs"]:
            rows = steps_of(tmp_path / run["run"])
            assert run["final_loss"] == pytest.approx(rows[-1]["loss"])  # 5 % of six steps is one
            at = next(i for i, row in enumerate(rows) if row["loss"] <= found["loss"])
            assert run["reached"]["tokens"] == (at + 1) * 4 * 16
            assert run["reached"]["seconds"] == pytest.approx(sum(row["seconds"] for row in rows[: at + 1]))
    gap = found["settings"][1]["final_loss"] - found["settings"][0]["final_loss"]
    assert found["gap"] == pytest.approx(gap)
    page = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "<script" not in page
    before = {run: (tmp_path / run / "metrics.jsonl").stat().st_mtime_ns for run in runs}
    assert call("compare", *jobs, "--seeds", "2", "--json") == 0
    again = capsys.readouterr().out
    assert json.loads(again) == found
    assert before == {run: (tmp_path / run / "metrics.jsonl").stat().st_mtime_ns for run in runs}


def test_what_cannot_be_compared_is_refused(jobs, tmp_path, capsys):
    assert call("compare", *jobs, "--seeds", "1") == 0
    other = tmp_path / "other.toml"
    other.write_text((tmp_path / "job.toml").read_text().replace("corpus/*.txt", "corpus/1.txt"))
    job, fast = jobs
    wrong = {
        (job, "other.toml"): "job and other train on different tokens: data.text is",
        (job, "runs/compare/fast-seed-0"): "are a run and a job file",
        (job, fast, "--set", "train.steps=7"): "runs/compare/job-seed-0 was trained with other settings",
        (job, fast, "--set", "plan.microbatch=2"): "runs/compare/job-seed-0 was trained with other settings",
        (job, "nowhere.toml"): "There is no file nowhere.toml",
        (job, fast, "--seeds", "0"): "--seeds must be in [1, 1000], got 0",
    }
    capsys.readouterr()
    for arguments, words in wrong.items():
        assert call("compare", *arguments) == 2
        assert words in " ".join(capsys.readouterr().err.split())


def test_a_launcher_is_refused(jobs, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert call("compare", *jobs) == 2
    assert "was started by a launcher" in capsys.readouterr().err


def test_the_page_of_the_manual_works(tmp_path):
    page = REPOSITORY / "docs/train/compare.md"
    write_named_blocks(page, tmp_path)
    run_commands(page, tmp_path)
    assert "</html>" in (tmp_path / "at-4.5.html").read_text(encoding="utf-8")
