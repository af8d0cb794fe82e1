"""Opening a safetensors file: on disk, or in an object store where the folder says that its tensors are there.

On disk the library would open anything of that name: a pipe, too, and then wait.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import safe_open

from heddle.checkpoint.remote import RemoteTensors, remote_file
from heddle.files import refuse_pipes


def open_tensors(path: Path) -> Any:
    """The file, for a `with`. The library says what is damaged; what is missing is a FileNotFoundError."""
    if (remote := remote_file(path)) is not None:
        return RemoteTensors(*remote)
    refuse_pipes(path, "tensors")
    return safe_open(path, "pt")


def header_of(path: Path) -> bytes:
    """The header of a safetensors file, with its length in front."""
    if (remote := remote_file(path)) is not None:
        return RemoteTensors(*remote).head
    with path.open("rb") as file:
        length = file.read(8)
        return length + file.read(int.from_bytes(length, "little"))
