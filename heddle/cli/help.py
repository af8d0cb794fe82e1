"""`--help` that means what it says: [plan] is a table of a job file not markup of rich's, and a flag has no type."""

from __future__ import annotations

import copy
from typing import Any

from typer.core import TyperCommand, TyperGroup

# Commands by what the user wants, in the order of --help.
START = "Start here"
DECIDE = "Decide: how to split a model, and what it will cost"
TRAIN = "Train, and use what was trained"
LOOK = "Look: what happened, and was the prediction right?"
EXCHANGE = "Exchange: text, tokens and weights"
GRAPHS = "Graphs: pipelines and placements of any network"
KERNELS = "Kernels: code for one core"


class _Literal:
    """What commands and groups of them share."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options; a flag is not followed by a value, so no type stands behind it."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the help of a copy in which brackets are kept from rich."""
        shown = _escaped(self)
        shown.params = [_escaped(param) for param in shown.params]
        if hasattr(shown, "commands"):
            shown.commands = {name: _escaped(command) for name, command in shown.commands.items()}
        super(_Literal, shown).format_help(ctx, formatter)  # type: ignore[misc]


def _escaped(part: Any) -> Any:
    from rich.markup import escape

    made = copy.copy(part)
    made.help = escape(part.help or "")
    return made


class Command(_Literal, TyperCommand):
    """A command."""


class CommandGroup(_Literal, TyperGroup):
    """Commands under one name."""
