"""Numbers sent in fewer bits: the codes by name, and what a message in them weighs; `heddle.parallel.codecs` makes it.

Codes of 8 and 4 bits are whole numbers times a scale; so many neighbors share one.
"""

from __future__ import annotations

from typing import Any, Literal

GradientCode = Literal["none", "bf16", "int8", "int4"]
ActivationCode = Literal["none", "bf16", "int8"]

BLOCK = 128  # numbers that share a scale
SCALE = 4  # bytes of it
BITS = {"bf16": 16, "int8": 8, "int4": 4}


def code_bytes(code: str, count: int) -> int:
    """Bytes of a message of so many numbers: exact, whole blocks."""
    if code == "bf16":
        return 2 * count
    blocks = -(-count // BLOCK)
    return blocks * (BLOCK * BITS[code] // 8 + SCALE)


def bytes_per_number(code: str, exact: Any) -> Any:
    """The same per number of a long message; `exact` where nothing is coded."""
    if code == "none":
        return exact
    return BITS[code] / 8 + (0 if code == "bf16" else SCALE / BLOCK)
