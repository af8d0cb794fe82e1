"""The index of a checkpoint: which box of which global tensor lies where, in JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch

from heddle.errors import HeddleError
from heddle.spec.read import read_json
from heddle.train.files import write_through

INDEX = "index.json"
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64", torch.int64: "I64"}
DTYPE_OF = {name: dtype for dtype, name in DTYPES.items()}


@dataclass(frozen=True)
class Stored:
    """Where a box lies on disk."""

    file: str
    key: str
    offset: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class StoredTensor:
    """A global tensor on disk."""

    dtype: str
    shape: tuple[int, ...]
    boxes: tuple[Stored, ...]


BOX = {field.name for field in dataclasses.fields(Stored)}


def read_index(folder: Path) -> dict[str, StoredTensor]:
    """What a checkpoint holds, by global name; file names that lead out of the folder are refused."""
    table = read_json(folder / INDEX, "the index of a checkpoint")
    index = {name: _stored(folder, name, entry) for name, entry in table.items()}
    for name in sorted({box.file for tensor in index.values() for box in tensor.boxes}):
        if not lies_in(folder, name):
            raise HeddleError(
                f"{folder / INDEX} names the file {name!r}.",
                "The files of a checkpoint lie in its own folder.",
                "Do not load this checkpoint; somebody has tampered with it.",
            )
    for name, tensor in index.items():
        held = sum(math.prod(box.shape) for box in tensor.boxes)
        if tensor.dtype not in DTYPE_OF or held != math.prod(tensor.shape):  # what no box holds would never be read
            raise HeddleError(
                f"{folder / INDEX} is damaged.",
                f"It places {held} of the {math.prod(tensor.shape)} numbers of {name}, a tensor of {tensor.dtype}.",
                "Take another checkpoint, or copy this one again.",
            )
    return index


def _stored(folder: Path, name: str, entry: object) -> StoredTensor:
    """An entry of the index: there may be a million boxes, so this is quicker than it is general."""
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "boxes": [*boxes]}:
            whole = [box for box in boxes if isinstance(box, dict) and box.keys() == BOX]
            places = [
                (box["offset"], box["shape"])
                for box in whole
                if type(box["offset"]) is type(box["shape"]) is list and type(box["file"]) is type(box["key"]) is str
            ]
            numbers = chain(shape, *chain.from_iterable(places))
            if len(places) == len(boxes) and all(type(number) is int and number >= 0 for number in numbers):
                stored = (Stored(b["file"], b["key"], tuple(b["offset"]), tuple(b["shape"])) for b in boxes)
                return StoredTensor(dtype, tuple(shape), tuple(stored))
    raise HeddleError(
        f"{folder / INDEX} is damaged.",
        f"What it says of {name} is no tensor's place.",
        "Take another checkpoint, or copy this one again.",
    )


def lies_in(folder: Path, name: str) -> bool:
    """Whether a name that an index gives is that of a file in the folder: no path, and no link that leads away."""
    return Path(name).name == name and (folder / name).resolve().parent == folder.resolve()


def joined(parts: Iterable[dict[str, StoredTensor]]) -> dict[str, StoredTensor]:
    """The index of a whole checkpoint from those of its ranks' files."""
    tensors: dict[str, list[StoredTensor]] = {}
    for name, tensor in chain.from_iterable(part.items() for part in parts):
        tensors.setdefault(name, []).append(tensor)
    return {
        name: StoredTensor(each[0].dtype, each[0].shape, tuple(box for tensor in each for box in tensor.boxes))
        for name, each in tensors.items()
    }


def write_index(folder: Path, index: dict[str, StoredTensor]) -> None:
    """Write what a checkpoint holds, and make sure that it is on disk."""
    table = {
        name: {"dtype": tensor.dtype, "shape": tensor.shape, "boxes": [vars(box) for box in tensor.boxes]}
        for name, tensor in index.items()
    }
    write_through(folder / INDEX, json.dumps(table))
