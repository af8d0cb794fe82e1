"""`heddle regions`, and the page that shows what it prints."""

import json
import re
import shlex
from pathlib import Path

import pytest

from heddle.planning.regions import costs_of, read_case, solve
from tests.helpers.commands import REPOSITORY, blocks, call
from tests.helpers.manual import DOCS, section, tables
from tests.helpers.published import DATA, needs_data

EXAMPLE = REPOSITORY / "examples" / "regions.json"
PAGE = DOCS / "decide" / "networks.md"


def test_the_page_shows_what_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(REPOSITORY)
    (block,) = blocks(PAGE, "console")
    command, _, shown = block.removeprefix("$ ").partition("\n")
    assert call(*shlex.split(command)[1:]) == 0
    timed = re.compile(r"[\d.]+ s of CPU$", flags=re.MULTILINE)
    assert timed.sub("", capsys.readouterr().out) == timed.sub("", shown)


@pytest.mark.parametrize("case", ["spot", "two-sites", "one-way"])
def test_json_is_a_layout_that_costs_what_it_says(case, capsys):
    assert call("regions", EXAMPLE, "--case", case, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"cost", "data", "pipeline", "layout", "bound", "seconds"}
    problem = read_case(EXAMPLE, case).problem
    assert [len(stage) for stage in answer["layout"]] == [problem.replicas] * problem.stages
    import numpy as np

    layout = np.array(answer["layout"])
    assert sorted(layout.ravel()) == list(range(problem.devices))
    assert answer["cost"] == pytest.approx(costs_of(problem, layout[None])[0])
    assert answer["cost"] == pytest.approx(answer["data"] + answer["pipeline"])
    assert answer["bound"] == answer["cost"]  # so few devices are solved exactly


def test_degrees_can_be_changed(capsys):
    assert call("regions", EXAMPLE, "--case", "two-sites", "--pipeline", "2", "--json") == 0
    assert [len(stage) for stage in json.loads(capsys.readouterr().out)["layout"]] == [6, 6]
    assert call("regions", EXAMPLE, "--case", "two-sites", "--data", "1", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["layout"]) == 12


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((EXAMPLE,), "it has 3 cases"),
        ((EXAMPLE, "--case", "spt"), "it has no case 'spt'"),
        ((EXAMPLE, "--case", "spot", "--pipeline", "5"), "has 12 devices, and the workload 5 stages × 2 replicas"),
        ((EXAMPLE, "--case", "spot", "--data", "0"), "--data must be in [1, 1e9], got 0"),
        ((EXAMPLE, "--case", "spot", "--time-limit", "nan"), "--time-limit must be in (0, 1e9], got nan"),
        ((REPOSITORY / "examples" / "layers.json",), "lacks 'cases'"),
        (("none.json",), "There is no file none.json"),
        ((".",), ". is a folder"),
        (("bad.json",), "bad.json is not valid JSON"),
    ],
)
def test_mistakes_are_told_with_exit_code_2(arguments, told, capsys):
    Path("bad.json").write_text("{", encoding="utf-8")
    assert call("regions", *arguments) == 2
    assert told in capsys.readouterr().err


@needs_data
def test_the_page_s_table_of_published_networks_is_true():
    (rows,) = [rows for rows in tables(section(PAGE, "### How it is found")) if rows[0][0] == "datacenter"]
    for name, trivial, _, cost, bound in rows:
        found = solve(read_case(DATA / "networks" / "cases.json", name).problem, time_limit=1.0)
        assert trivial == f"{found.pipelines_inside:.2f} or {found.stages_inside:.2f}"
        assert (cost, bound) == (f"{found.layout.cost:.2f}", f"{found.bound:.2f}")
