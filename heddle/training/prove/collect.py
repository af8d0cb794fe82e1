"""Bringing together what the ranks hold pieces of: gradients, or weights, as boxes of the whole model's tensors.

Every rank's boxes are kept, those of replicas too: what is held twice must be equal twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from heddle.parallel.mesh import Mesh
from heddle.parallel.shards import Piece, boxes_of

Array = NDArray[Any]


class ShardBox(NamedTuple):
    """A part of one global tensor, in host memory; NumPy's, so that it travels between processes by value."""

    name: str  # of the global tensor
    shape: tuple[int, ...]  # of the global tensor
    offset: tuple[int, ...]  # where the part starts
    values: Array

    @property
    def place(self) -> tuple[slice, ...]:
        """The part as an index into the whole."""
        return tuple(slice(start, start + size) for start, size in zip(self.offset, self.values.shape, strict=True))


def weights(piece: Piece) -> Tensor | None:
    """What a piece's parameter is worth, in full precision."""
    return piece.master


def gradients(piece: Piece) -> Tensor | None:
    """A piece's gradient; None where it has none."""
    return piece.master.grad


def local_boxes(pieces: Iterable[Piece], values: Callable[[Piece], Tensor | None]) -> Iterator[ShardBox]:
    """This rank's boxes of `weights` or `gradients`, copied; what only pads a vocabulary is left out."""
    for piece in pieces:
        held = values(piece)
        if held is None:
            continue
        for offset, part in boxes_of(piece, held.detach()):
            yield ShardBox(piece.name, tuple(piece.place.shape), offset, part.cpu().numpy().copy())


def gather_boxes(boxes: Iterable[ShardBox], mesh: Mesh) -> list[ShardBox]:
    """On the first rank, the boxes of all ranks; on the others nothing. All ranks call it."""
    own = list(boxes)
    if mesh.world.size == 1:
        return own
    every: list[list[ShardBox]] | None = [[] for _ in mesh.world.ranks] if mesh.world.rank == 0 else None
    dist.gather_object(own, every, dst=mesh.world.ranks[0], group=mesh.host.group)
    return [box for part in every or () for box in part]


def assemble(boxes: Iterable[ShardBox]) -> dict[str, Array]:
    """The whole tensors; elements that no box holds are NaN."""
    whole: dict[str, Array] = {}
    for box in boxes:
        tensor = whole.setdefault(box.name, np.full(box.shape, np.nan, box.values.dtype))
        tensor[box.place] = box.values
    return whole
