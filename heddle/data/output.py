"""Folders of tokens are never overwritten, and tell how far they have come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from heddle.errors import HeddleError

# Called with what is being done, and how many bytes of the files are done, of how many.
Progress = Callable[[str, int, int], None]


def refuse_existing(output: Path) -> None:
    """Whatever is there stays."""
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise HeddleError(
            f"{output} exists already.",
            "Prepared tokens are never overwritten: a run may be reading them.",
            "Choose another folder, or delete this one first.",
        )
