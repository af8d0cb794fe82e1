"""Opening a safetensors file, which the library would do with anything of that name: a pipe, too, and then wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import safe_open

from heddle.files import refuse_pipes


def open_tensors(path: Path) -> Any:
    """The file, for a `with`. The library says what is damaged; what is missing is a FileNotFoundError."""
    refuse_pipes(path, "tensors")
    return safe_open(path, "pt")
