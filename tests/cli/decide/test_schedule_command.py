"""`heddle schedule`, and the page of the documentation that shows its output."""

import json
import re
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from heddle.cli.decide.schedule import schedule
from heddle.errors import HeddleError
from heddle.schedule import NAMES
from tests.helpers.commands import REPOSITORY

DOCS = REPOSITORY / "docs" / "background/schedules.md"
SHOWN = re.findall(r"```console\n\$ heddle schedule (.*)\n((?:.*\n)*?)```", DOCS.read_text(encoding="utf-8"))

app = typer.Typer()
app.command("schedule")(schedule)


def run(arguments: str, width: int = 80) -> str:
    environment = {"COLUMNS": str(width), "FORCE_COLOR": None, "TTY_COMPATIBLE": None}
    result = CliRunner().invoke(app, shlex.split(arguments), env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(("arguments", "output"), SHOWN, ids=[arguments for arguments, _ in SHOWN])
def test_the_documentation_shows_the_real_output(arguments, output):
    assert run(arguments) == output


def test_the_documentation_shows_every_schedule():
    assert {arguments.split()[0] for arguments, _ in SHOWN} == {*NAMES, "searched"}


def test_json_holds_the_whole_schedule():
    printed = run("interleaved --pipeline 2 --microbatches 4 --virtual 2 --json", width=20)
    assert printed.count("\n") == 1  # one line whatever the width, for `jq` and `grep`
    told = json.loads(printed)
    assert told["bubble"] == {"replay": 0.125, "formula": 0.125, "without_barrier": 0.125}
    assert told["peak_stash"] == [5, 3]
    assert (told["actions"], told["messages"]) == (32, 24)
    assert told["ranks"][1][:3] == [["forward", 1, 0], ["forward", 1, 1], ["forward", 3, 0]]


def test_fewer_microbatches_than_ranks_have_a_formula_too():
    assert "66.7% of the ideal time; formula (v p + m-1)/(v m) - 1 = 66.7%" in run("interleaved -p 4 -m 3 -v 2")


def test_mistakes_are_heddle_errors():
    with pytest.raises(HeddleError, match="interleaved"):
        run("1f1b -p 4 -m 8 -v 2")
    with pytest.raises(HeddleError, match="'ouroboros' cannot be combined with virtual = 2"):
        run("ouroboros -p 2 -m 2 -v 2")
    with pytest.raises(HeddleError, match="needs a pipeline"):
        run("2bw -p 1 -m 2")


def test_an_order_is_searched():
    told = json.loads(run("searched -p 4 -m 8 --parts 1 1.2 0.8 --message 0.1 --hold 6 --json"))
    assert max(told["peak_stash"]) <= 6
    assert told["bound"] <= told["seconds"] <= 1.1 * told["bound"]
    assert "no order takes less than" in run("searched -p 2 -m 5 -v 2")
    with pytest.raises(HeddleError, match="An order of 36,873 actions is too long"):
        run("searched -p 4097 -m 3")
    for wrong in ("-v 3", "--parts 1 0 1", "--parts inf 1 1", "--parts 1 1e300 1", "--hold 1 -v 2"):
        with pytest.raises(HeddleError):
            run(f"searched -p 2 -m 4 {wrong}")


@pytest.mark.parametrize(
    "arguments",
    [
        "1f1b --hold 1",
        "1f1b --parts 1 2 1",
        "gpipe --message 1",
        "zb-h1 --extra-warmup 1",
        "2bw --hold 2",
        "2bw --extra-warmup 1",
        "searched --extra-warmup 1",
    ],
)
def test_options_that_would_be_ignored_are_refused(arguments):
    with pytest.raises(HeddleError, match="does not go with the schedule"):
        run(f"{arguments} -p 2 -m 4")


def test_names_of_all_kinds_are_suggested():
    for wrong, meant in (("1F1B", "1f1b"), ("pipedreem", "pipedream"), ("search", "searched")):
        with pytest.raises(HeddleError, match=f"Did you mean '{meant}'"):
            run(f"{wrong} -p 2 -m 4")


def test_nothing_heavy_is_imported_for_the_help():
    code = (
        "import sys; from heddle.cli.decide.schedule import schedule; "
        "heavy = {'heddle.simulating.replay', 'heddle.trace', 'numpy', 'torch'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("name", "start"), [("order.svg", b"<svg"), ("order.png", b"\x89PNG"), ("order.json", b"{")])
def test_a_schedule_is_written_as_a_file(tmp_path, name, start):
    if name.endswith(".png"):
        pytest.importorskip("PIL", reason="Pillow is not installed: the extra heddle-train[png]")
    said = run(f"1f1b -p 2 -m 4 -o {tmp_path / name}", width=200)
    assert f"Written to {tmp_path / name}" in said
    assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(HeddleError, match=r"neither .json, .svg nor .png"):
        run(f"1f1b -p 2 -m 4 -o {tmp_path / 'order.bmp'}")
