"""The numbers a field may have. A range stands with its field: `dropout: Annotated[float, Range("[0, 1)")]`.

One reader checks them all (`read.build` for files, `check_ranges` for objects made in Python, `cli.ranged` for the
command line), and the manual's tables show the same text. Whole numbers have an upper end, too: beyond it lies no
cluster and no model, only a typing error that would take hours or all memory to find out.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any

from heddle.errors import HeddleError


@dataclass(frozen=True)
class Range:
    """An interval such as "[0, 1)", "(0, 1e9]" or "[0, ∞)"; NaN lies in none, and infinity in none of ours."""

    text: str
    why: str = ""
    hint: str = ""

    @cached_property
    def low(self) -> float:
        return _number(self.text[1:-1].split(",")[0])

    @cached_property
    def high(self) -> float:
        return _number(self.text[1:-1].split(",")[1])

    def __contains__(self, value: float) -> bool:
        above = self.low <= value if self.text[0] == "[" else self.low < value
        below = value <= self.high if self.text[-1] == "]" else value < self.high
        return above and below and abs(value) <= sys.float_info.max  # a whole number may be too large for a float

    def check(self, where: str, value: float) -> None:
        """Refuse what lies outside, naming the nearest number that does not."""
        if value not in self:
            raise HeddleError(
                f"{where} must be in {self.text}, got {_shown(value)}.", self.why, self.hint or self._nearest(value)
            )

    def _nearest(self, value: float) -> str:
        if value != value or abs(self.high if value > self.low else self.low) == math.inf:
            return "It must be a finite number."
        if value > self.low:
            return f"The largest that works is {self.high:g}." if self.text[-1] == "]" else f"Go below {self.high:g}."
        return f"The smallest that works is {self.low:g}." if self.text[0] == "[" else f"Go above {self.low:g}."


FINITE = Range("(-∞, ∞)")  # of a number that has no range of its own

REACHED = Range(
    "(0, 1]",
    "It is the fraction of the stated number that real work reaches.",
    "If more than the stated number was measured, state the measured one, with an efficiency of 1.",
)
Count = Annotated[int, Range("[1, 1e9]")]
CountOrZero = Annotated[int, Range("[0, 1e9]")]
Machines = Annotated[int, Range("[1, 1e6]")]
Degree = Annotated[int, Range("[1, 1e6]", "1 means not split.")]
Depth = Annotated[int, Range("[0, 64]", "Every layer fetched ahead takes memory.")]
Seed = Annotated[int, Range("[0, 2^63)")]
Positive = Annotated[float, Range("(0, 1e9]")]
Amount = Annotated[float, Range("[0, 1e9]")]
NonNegative = Annotated[float, Range("[0, ∞)")]
Share = Annotated[float, Range("[0, 1]")]
ShareBelowOne = Annotated[float, Range("[0, 1)")]
ShareReached = Annotated[float, REACHED]


def check_ranges(value: Any, where: str) -> None:
    """Check the numbers of a dataclass that was made in Python; `where` is its table in a file."""
    for name, allowed in ranges_of(value.__class__).items():
        held = getattr(value, name)
        for each in dict.fromkeys(held) if isinstance(held, tuple) else (held,):
            if isinstance(each, int | float):
                allowed.check(f"{where}.{name}", each)


@cache
def ranges_of(cls: type) -> dict[str, Range]:
    """The fields of a dataclass that have a range."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found = ((field.name, next(_ranges_in(hints[field.name]), None)) for field in dataclasses.fields(cls))
    return {name: allowed for name, allowed in found if allowed is not None}


def _ranges_in(hint: Any) -> Iterator[Range]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        yield from (each for each in arguments[1:] if isinstance(each, Range))
    elif origin in (typing.Union, types.UnionType, tuple):
        for argument in arguments:
            yield from _ranges_in(argument)


def _number(text: str) -> float:
    base, _, power = text.strip().replace("∞", "inf").partition("^")
    return float(float(base) ** float(power or 1))


def _shown(value: float) -> str:
    """A number as it was given; one of very many digits, by how many."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return f"{'-' * (value < 0)}10^{int((abs(value).bit_length() - 1) * math.log10(2))} or so"
    return str(value)
