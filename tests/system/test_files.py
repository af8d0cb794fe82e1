"""Files that users name: what is refused before it is read, and what is written whole or not at all."""

from __future__ import annotations

import ast
import errno
import os
import secrets
import stat
import tomllib
from pathlib import Path

import pytest

from heddle.errors import HeddleError
from heddle.files import (
    check_output,
    parse_foreign_json,
    parse_json,
    parse_toml,
    read_foreign_json,
    read_json,
    read_lines,
    read_text,
    read_toml,
    write_output,
)
from tests.helpers.commands import REPOSITORY

PURPOSE = "a graph"


def refused(read, *arguments) -> HeddleError:
    with pytest.raises(HeddleError) as caught:
        read(*arguments)
    error = caught.value
    assert all((error.what, error.why, error.hint)), error
    return error


def hole(path: Path) -> None:
    """A terabyte, of which nothing is written."""
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: None, "There is no file"),
        (Path.mkdir, "is a folder"),
        (os.mkfifo, "is a pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device"),
        (lambda path: path.symlink_to(path.name), "cannot be read"),
        (lambda path: path.symlink_to("nowhere"), "There is no file"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "is not text"),
        (hole, "1,048,576 MiB"),
    ],
    ids=["nothing", "folder", "pipe", "device", "loop", "dangling", "binary", "terabyte"],
)
def test_what_is_no_file_is_told_without_reading_it(tmp_path, make, told):
    path = tmp_path / "graph.json"
    make(path)
    for read in (read_text, read_json):
        assert told in refused(read, path, PURPOSE).what
    assert told in refused(read_toml, path).what


def test_a_name_that_no_file_can_have_is_told():
    assert "cannot be read" in refused(read_text, Path("x" * 5000), PURPOSE).what
    assert "NUL" in refused(read_text, Path("a\0b"), PURPOSE).why
    assert "cannot be written" in refused(write_output, Path("x" * 5000), "").what
    assert "cannot be written" in refused(write_output, Path("a\0b"), "").what


def test_a_missing_file_names_those_beside_it(tmp_path):
    (tmp_path / "other.json").touch()
    assert str(tmp_path / "other.json") in refused(read_json, tmp_path / "graph.json", PURPOSE).hint
    assert "Is the folder" in refused(read_json, tmp_path / "nowhere" / "graph.json", PURPOSE).hint


def test_a_mark_of_the_byte_order_is_left_out(tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert read_json(tmp_path / "a.json", PURPOSE) == read_toml(tmp_path / "a.toml") == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * 65 + "]" * 65,
        "9" * 5000,
        str(2**63),
        str(-(10**400)),
        '{"a": "\\ud800"}',
        '{"groups": {"a": 2, "b": 1, "a": 3}}',
        "{",
        "",
    ],
    ids=["lists", "objects", "65 levels", "5000 digits", "65 bits", "negative", "surrogate", "twice", "brace", "empty"],
)
def test_json_that_cannot_be_used_is_refused(tmp_path, text):
    with pytest.raises(ValueError):
        parse_json(text)
    (tmp_path / "a.json").write_text(text)
    assert "is not valid JSON" in refused(read_json, tmp_path / "a.json", PURPOSE).what


def test_what_cannot_be_written_is_told_before_work_begins(tmp_path):
    assert refused(check_output, tmp_path).why == "It is a folder."
    assert refused(check_output, tmp_path / "nowhere" / "x.toml").why.startswith("There is no folder")
    check_output(tmp_path / "x.toml")


def test_json_that_looks_odd_and_is_not_is_read():
    assert parse_json('{"sha": "01234567890123456789012345", "n": 9223372036854775807, "x": 1e300}')["n"] == 2**63 - 1
    assert parse_json('"\\ud83e\\uddf5"') == "\U0001f9f5"
    assert parse_json("[" * 64 + "]" * 64)


def test_any_valid_json_of_other_programs_is_read(tmp_path):
    read = parse_foreign_json('{"model_max_length": 1000000000000000019884624838656, "a": 1, "a": 2}')
    assert read == {"model_max_length": 1000000000000000019884624838656, "a": 2}
    assert parse_foreign_json("9" * 5000) == float("inf")
    assert parse_foreign_json("-" + "9" * 5000) == -float("inf")
    assert parse_foreign_json('["\\ud800", "\\ud83e\\uddf5"]') == ["?", "\U0001f9f5"]
    deep = parse_foreign_json('{"a": 1, "b": ' + "[" * 900 + "7" + "]" * 900 + "}")
    assert deep["a"] == 1
    assert repr(deep).count("[") == 64  # more could not be shown in a message
    for text in ("{", "", "[1] 2", "[" * 200_000):
        (tmp_path / "a.json").write_text(text)
        assert "is not valid JSON" in refused(read_foreign_json, tmp_path / "a.json", PURPOSE).what


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, "a = " + "9" * 5000, f"a = {2**63}", 'a = "\\u0000"', '"\\u0000" = 1', "[a", "a = \x00"],
    ids=["deep", "5000 digits", "65 bits", "NUL", "NUL in a key", "bracket", "raw NUL"],
)
def test_toml_that_cannot_be_used_is_refused(tmp_path, text):
    (tmp_path / "a.toml").write_text(text)
    assert "is not valid TOML" in refused(read_toml, tmp_path / "a.toml").what


@pytest.mark.parametrize("key", ["a." * 50_000 + "b", "[" + "'a' . " * 70 + "b]", "x = [{" + "a." * 70 + "b"])
def test_a_key_of_many_parts_is_refused_before_it_is_parsed(key, monkeypatch):
    """Python's parser would take seven gigabytes for a hundred kilobytes."""
    monkeypatch.setattr("tomllib.loads", pytest.fail)
    with pytest.raises(ValueError, match="nests deeper than 64 levels"):
        parse_toml(f"{key} = 1")


DOTS = "a." * 100


@pytest.mark.parametrize(
    "text",
    [f'x = "{DOTS}"', f"x = '{DOTS}'", f"x = 1 # it's {DOTS}", f'x = """\n"{DOTS}\n"""', f"x = \'\'\'\n{DOTS}\'\'\'",
     f'x = "a\\"{DOTS}"', "a." * 63 + "b = 1"],
)  # fmt: skip
def test_dots_in_strings_and_comments_are_no_key(text):
    assert parse_toml(text) == tomllib.loads(text)


def test_lines_are_read_whatever_a_crash_left(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1}\n\xff\xfe\n\x00\x00')
    first, second, third = read_lines(tmp_path / "a.jsonl", PURPOSE)
    assert (first, third) == ('{"a": 1}', "\0\0")
    assert "\ufffd" in second


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "made.json"
    path.write_text("before")
    path.chmod(0o640)
    (tmp_path / "link.json").symlink_to("made.json")
    write_output(tmp_path / "link.json", "after")
    assert path.read_text() == "after"
    assert (tmp_path / "link.json").is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def full(_descriptor, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    error = refused(write_output, path, "lost")
    assert "No space left" in error.why
    assert "Free some space" in error.hint
    assert path.read_text() == "after"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.json", "made.json"]


def test_a_link_planted_beside_an_output_is_not_followed(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".made.json.{os.getpid()}.partial").symlink_to(victim)
    write_output(tmp_path / "made.json", "made")
    assert ((tmp_path / "made.json").read_text(), victim.read_text()) == ("made", "precious")
    # nor if the name was guessed
    monkeypatch.setattr(secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".made.json.guessed.partial").symlink_to(victim)
    refused(write_output, tmp_path / "made.json", "lost")
    assert ((tmp_path / "made.json").read_text(), victim.read_text()) == ("made", "precious")


def test_devices_are_written_to_as_they_are(tmp_path):
    write_output(Path("/dev/null"), "gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert "No space left" in refused(write_output, Path("/dev/full"), "x" * 100).why
    assert "There is no folder" in refused(write_output, tmp_path / "nowhere" / "x", "").why


# What the program itself made a moment ago, and what torch or safetensors open by themselves.
OWN = (
    *(
        "heddle/cost/measured/blas.py",
        "heddle/simulating/error_bar.py",
        "heddle/durable.py",
        "heddle/files.py",
        "heddle/reporting/html.py",
        "heddle/reporting/page.py",
    ),
    *(
        f"heddle/{room}/"
        for room in (
            "capturing",
            "checkpoint",
            "cli",
            "data",
            "explore",
            "native",
            "runs",
            "runtime",
            "tiles",
            "training",
        )
    ),
)


def test_files_of_users_are_read_in_one_place():
    """Planning rooms open no file by themselves: what a path may lead to is known in one place."""
    for path in sorted((REPOSITORY / "heddle").rglob("*.py")):
        name = path.relative_to(REPOSITORY).as_posix()
        if name.startswith(OWN):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = node.func.attr
                writes = called == "open" and node.args and ast.unparse(node.args[0]).startswith(("'w", '"w'))
                assert writes or called not in ("read_text", "read_bytes", "open"), f"{name}:{node.lineno}"


def test_errors_of_users_have_three_parts():
    """Statically: every HeddleError of the package says what, why and what works instead."""
    lacking = []
    for path in sorted((REPOSITORY / "heddle").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "HeddleError":
                spread = any(isinstance(each, ast.Starred) for each in node.args)
                empty = any(isinstance(each, ast.Constant) and each.value == "" for each in node.args)
                if not spread and (len(node.args) + len(node.keywords) < 3 or empty):
                    lacking.append(f"{path.relative_to(REPOSITORY)}:{node.lineno}")
    assert not lacking
