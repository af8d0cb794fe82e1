"""What the README tells people to type works: its commands, its job file, `make demo` and `make test`."""

import shutil
import subprocess
import sys

import pytest

from heddle.demo import demo_job
from heddle.spec.job import load_job
from tests.helpers.commands import ENVIRONMENT, REPOSITORY, run_commands, write_named_blocks

README = REPOSITORY / "README.md"


@pytest.fixture
def clone(tmp_path):
    """What make and the commands of the README read, away from the checkout, which stays as it is."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md"):
        shutil.copy2(REPOSITORY / name, tmp_path)
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    return tmp_path


def make(*arguments, cwd):
    """Run make with the environment that runs this test; -o: as if all were installed, so nothing is."""
    command = ["make", "--no-print-directory", *arguments, f"VENV={sys.prefix}", "-o", f"{sys.prefix}/installed"]
    ended = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Installing" not in ended.stdout
    return ended.stdout


def test_every_command_works_in_order(clone):
    write_named_blocks(README, clone)
    large, smaller = clone / "large.toml", {'"gpt3-175b"': '"gpt3-175b"\nlayers = 24', "nodes = 64": "nodes = 32"}
    for before, after in (smaller | {"= 1536": "= 768", "data = 8": "data = 4"}).items():  # in a fraction of the time
        assert before in large.read_text()
        large.write_text(large.read_text().replace(before, after))
    ran = run_commands(README, clone)
    shown = {
        "report",
        "train",
        "generate",
        "data",
        "schedule",
        "prove",
        "trace",
        "inspect",
        "plan",
        "simulate",
        "piper",
        "place",
        "regions",
        "lanes",
        "explore",
        "export",
    }
    assert {command.split()[1] for command in ran} == shown


def test_the_job_files_are_jobs(tmp_path):
    for path in write_named_blocks(README, tmp_path):
        assert load_job(path).train.name == path.stem


def test_make_demo_is_heddle_demo(clone):
    """Which runs in tests/cli/test_demo.py."""
    assert make("-n", "demo", cwd=clone).split() == [f"{sys.prefix}/bin/heddle", "demo"]
    words = make("-n", "demo", "STEPS=4", "PLAN=2x1x1", cwd=clone).split()
    assert words[1:] == ["demo", "--plan", "2x1x1", "--steps", "4"]


def test_the_demo_has_the_size_that_the_readme_states():
    words = f"{demo_job('2x2x2', 1).model.parameters:,} parameters"
    for page in (README, REPOSITORY / "docs" / "start/demo.md"):
        assert words in page.read_text(encoding="utf-8")


def test_make_test_runs_every_check(clone):
    lines = make("-n", "test", cwd=clone).splitlines()
    checks = [line.removeprefix(f"{sys.prefix}/bin/") for line in lines]
    assert checks == [
        "ruff format --check .",
        "ruff check .",
        "mypy",
        "mypy --config-file tests/mypy.ini",
        "python -m pytest",
    ]


def test_the_map_names_every_room():
    text = README.read_text(encoding="utf-8")
    rooms = [path.parent.name for path in (REPOSITORY / "heddle").glob("*/__init__.py")]
    assert {room for room in rooms if f"| `heddle/{room}` |" not in text} == set()
