"""Numbers on the command line: an option says in which range its number lies, as a field of a job file does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from heddle.spec.ranges import Range

COUNT = "[1, 1e9]"
COUNT_OR_ZERO = "[0, 1e9]"
POSITIVE = "(0, 1e9]"


def ranged(*names: str, within: str, **settings: Any) -> Any:
    """A `typer.Option` whose number must lie in a range; `--help` and the manual show it."""
    return typer.Option(*names, metavar=within, callback=_checked(Range(within)), **settings)


def _checked(allowed: Range) -> Callable[[typer.CallbackParam, Any], Any]:
    def check(param: typer.CallbackParam, value: Any) -> Any:
        if value is not None:
            allowed.check(max(param.opts, key=len), value)
        return value

    return check
