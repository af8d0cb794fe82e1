"""Numbers with the unit that suits them: bytes, seconds, rates. Nothing else in Heddle picks a unit."""

from __future__ import annotations

MIB, GIB = 2**20, 2**30
_SI = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


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
    for step, unit in _SI:
        if abs(number) >= step:
            return f"{number / step:.{digits}g}{unit}"
    return f"{number:.{digits}g}"


def signed_seconds(seconds: float) -> str:
    """Seconds in a unit that suits them, with a sign."""
    length = abs(seconds)
    if length >= 1:
        return f"{seconds:+.3g} s"
    return f"{1e3 * seconds:+.3g} ms" if length >= 1e-3 else f"{1e6 * seconds:+.3g} µs"


def seconds_in_words(seconds: float) -> str:
    """The same without one."""
    return signed_seconds(seconds).removeprefix("+")
