"""Numbers with the unit that suits them: bytes, seconds, rates. Nothing else in Heddle picks a unit."""

from __future__ import annotations

import math
from collections.abc import Iterable

MIB, GIB = 2**20, 2**30
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_SI = ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def size(count: float, digits: int = 1) -> str:
    """Bytes: 1536 is "1.5 KiB"."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.{digits}f} {units[0]}"


def memory_unit(most: float) -> tuple[str, float]:
    """The unit for a column of bytes, and its size: GiB, or MiB where they would be a small fraction of one."""
    return ("GiB", float(GIB)) if most >= 0.1 * GIB else ("MiB", float(MIB))


def short(number: float, digits: int = 4) -> str:
    """A large number in few digits: 1234567 is "1.235M"."""
    shown = abs(float(f"{number:.{digits}g}"))  # 999,999 is "1M"
    for step, unit in _SI:
        if shown >= step:
            return f"{number / step:.{digits}g}{unit}"
    return f"{number:.{digits}g}"


def figures(number: float, digits: int = 4) -> str:
    """A number with that many significant digits, zeros at its end included, for columns: "5.790" below "5.841"."""
    whole = math.floor(math.log10(abs(number))) + 1 if number else 1
    return f"{number:.{max(0, digits - whole)}f}"


def short_figures(number: float, digits: int = 4) -> str:
    """The same of a large number: 58000 is "58.00k"."""
    step, unit = next((each for each in _SI if abs(number) >= each[0]), (1.0, ""))
    return figures(number / step, digits) + unit


def tokens_in_words(count: float) -> str:
    """Tokens as papers count them: 3e11 is "300B"."""
    return short(count).replace("G", "B")


def duration(seconds: float) -> str:
    """How long something takes, for people: "34.1 days", "2.07 hours", "12 s"."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            count = seconds / size
            return f"{count:,.0f} {unit}" if count >= 1000 else f"{count:.3g} {unit}"
    return seconds_in_words(seconds)


NOTHING = 5e-10  # seconds: less is the rounding of a sum


def signed_seconds(seconds: float) -> str:
    """Seconds in a unit that suits them, with a sign: three digits, never an exponent; next to nothing is "0 s"."""
    length = abs(seconds)
    if length < NOTHING:
        return "0 s"
    shown = float(f"{length:.3g}")  # 999.9 ms is a second
    scale, unit = next((each for each in _SECONDS if shown >= each[0]), _SECONDS[-1])
    count = length / scale
    digits = f"{count:,.0f}" if shown / scale >= 1000 else f"{count:.3g}"
    return f"{'-' if seconds < 0 else '+'}{digits if 'e' not in digits else f'{count:.4f}'} {unit}"


def length_in_words(took: float, expected: float) -> str:
    """How much longer one time is than another: "35 % longer", and from twice on "3.37 times as long"."""
    ratio = took / expected
    if ratio >= 2:
        return f"{figures(ratio, 3)} times as long"
    if ratio <= 0.5:
        return f"{figures(1 / ratio, 3)} times as fast"
    return f"{abs(ratio - 1):.0%} {'longer' if ratio > 1 else 'shorter'}"


def seconds_in_words(seconds: float) -> str:
    """The same without one."""
    return signed_seconds(seconds).removeprefix("+")


def runs_of(numbers: Iterable[int], dash: str = "-") -> list[str]:
    """Ascending numbers in few words: 0, 1, 2, 3 and 7 are "0-3" and "7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}{dash}{run[-1]}" for run in runs]
