"""Small files that survive a crash of the process or of the machine: as they were, or as they are to be."""

from __future__ import annotations

import os
from pathlib import Path


def write_through(path: Path, text: str) -> None:
    """Write a file, and make sure that it is on disk."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def replace_text(path: Path, text: str) -> None:
    """Give a file new content at once: whoever is killed meanwhile leaves the old one whole."""
    partial = path.with_name(f".{path.name}")
    write_through(partial, text)
    partial.replace(path)


def sync(path: Path) -> None:
    """Make sure that a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
