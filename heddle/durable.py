"""Files and folders that survive a crash of the process or of the machine: as they were, or as they are to be."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heddle.errors import HeddleError


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


@contextmanager
def whole_or_nothing(output: Path) -> Iterator[Path]:
    """A folder to fill that takes the name `output` when all went well, and is gone when not."""
    temporary = output.parent / f".{output.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for path in (*temporary.iterdir(), temporary):
            sync(path)
        temporary.rename(output)
        sync(output.parent)
    except OSError as error:
        raise HeddleError(
            f"{output} cannot be written.",
            f"{error.strerror or error}.",
            "Choose a folder that does not exist yet, on a disk with free space.",
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
