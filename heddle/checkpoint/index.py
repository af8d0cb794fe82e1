"""The index of a checkpoint: which box of which global tensor lies where, in JSON."""

from __future__ import annotations

import dataclasses
import heapq
import json
import math
import os
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch

from heddle.durable import write_through
from heddle.errors import HeddleError
from heddle.spec.tables import read_json

INDEX = "index.json"
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64", torch.int64: "I64"}
DTYPE_OF = {name: dtype for dtype, name in DTYPES.items()}

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """Where a box lies on disk."""

    file: str
    key: str
    offset: Shape
    shape: Shape

    @property
    def end(self) -> Shape:
        """The corner opposite to `offset`."""
        return tuple(start + length for start, length in zip(self.offset, self.shape, strict=True))


@dataclass(frozen=True)
class StoredTensor:
    """A global tensor on disk."""

    dtype: str
    shape: Shape
    boxes: tuple[Stored, ...]


BOX = {field.name for field in dataclasses.fields(Stored)}


def read_index(folder: Path) -> dict[str, StoredTensor]:
    """What a checkpoint holds, by global name: every number of every tensor in one box, and in one only.

    File names that lead out of the folder are refused.
    """
    table = read_json(folder / INDEX, "the index of a checkpoint")
    index = {name: _stored(folder, name, entry) for name, entry in table.items()}
    there = {path.name for path in folder.iterdir()}
    for name in sorted({box.file for tensor in index.values() for box in tensor.boxes}):
        # what is not there leads nowhere, and an index may name millions of files
        if not is_plain(name) or (name in there and not lies_in(folder, name)):
            raise HeddleError(
                f"{folder / INDEX} names the file {name!r}.",
                "The files of a checkpoint are in its own folder.",
                "Do not load this checkpoint; somebody has tampered with it.",
            )
    for name, tensor in index.items():
        problem = (
            f"is of {tensor.dtype}, not of {', '.join(DTYPE_OF)}"
            if tensor.dtype not in DTYPE_OF
            else not_a_cover(tensor)
        )
        if problem is not None:
            raise HeddleError(
                f"{folder / INDEX} is damaged.",
                f"{name}, {_size(tensor.shape)}, {problem}.",
                "Use another checkpoint.",
            )
    _refuse_shared(folder, index)
    return index


def _refuse_shared(folder: Path, index: Mapping[str, StoredTensor]) -> None:
    """No two boxes lie in the same place: what was saved once would be read as two tensors."""
    owners: dict[tuple[str, str], str] = {}
    for name, tensor in index.items():
        for box in tensor.boxes:
            other = owners.setdefault((box.file, box.key), name)
            if other != name:
                raise HeddleError(
                    f"{folder / INDEX} is damaged.",
                    f"{other} and {name} both lie under the key {box.key!r} of {box.file}.",
                    "Use another checkpoint, or copy this one again.",
                )


def not_a_cover(tensor: StoredTensor) -> str | None:
    """Why a tensor's boxes do not hold each of its numbers exactly once; None if they do."""
    for box in tensor.boxes:
        if not len(box.offset) == len(box.shape) == len(tensor.shape):
            return f"has a box of {len(box.shape)} dims at one of {len(box.offset)}"
        if not all(box.shape):
            return f"has an empty box at {list(box.offset)}"
        if any(end > size for end, size in zip(box.end, tensor.shape, strict=True)):
            return f"has a box from {list(box.offset)} to {list(box.end)}, which lies outside"
    held = sum(math.prod(box.shape) for box in tensor.boxes)
    if held != math.prod(tensor.shape):  # what no box holds would never be read
        return f"has boxes for {held} of its {math.prod(tensor.shape)} numbers"
    return _overlap(tensor.boxes) if len(tensor.boxes) > 1 else None


def _overlap(boxes: Iterable[Stored]) -> str | None:
    """Two boxes that have a number in common, by a sweep over the rows: a checkpoint may have a million boxes.

    `active` are the boxes that the present row crosses, in the order of their columns.
    """
    active: list[tuple[Shape, Shape]] = []
    ending: list[tuple[int, tuple[Shape, Shape]]] = []
    for box in sorted(boxes, key=lambda each: each.offset):
        while ending and ending[0][0] <= box.offset[0]:
            active.pop(bisect_left(active, heapq.heappop(ending)[1]))
        columns = (box.offset[1:], box.end[1:])
        at = bisect_left(active, columns)
        # of one or two dims only neighbors can overlap; of more, any two
        near = active[max(0, at - 1) : at + 1] if len(box.shape) <= 2 else active
        for other in near:
            if all(a < d and c < b for a, b, c, d in zip(*columns, *other, strict=True)):
                return f"has two boxes that overlap at {list(box.offset)}"
        insort(active, columns)
        heapq.heappush(ending, (box.end[0], columns))
    return None


def check_shapes(folder: Path, held: Mapping[str, Shape], wanted: Mapping[str, Shape]) -> None:
    """Refuse tensors of another model, naming the first three differences: what is missing, misshapen or left over."""
    wrong = sorted(name for name in held.keys() | wanted if held.get(name) != wanted.get(name))
    if wrong:
        shown = "; ".join(f"{name} is {_size(held.get(name))}, wanted {_size(wanted.get(name))}" for name in wrong[:3])
        raise HeddleError(
            f"{folder} belongs to another model.", f"{shown} ({len(wrong)} differ).", "Fix [model], or the path."
        )


def _size(shape: Shape | None) -> str:
    return "not there" if shape is None else " × ".join(map(str, shape)) or "a single number"


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
        f"Its entry for {name} is not the location of a tensor.",
        "Use another checkpoint, or copy this one again.",
    )


def lies_in(folder: Path, name: str) -> bool:
    """Whether a name that an index gives is that of a file in the folder: no path, and no link that leads away."""
    # realpath, because resolve raises where links lead round in a circle
    return is_plain(name) and Path(os.path.realpath(folder / name)).parent == Path(os.path.realpath(folder))


def is_plain(name: str) -> bool:
    """Whether it is the name of a file, rather than a path, or nothing that a file can be called."""
    return "\0" not in name and name not in ("", "..") and Path(name).name == name


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
