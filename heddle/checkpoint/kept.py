"""What replicas keep beside masters and moments, in a checkpoint: it may be each replica's own.

A checkpoint knows no replicas, so what is each one's own lies under names of its own: the first replica's under the
plain name, the others' with their number behind it. Where other replicas read it than wrote it, they share out what
there is. Of what counts as a sum over replicas, none is lost and none is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count, takewhile
from pathlib import Path

import torch
from torch import Tensor

from heddle.checkpoint.checkpoint import load_state
from heddle.checkpoint.index import StoredTensor, read_index
from heddle.checkpoint.storage import Boxes, SafetensorsReader
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.shards import Kept, boxes_of


def kept_state(kept: Iterable[Kept], replica: int) -> dict[str, Boxes]:
    """As boxes of global tensors: of all ranks that have the same, one's."""
    return {
        _name(each, replica): Boxes(tuple(each.piece.place.shape), list(boxes_of(each.piece, each.piece.master)))
        for each in kept
        if each.piece.counted
    }


@torch.no_grad()
def load_kept(checkpoint: Path, kept: Iterable[Kept], replicas: Axis, mesh: Mesh) -> None:
    """Fill it from a checkpoint, whatever plan wrote that; what the checkpoint does not have is zero."""
    index = read_index(checkpoint)
    state: dict[str, Boxes] = {}
    parts: list[tuple[Tensor, list[Tensor]]] = []
    for each in kept:
        values = each.piece.master
        written = _written(each, index)
        if each.summed:
            mine = range(replicas.rank, written, replicas.size)
        else:
            mine = range(replicas.rank % written, written)[:1] if written else range(0)
        found = [torch.zeros_like(values) for _ in mine]
        for replica, part in zip(mine, found, strict=True):
            state[_name(each, replica)] = Boxes(tuple(each.piece.place.shape), list(boxes_of(each.piece, part)))
        parts.append((values, found))
    if kept:
        load_state(SafetensorsReader(checkpoint, index), state, mesh)
    for values, found in parts:
        values.zero_()
        for part in found:
            values.add_(part)


def _written(kept: Kept, index: Mapping[str, StoredTensor]) -> int:
    """By how many replicas."""
    replicas = count() if kept.apart else (0,)
    return len(list(takewhile(lambda replica: _name(kept, replica) in index, replicas)))


def _name(kept: Kept, replica: int) -> str:
    """What a checkpoint calls it."""
    return f"{kept.piece.name}:{kept.kind}" + (f"@{replica}" if kept.apart and replica else "")
