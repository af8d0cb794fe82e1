"""What one rank updates: pieces of parameters, each with a full-precision master and a gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from heddle.parallel.mesh import Mesh
from heddle.parallel.parameter_layout import ParameterLayout, place_of


@dataclass(frozen=True)
class Piece:
    """A flat range of one local parameter: all of it, or this replica's share where the optimizer is sharded."""

    name: str  # the parameter's global name
    place: ParameterLayout
    local: torch.Size  # shape of the local parameter
    start: int  # of the range in the flattened local parameter
    master: Tensor  # fp32, changed in place by the optimizer; its `grad` is the gradient
    target: Tensor | None  # the low-precision memory that gets a copy of the master
    decay: bool  # norms and biases are left out of weight decay, as in GPT-2 and all its heirs
    counted: bool  # among the ranks that hold the same numbers, this one adds them to the gradient norm
    source: bool = False  # the parameter is made from the master whenever it is used
    tier: Any = None  # whose memory has the optimizer's state, and where it is updated; None: the device's


def make_piece(
    name: str, parameter: Tensor, start: int, stop: int, mesh: Mesh, sharded: bool, master: Tensor | None = None
) -> Piece:
    """The piece of a local parameter from start to stop; `sharded` says that other replicas hold other ranges.

    Where a master is given, the parameter is made from it rather than updated with it.
    """
    place = place_of(parameter)
    # `.data`: what the optimizer writes is none of autograd's business
    local = parameter.data.view(-1)[start:stop] if master is None else master
    full = local.dtype == torch.float32
    return Piece(
        name=name,
        place=place,
        local=parameter.shape,
        start=start,
        master=local if full else local.float(),
        target=None if full else local,
        decay=parameter.dim() > 1,
        counted=not place.copy and (place.split or mesh.tensor.rank == 0) and (sharded or mesh.data.rank == 0),
        source=master is not None,
    )


@dataclass(frozen=True)
class Kept:
    """What a run keeps of a parameter from one step to the next, beside its master and Adam's moments."""

    piece: Piece  # whose master it is
    kind: str  # what a checkpoint calls it
    apart: bool = False  # each replica has its own
    summed: bool = False  # of these, the sum over replicas counts


def boxes_of(piece: Piece, values: Tensor) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """A flat range of a row-major box, as at most three boxes of the global tensor: (offset, values) pairs.

    Part of a first row, whole rows, part of a last row. Rows that only pad the vocabulary are left out.
    """
    width = piece.local[-1] if len(piece.local) > 1 else 1
    start, stop = piece.start, piece.start + piece.master.numel()
    cuts = sorted({start, min(stop, -(-start // width) * width), max(start, stop // width * width), stop})
    for low, high in pairwise(cuts):
        row, column = divmod(low, width)
        rows, columns = (1, high - low) if high - low < width else ((high - low) // width, width)
        rows = min(rows, piece.place.shape[0] - piece.place.offset[0] - row)
        if rows <= 0:
            continue
        part = values[low - start : low - start + rows * columns]
        if len(piece.local) == 1:
            yield (piece.place.offset[0] + row,), part
        else:
            yield (piece.place.offset[0] + row, piece.place.offset[1] + column), part.view(rows, columns)


class FreeParameters:
    """Parameters in full precision whose gradients are whole as soon as they are there: nobody else adds to them."""

    def __init__(self, parameters: list[tuple[str, nn.Parameter]], mesh: Mesh) -> None:
        self.parameters = [parameter for _, parameter in parameters]
        self.pieces = [make_piece(name, p, 0, p.numel(), mesh, sharded=False) for name, p in parameters]

    def finish(self) -> None:
        """Let the masters see the gradients."""
        for piece, parameter in zip(self.pieces, self.parameters, strict=True):
            piece.master.grad = None if parameter.grad is None else parameter.grad.view(-1).to(piece.master.device)

    def clear(self) -> None:
        """Forget the gradients, memory included."""
        for piece, parameter in zip(self.pieces, self.parameters, strict=True):
            parameter.grad = piece.master.grad = None
