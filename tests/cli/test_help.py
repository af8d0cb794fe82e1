"""`--help` of every command: brackets are shown, flags have no type, commands stand by what the user wants."""

from __future__ import annotations

import io
import re
import sys

import pytest
from typer.main import get_command

from heddle.cli.app import PANELS, app
from tests.helpers.commands import call


def commands(group, words=()):
    for name, command in group.commands.items():
        yield (*words, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))


EVERY = dict(commands(get_command(app)))


@pytest.fixture
def shown(monkeypatch):
    """What `--help` prints, its lines joined."""

    def run(*words):
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setenv("TERMINAL_WIDTH", "200")
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        monkeypatch.setattr(sys, "stdout", out)
        assert call(*words, "--help") == 0
        out.flush()
        return out.buffer.getvalue().decode()

    return run


def words_of(text):
    """Without the frame, and without line breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_no_bracket_is_swallowed_and_no_flag_has_a_type(shown, words):
    command = EVERY[words]
    text = words_of(shown(*words))
    told = [command.help, *(param.help for param in command.params)]
    for each in told:
        for bracket in re.findall(r"\[[^\]]*\]", each or ""):
            assert bracket in text, f"{bracket} of {each!r}"
    assert "<bool>" not in text
    assert words_of(shown(*words)) == text, "showing help changes nothing"


def test_there_are_brackets_to_swallow():
    helps = [param.help or "" for command in EVERY.values() for param in command.params]
    assert any("[plan]" in each for each in helps)


def test_commands_are_grouped_by_what_the_user_wants(shown):
    text = shown()
    assert len(PANELS) >= 5
    for panel, members in PANELS.items():
        section = text[text.index(panel) :].partition("╰")[0]
        for member in members:
            name = member[0] if isinstance(member, tuple) else member.__name__
            assert re.search(rf"^│ {name} ", section, flags=re.MULTILINE), name
    assert sum(map(len, PANELS.values())) == len(get_command(app).commands)  # type: ignore[attr-defined]
