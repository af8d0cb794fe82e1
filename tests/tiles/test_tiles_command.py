"""`heddle tiles`, as its page shows it, and its mistakes."""

import json
import re

import pytest

from tests.helpers.commands import REPOSITORY, blocks, call

PAGE = REPOSITORY / "docs/train/tiles.md"
MODULE = """
import torch
def make():
    torch.manual_seed(0)
    linear, gelu, last = torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)
    return torch.nn.Sequential(linear, gelu, last).eval(), (torch.randn(20, 32),)
def other():
    raise ValueError("nothing")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODULE)
    return "model.py:make"


def test_bench_gives_its_numbers_as_json(module, capsys):
    assert call("tiles", "bench", module, "--threads", "1", "--rounds", "1", "--json") == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [case["threads"] for case in cases] == [1]
    for case in cases:
        assert set(case["milliseconds"]) == set(case["minimum"]) == {"heddle", "eager", "eager again"}
        assert case["max_error"] < 1e-5
        assert case["tiles"] > 0
        assert case["fallback_operators"] == []


def test_simulate_says_what_dataflow_gains(module, capsys):
    assert call("tiles", "simulate", module, "--cores", "16", "--slow", "8x0.45", "--calls", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cores"] == 16
    assert found["speeds"] == pytest.approx(8 + 8 * 0.45)
    assert set(found["milliseconds"]) == {"dataflow", "barriers, stealing", "barriers, static"}


@pytest.mark.parametrize("suffix", ["json", "svg", "html"])
def test_trace_is_written_and_has_every_tile(module, suffix, tmp_path, capsys):
    assert call("tiles", "trace", module, "--threads", "2", "-o", f"trace.{suffix}") == 0
    assert (tmp_path / f"trace.{suffix}").stat().st_size > 100
    count = int(re.search(r"([\d,]+) tiles on 2 cores", capsys.readouterr().out)[1].replace(",", ""))
    if suffix == "json":
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        assert sum(event["ph"] == "X" for event in events) == count
    if suffix == "html":
        page = (tmp_path / "trace.html").read_text()
        assert f"{count:,} tiles on 2 cores" in page
        assert page.count("<rect") >= count
        assert "<script" not in page


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["bench", "model.py:make", "--threads", "0"], "--threads 0"),
        (["bench", "model.py:make", "--threads", "²"], "--threads ²"),
        (["trace", "model.py:make", "--threads", "9" * 5000, "-o", "trace.json"], "--threads 999"),
        (["bench", "model.py:nothing"], "no function"),
        (["bench", "model.py:other"], "failed"),
        (["simulate", "model.py:make", "--slow", "9x2y"], "--slow 9x2y"),
        (["simulate", "model.py:make", "--cores", "4", "--slow", "9x0.5"], "--slow"),
        (["trace", "model.py:make", "-o", "trace.txt"], "trace.txt"),
    ],
)
def test_mistakes_are_told_without_a_traceback(module, words, told, capsys):
    assert call("tiles", *words) == 2
    assert told in capsys.readouterr().err


def test_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    for line in "\n".join(blocks(PAGE, "sh")).splitlines():
        assert call(*line.split()[1:]) == 0, line
    names: dict[str, object] = {}
    for block in blocks(PAGE, "python"):
        exec(block, names)
    assert capsys.readouterr().out.endswith("[]\n")
