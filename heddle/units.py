"""Numbers with the unit that suits them."""

from __future__ import annotations


def size(count: float, digits: int = 1) -> str:
    """Bytes: 1536 is "1.5 KiB"."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.{digits}f} {units[0]}"
