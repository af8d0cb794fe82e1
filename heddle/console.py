"""The terminal: what Heddle prints is plain text, whoever wrote the words in it.

Rich reads "[bold]" as a style and ":warning:" as a picture, also in the name of a run or a key of somebody's file, and
leaves out what it takes for a style. So no string is markup here; styles are given beside the words.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text


def plain_console(**options: Any) -> Console:
    """A console that prints strings as they are. Heddle makes no other."""
    return Console(highlight=False, markup=False, emoji=False, **options)


def styled(*parts: str | tuple[str, str]) -> Text:
    """Words, some of them with a style: pairs of both, between plain ones."""
    return Text.assemble(*parts)
