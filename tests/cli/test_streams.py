"""Where words go: encodings that lack a character, readers that leave, disks that are full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heddle.cli.streams import ignore_absurd_sizes
from tests.helpers.cases import thinned
from tests.helpers.commands import ENVIRONMENT, REPOSITORY, call

PLAN = REPOSITORY / "examples" / "plans" / "gpt3-175b.toml"
OPERATORS = REPOSITORY / "examples" / "operators.json"
PLAIN = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "strict ascii": {"PYTHONIOENCODING": "ascii:strict", "LC_ALL": "C"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "C without UTF-8": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}


# Where Python does not buffer, what a reader that left did not take is dropped without an error.
BUFFERED = {key: value for key, value in ENVIRONMENT.items() if key != "PYTHONUNBUFFERED"}
BUFFERED |= {"PYTHONPATH": str(REPOSITORY)}


def start(*arguments, environment=None, **streams):
    command = [sys.executable, "-m", "heddle", *map(str, arguments)]
    settings = BUFFERED | (environment or {})
    return subprocess.Popen(command, env=settings, stdin=subprocess.DEVNULL, **streams)


@pytest.mark.parametrize("name", thinned(PLAIN, slow=("ascii",)))
def test_what_an_encoding_lacks_is_spelled(name):
    pipe = subprocess.PIPE
    arguments = [("place", OPERATORS), ("schedule", "…", "-p", "2", "-m", "2")]
    arguments += [("simulate", PLAN)] * ("ascii" in name)
    started = [start(*each, environment=PLAIN[name], stdout=pipe, stderr=pipe) for each in arguments]
    ended = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 2, 0][: len(started)], ended
    assert not any(b"Traceback" in part for each in ended for part in each)
    if "ascii" in name:
        assert all(part.isascii() for each in ended for part in each)
        assert b"#####" in ended[0][0]  # a bar of blocks
        assert b" x A100" in ended[2][0]


@pytest.mark.parametrize("columns", ["18446744073709551616", "0", "2", "19", "-5", "²", "wide", ""])
def test_the_width_of_no_terminal_is_forgotten(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", "40")
    ignore_absurd_sizes()
    assert "COLUMNS" not in os.environ
    assert os.environ["LINES"] == "40"


@pytest.mark.parametrize("columns", ["18446744073709551616", "2"])
def test_a_mistake_is_told_whatever_the_width(columns):
    pipe = subprocess.PIPE
    mistaken = "tiles", "simulate", "a.py:make", "--calls", "true"
    process = start(*mistaken, environment={"COLUMNS": columns}, stdout=pipe, stderr=pipe)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert b"--calls" in said
    assert b"Traceback" not in said


def test_a_reader_that_leaves_ends_the_command_in_silence():
    process = start("simulate", PLAN, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()  # as `| head -0` does
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 1
    process.stderr.close()


def test_a_reader_that_leaves_in_the_middle_ends_it_too():
    shell = f"{sys.executable} -m heddle schedule 1f1b -p 64 -m 512 --json | head -c 20; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", shell], env=BUFFERED, capture_output=True, check=True)
    assert ended.stderr == b""
    assert ended.stdout.endswith(b"1\n")


def test_output_that_finds_no_room_is_told():
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        process = start("simulate", PLAN, "--json", stdout=full, stderr=subprocess.PIPE)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    what, why, hint = errors.decode().splitlines()
    assert what == "error: The output cannot be written."
    assert "No space left on device" in why
    assert "Free some disk space" in hint


def test_closed_streams_are_no_traceback():
    for closed in (">&-", "2>&-", ">&- 2>&-", "<&-"):
        shell = f"{sys.executable} -m heddle schedule 1f1b -p 2 -m 2 {closed}; exit $?"
        ended = subprocess.run(["bash", "-c", shell], env=BUFFERED, capture_output=True, check=False)
        assert ended.returncode == 0, closed
        assert b"Traceback" not in ended.stderr, closed


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", PLAN, "--trace", "made.json"),
        ("place", OPERATORS, "-o", "made.json"),
        ("schedule", "1f1b", "-p", "2", "-m", "2", "-o", "made.json"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_full_disk_leaves_the_earlier_file(tmp_path, capsys, arguments):
    assert call(*arguments) == 0
    before = Path("made.json").read_bytes()
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    import signal

    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))  # what a quota does
    try:
        code = call(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert code == 2
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "error: made.json cannot be written."
    assert len(others) == 2
    assert Path("made.json").read_bytes() == before
    assert sorted(os.listdir()) == ["made.json"]  # noqa: PTH208


def test_a_message_neither_steers_the_terminal_nor_fills_it(capsys):
    Path("job.toml").write_text('[model]\nlayers = "\\u001b[2J' + "x" * 50_000 + '"\n[data]\ntext = "x"\n')
    assert call("plan", "job.toml") == 2
    said = capsys.readouterr().err
    assert "\x1b[2J" not in said
    assert len(said) < 4000


def test_a_name_that_is_too_long_for_a_file_is_told(capsys):
    for arguments in (("train", "x" * 300), ("trace", "x" * 300), ("report", "x" * 300), ("inspect", "x" * 300)):
        assert call(*arguments) == 2
        first, *others = capsys.readouterr().err.splitlines()
        assert first.startswith("error: ")
        assert len(others) >= 2
