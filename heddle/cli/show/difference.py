"""Predicted beside measured, on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.reporting.subject import Subject


def show_difference(console: Console, subject: Subject) -> None:
    """A table of what was predicted and measured, and which part of a step makes the difference."""
    from rich.table import Table

    from heddle.reporting import difference
    from heddle.reporting.html import percent
    from heddle.reporting.sections import NUMBERS, predicted

    assert subject.measured is not None
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("")
    for heading in ("predicted", "measured", "difference"):
        table.add_column(heading, justify="right")
    for title, key, write in NUMBERS:
        there, here = predicted(subject, key), subject.measured.median(key)
        apart = f"{here / there - 1:+.0%}" if there and here else ""
        if there is not None and here is not None and write is percent:  # per cent of per cent would mislead
            apart = f"{100 * (here - there):+.1f} points"
        table.add_row(title, write(there), write(here), apart)
    console.print(table)
    for line in difference.in_words(subject):
        console.print(line)
