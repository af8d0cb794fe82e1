"""Folders of tokens appear under their name only when they are whole, and are never overwritten."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def whole_or_nothing(output: Path) -> Iterator[Path]:
    """A folder to fill that takes the name `output` when all went well, and is gone when not."""
    temporary = output.parent / f".{output.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for path in temporary.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        temporary.rename(output)
    except OSError as error:
        raise HeddleError(
            f"{output} cannot be written.",
            f"{error.strerror or error}.",
            "Choose a folder that does not exist yet, on a disk with free space.",
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
