"""Bars for the terminal: each part in a letter of its own, so that they are read without color, too."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.text import Text

from heddle.cost.breakdown import ITEMS


def bar(parts: Mapping[str, float], width: int, whole: float | None = None) -> Text:
    """The parts one after the other, `width` columns for the whole; dots are what is left of it.

    Rounding is by running sums, so that a bar is never longer or shorter than its parts together.
    """
    whole = sum(parts.values()) if whole is None else whole
    text, reached, column = Text(no_wrap=True, overflow="ignore"), 0.0, 0
    for name, value in parts.items():
        reached += max(0.0, value)
        end = min(width, math.floor(width * reached / whole + 0.5)) if whole > 0 else 0
        text.append(ITEMS[name].letter * (end - column), ITEMS[name].style)
        column = max(column, end)
    return text.append("." * (width - column), "dim")


def memory_bar(parts: Mapping[str, float], limit: float, width: int, scale: float | None = None) -> Text:
    """What a device holds, up to `scale`, which is its limit if nobody needs more; "|" is where the limit lies."""
    scale = max(limit, sum(parts.values())) if scale is None else scale
    if scale <= limit:
        return bar(parts, width, scale)
    line = bar(parts, width, scale)
    at = min(width - 1, math.floor(width * limit / scale))
    return line[:at] + Text("|", "bold red") + line[at + 1 :]


def memory_scale(most: float, limit: float) -> float:
    """Where bars of memory end: at the limit of a device, unless one is longer or all would be slivers."""
    return max(limit, most) if most >= 0.3 * limit else 1.1 * most


def legend(names: Mapping[str, float]) -> str:
    """Which letter is what, of the parts that there are."""
    return ", ".join(f"{ITEMS[name].letter} {name}" for name, value in names.items() if value > 0)
