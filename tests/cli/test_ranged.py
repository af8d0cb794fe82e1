"""Every number that the command line takes has a range, and what lies outside is told before anything begins."""

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from heddle.cli.app import app
from heddle.spec.ranges import Range
from tests.helpers.commands import call

VALUES = ["nan", "inf", "-inf", "-1", "-0.5", "1e300", "1" + "0" * 400]


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands, without the groups that they are in."""
    if parts := getattr(command, "commands", None):
        for name, part in parts.items():
            yield from leaves(part, (*words, name))
    else:
        yield words, command


def numeric_options() -> Iterator[Any]:
    for words, command in leaves(typer.main.get_command(app)):
        hints = typing.get_type_hints(inspect.unwrap(command.callback))
        for param in command.params:
            kinds = {hints.get(param.name), *typing.get_args(hints.get(param.name))}
            if kinds & {int, float}:
                yield pytest.param(words, param, float in kinds, id=" ".join((*words, param.opts[0])))


@pytest.mark.parametrize(("words", "param", "real"), [*numeric_options()])
def test_an_option_takes_only_numbers_in_its_range(words, param, real, capsys):
    name = max(param.opts, key=len)
    if param.multiple or param.nargs != 1:
        pytest.skip("a list of numbers is checked by its command")
    allowed = Range(param.metavar)
    for value in VALUES if real else [value for value in VALUES if value.lstrip("-").isdecimal()]:
        assert (float(value) if real else int(value)) not in allowed
        assert call(*words, f"{name}={value}") == 2
        said = capsys.readouterr().err
        assert f"{name} must be in {allowed.text}, got " in said or "Missing" in said, said
        assert "Traceback" not in said
