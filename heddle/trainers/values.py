"""Numbers and tables of other trainers' files: of the right kind, or an error that names them."""

from __future__ import annotations

from typing import Any

from heddle.errors import HeddleError, shorten

LARGEST = 10**15  # beyond it lies no setting of a trainer
AUTO = "auto"  # what DeepSpeed's files leave to the script


def whole(table: dict[str, Any], name: str, usual: int | None = None, where: str = "", least: int = 0) -> int | None:
    """A whole number; `usual` where there is none."""
    value = table.get(name)
    if value is None or value == AUTO:
        return usual
    if type(value) not in (int, float) or not least <= value <= LARGEST or value != int(value):
        raise _wrong(where + name, value, f"a whole number of at least {least}", max(least, usual or 8))
    return int(value)


def real(table: dict[str, Any], name: str, where: str = "") -> float | None:
    """Any number; None where there is none."""
    value = table.get(name)
    if value is None or value == AUTO:
        return None
    if type(value) not in (int, float) or not abs(value) <= LARGEST:
        raise _wrong(where + name, value, "a number", 0.1)
    return float(value)


def subtable(table: dict[str, Any], name: str, where: str = "") -> dict[str, Any]:
    """A table in a table; an empty one where there is none."""
    value = table.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise HeddleError(
            f"{where}{name} = {shorten(value)} is not a table.",
            "The trainer reads settings by name from it.",
            f"Write them in {name}, or leave it out.",
        )
    return value


def check_chunks(chunks: int, layers: int) -> None:
    """Refuse more chunks than layers before a list is made of them."""
    if chunks > max(layers, 1):
        raise HeddleError(
            f"A pipeline of {chunks:,} chunks has {layers:,} layers to share.",
            "Every chunk holds at least one.",
            f"Use at most {max(layers, 1):,} chunks: ranks, times chunks of each rank.",
        )


def _wrong(name: str, value: object, expected: str, example: float) -> HeddleError:
    return HeddleError(
        f"{name} = {shorten(value)} is not {expected}.",
        "The trainer would refuse it, too.",
        f"For example {name.rpartition('.')[2]} = {example}.",
    )
