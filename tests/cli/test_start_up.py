"""`heddle` answers at once: what is heavy is imported by the command that needs it."""

import os
import statistics
import subprocess
import sys

import pytest

from heddle.cli.app import _entry
from heddle.rooms import FIRST_WITH_TORCH, ROOMS
from tests.helpers.commands import ENVIRONMENT, REPOSITORY

# What plans, simulates and shows runs where there is no torch.
WITHOUT_TORCH = list(ROOMS)[: list(ROOMS).index(FIRST_WITH_TORCH)]


def cpu_seconds(*command: str) -> float:
    """User and system time of a process: waiting for a core is not counted."""
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def test_help_takes_less_than_a_third_of_a_second():
    command = (sys.executable, "-m", "heddle", "--help")
    cpu_seconds(*command)  # the first may have bytecode to write
    taken = statistics.median(cpu_seconds(*command) for _ in range(5))
    # Cores that share their caches with others' work are slower; then the command-line library is the measure.
    library = statistics.median(cpu_seconds(sys.executable, "-c", "import typer.rich_utils") for _ in range(3))
    assert taken < max(0.3, 2.5 * library)


@pytest.mark.parametrize(
    ("first", "made"), [("train", {"train"}), ("data", {"data"}), ("", None), ("--help", None), ("trian", None)]
)
def test_only_the_command_that_is_asked_for_is_made(first, made):
    every = set(_entry("").commands)  # type: ignore[attr-defined]
    assert {"train", "plan", "data", "export"} < every
    assert set(_entry(first).commands) == (made or every)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        *((name,) for name in ("train", "generate", "schedule", "simulate", "validate", "report")),
        *((name,) for name in ("piper", "place", "regions")),
        ("data", "prepare"),
    ],
)
def test_help_imports_neither_torch_nor_numpy(arguments):
    command = [sys.executable, "-X", "importtime", "-m", "heddle", *arguments, "--help"]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "heddle.cli.app" in imported  # so the list is one of imports
    assert {name for name in imported if name.partition(".")[0] in ("torch", "numpy")} == set()


def test_rooms_for_planning_import_where_torch_cannot_be():
    folders = [REPOSITORY / "heddle" / room for room in WITHOUT_TORCH]
    files = [path.relative_to(REPOSITORY).with_suffix("") for folder in folders for path in folder.rglob("*.py")]
    modules = [".".join(path.parts).removesuffix(".__init__") for path in files]
    blocked = (
        "import importlib, sys\nsys.modules['torch'] = None\nfor name in sys.argv[1:]: importlib.import_module(name)"
    )
    assert len(modules) > 80
    subprocess.run([sys.executable, "-c", blocked, *modules], check=True)
