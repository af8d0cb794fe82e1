"""Numbers with the unit that suits them."""

from __future__ import annotations


def size(count: float, digits: int = 1) -> str:
    """Bytes: 1536 is "1.5 KiB"."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.{digits}f} {units[0]}"


def memory_unit(most: float) -> tuple[str, float]:
    """The unit for a column of bytes, and its size: GiB, or MiB where they would be a small fraction of one."""
    return ("GiB", 2.0**30) if most >= 0.1 * 2**30 else ("MiB", 2.0**20)
