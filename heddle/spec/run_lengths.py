"""Lists with one entry for each layer or chunk, written as people say them: "full x 79" is 79 times "full".

Any list of numbers or of known words may be written so, in whole or in part: `[15, "16 x 6", 15]`. Lists of free text,
such as file names, may not: there "a x 2" is a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from heddle.errors import HeddleError

RUN = re.compile(r"\s*(\S+)\s+x\s+(-?\d+)\s*")
SHORTEST = 3  # two of a kind are as quickly read one by one
MOST = 100_000  # entries: far more layers than any model has


def expanded(items: Sequence[Any], where: str) -> Iterator[tuple[Any, str]]:
    """Each entry, and where it stands: runs entry by entry."""
    for place, item in enumerate(items):
        here = f"{where}[{place}]"
        run = RUN.fullmatch(item) if isinstance(item, str) else None
        if run is None:
            yield item, here
            continue
        value, count = run[1], int(run[2])
        if not 1 <= count <= MOST:
            raise HeddleError(
                f"{here} = {item!r} repeats {value} {count} times.",
                f"An item can repeat 1 to {MOST:,} times.",
                f'For example "{value} x 4".',
            )
        number = number_of(value)
        for _ in range(count):
            yield number, here


def number_of(word: str) -> int | float | str:
    """A word as the number that it is, if it is one."""
    if re.fullmatch(r"[+-]?\d+", word):
        return int(word)
    return float(word) if re.fullmatch(r"[+-]?(\d+\.\d*|\d*\.?\d+e[+-]?\d+|\d+\.\d+e[+-]?\d+)", word) else word


def as_runs(items: Sequence[Any]) -> list[Any]:
    """The same list with what repeats written once; reading it returns the same entries."""
    short: list[Any] = []
    for value, group in groupby(items):
        count = len(list(group))
        short += [f"{value} x {count}"] if count >= SHORTEST and not isinstance(value, list | dict) else [value] * count
    return short
