"""The one kind of error a user sees: what is wrong, why, and the nearest thing that works."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable


class HeddleError(Exception):
    """A mistake the user can fix, in three parts.

    Args:
        what: what is wrong, in one sentence that names the value.
        why: the rule it breaks.
        hint: the nearest thing that works.
    """

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        self.what, self.why, self.hint = what, why, hint
        super().__init__("\n".join(part for part in (what, why, hint) if part))


def shorten(value: object) -> str:
    """A value for a message, not a page of it."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}…"


def how_to_install(extra: str) -> str:
    """The command that brings what an extra names. Not by name from an index: `heddle` is another project's there."""
    return f"in your checkout of heddle-train, pip install '.[{extra}]'"


def nearest(word: str, known: Iterable[str]) -> str:
    """Name what the user probably meant: "Did you mean 'layers'? Known: …"."""
    options = sorted(known)
    # What is known may come from a file of any size: 1,600 characters fill a dozen lines.
    room = itertools.accumulate(len(option[:40]) + 2 for option in options[:60])
    shown = sum(used <= 1600 for used in room)
    more = f" and {len(options) - shown:,} more" if len(options) > shown else ""
    listed = f"Known: {', '.join(option[:40] for option in options[:shown])}{more}."
    close = closest(word, options)
    return listed if close is None else f"Did you mean '{close}'? {listed}"


def closest(word: str, known: Iterable[str]) -> str | None:
    """The one of some words that the user probably meant; None where none is like it."""
    word, compared = word[:100], sorted(known)[:10_000]  # which are compared in half a second
    # 'h100' is a part of 'dgx-h100', though it is spelt more like 'gh200'.
    parts = [option for option in compared if len(word) > 2 and word.lower() in option.lower()]
    close = difflib.get_close_matches(word, parts, n=1, cutoff=0) or difflib.get_close_matches(word, compared, n=1)
    return close[0] if close else None


def divisors(n: int, limit: int | None = None) -> list[int]:
    """All positive divisors of n, ascending, up to limit: the degrees that can split n."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    every = sorted({*small, *(n // d for d in small)})
    return [d for d in every if limit is None or d <= limit]


def nearest_number(value: int, options: Iterable[int]) -> int:
    """The option closest to value, the smaller of two equally close."""
    return min(options, key=lambda option: (abs(option - value), option))


def listing(numbers: Iterable[object]) -> str:
    """'1, 2, 3 and 6' for error messages."""
    words = [str(n) for n in numbers]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
