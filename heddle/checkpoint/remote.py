"""A safetensors file in an object store, of which only what is asked for is read.

A folder whose tensors lie in a store has the file `remote.txt`, with the URL of the folder there. Everything else about
the checkpoint is in the folder itself, so whoever reads checkpoints need not know where their tensors are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from heddle.checkpoint.index import DTYPE_OF
from heddle.checkpoint.object_store import ObjectStore
from heddle.files import read_text

REMOTE = "remote.txt"
FIRST = 1 << 20  # bytes that are read first; most headers are shorter
LONGEST = 1 << 30  # bytes of a header: a million tensors take a tenth of it


def remote_file(path: Path) -> tuple[ObjectStore, str] | None:
    """Where a file of a folder lies in a store; None if it is, or should be, in the folder itself."""
    note = path.parent / REMOTE
    if path.exists() or not note.is_file():
        return None
    return ObjectStore(read_text(note, "the URL of a checkpoint's tensors").strip()), path.name


class RemoteTensors:
    """What Heddle uses of `safetensors.safe_open`, over an object store."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self.store, self.name = store, name

    def __enter__(self) -> Self:
        self._check_length()
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    @cached_property
    def head(self) -> bytes:
        """The header as it stands there, with its length in front."""
        first = self.store.read(self.name, 0, FIRST) if self._size else b""  # S3 has no range of an empty object
        length = int.from_bytes(first[:8], "little")
        if len(first) < 8 or length > LONGEST:
            raise OSError("It does not begin with the header of a safetensors file")
        rest = self.store.read(self.name, len(first), 8 + length) if 8 + length > len(first) >= FIRST else b""
        found = (first + rest)[: 8 + length]
        if len(found) < 8 + length:
            raise OSError("It ends within its header")
        return found

    @cached_property
    def _size(self) -> int:
        return self.store.size(self.name)

    @cached_property
    def _header(self) -> dict[str, Any]:
        try:
            found = json.loads(self.head[8:])
            for key, entry in found.items():
                if key != "__metadata__":
                    start, end = entry["data_offsets"]
                    size = prod(entry["shape"]) * DTYPE_OF[entry["dtype"]].itemsize
                    if not (start >= 0 and end - start == size):
                        raise ValueError(f"tensor {key} has {end - start} bytes, its shape needs {size}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OSError(f"Its header is not that of a safetensors file: {error}") from None
        return dict(found)

    def _check_length(self) -> None:
        ends = (entry["data_offsets"][1] for key, entry in self._header.items() if key != "__metadata__")
        whole, found = len(self.head) + max(ends, default=0), self._size
        if found != whole:
            raise OSError(f"It has {found} bytes, its header speaks of {whole}")

    def metadata(self) -> dict[str, str]:
        """Notes in the header."""
        return dict(self._header.get("__metadata__") or {})

    def keys(self) -> list[str]:
        """The tensors' names."""
        return [key for key in self._header if key != "__metadata__"]

    def get_slice(self, key: str) -> RemoteTensor:
        """A tensor of which nothing has been read."""
        if key not in self.keys():
            raise OSError(f"It has no tensor {key}")
        entry = self._header[key]
        start = len(self.head) + entry["data_offsets"][0]
        return RemoteTensor(self, entry["dtype"], tuple(entry["shape"]), start)

    def get_tensor(self, key: str) -> Tensor:
        """A whole tensor."""
        return self.get_slice(key)[()]


@dataclass(frozen=True)
class RemoteTensor:
    """One tensor, to be sliced."""

    file: RemoteTensors
    dtype: str
    shape: tuple[int, ...]
    start: int  # of its first byte in the file

    def get_dtype(self) -> str:
        """As safetensors calls it."""
        return self.dtype

    def get_shape(self) -> list[int]:
        """As the header says."""
        return list(self.shape)

    def __getitem__(self, part: tuple[slice, ...]) -> Tensor:
        """Some of it: the rows that are asked for are read in one piece, for in the file they lie in a row."""
        dtype = DTYPE_OF[self.dtype]
        rows = part[0] if part else slice(None)
        first, last, _ = rows.indices(self.shape[0]) if self.shape else (0, 1, 1)
        row = prod(self.shape[1:]) * dtype.itemsize
        begin, end = self.start + first * row, self.start + max(first, last) * row
        content = bytearray(self.file.store.read(self.file.name, begin, end) if end > begin else b"")
        if len(content) != end - begin:
            raise OSError(f"It ends before byte {end}")
        shape = (max(0, last - first), *self.shape[1:]) if self.shape else ()
        values = torch.frombuffer(content, dtype=dtype).view(shape) if content else torch.empty(shape, dtype=dtype)
        return values[(slice(None), *part[1:])] if len(part) > 1 else values
