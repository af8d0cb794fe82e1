"""What one rank updates: pieces of parameters, each with a full-precision master and a gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from operator import add
from typing import Any

import torch
from torch import Tensor, nn

from heddle.models.nf4 import NF4Rows, rows_of
from heddle.parallel.mesh import Mesh
from heddle.parallel.ownership import is_counted
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
    nf4: NF4Rows | None = None  # of a frozen matrix in four bits: which columns its bytes are


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
        counted=is_counted(place, mesh, sharded),
        source=master is not None,
    )


def landed(piece: Piece, gradient: Tensor) -> Tensor:
    """A gradient where the master lives; from a GPU it is on its way until the tier says that all has arrived."""
    if piece.tier is None or gradient.device == piece.master.device:
        return gradient.to(piece.master.device)
    received: Tensor = piece.tier.receive(piece.master, gradient)
    return received


def frozen_piece(name: str, parameter: Tensor, start: int = 0, values: Tensor | None = None) -> Piece:
    """A parameter that nobody updates, or this replica's share of it: filled in its own precision, never counted."""
    held = parameter.data.view(-1) if values is None else values
    return Piece(
        name=name,
        place=place_of(parameter),
        nf4=rows_of(parameter),
        local=parameter.shape,
        start=start,
        master=held,
        target=None,
        decay=False,
        counted=False,
    )


@dataclass(frozen=True)
class Kept:
    """What a run keeps of a parameter from one step to the next, beside its master and Adam's moments."""

    piece: Piece  # whose master it is
    kind: str  # what a checkpoint calls it
    apart: bool = False  # each replica has its own
    summed: bool = False  # of these, the sum over replicas counts


def boxes_of(piece: Piece, values: Tensor) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """A flat range of a row-major box, as boxes of the global tensor: (offset, values) pairs.

    What only pads the global tensor, such as rows beyond the vocabulary, is left out.
    """
    taken = 0
    for corner, size in _cut(tuple(piece.local), piece.start, piece.start + piece.master.numel()):
        part = values[taken : taken + prod(size)].view(size)
        taken += part.numel()
        offset = tuple(map(add, piece.place.offset, corner))
        real = tuple(slice(max(0, end - start)) for start, end in zip(offset, piece.place.shape, strict=True))
        if (part := part[real]).numel():
            yield offset, part


def _cut(shape: tuple[int, ...], low: int, high: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The flat range from low to high of a row-major box, in order, as few boxes: their corners and sizes.

    Part of a first row, whole rows, part of a last row; a row of more than one dimension is cut in turn.
    """
    if len(shape) == 1:
        yield (low,), (high - low,)
        return
    width = prod(shape[1:])
    cuts = sorted({low, min(high, -(-low // width) * width), max(low, high // width * width), high})
    for start, stop in pairwise(cuts):
        row, inner = divmod(start, width)
        if inner == 0 and (stop - start) % width == 0:
            yield (row, *[0] * (len(shape) - 1)), ((stop - start) // width, *shape[1:])
        else:
            for corner, size in _cut(shape[1:], inner, inner + stop - start):
                yield (row, *corner), (1, *size)


class FreeParameters:
    """Parameters in full precision whose gradients are whole as soon as they are there: nobody else adds to them."""

    def __init__(self, parameters: list[tuple[str, nn.Parameter]], mesh: Mesh) -> None:
        self.parameters = [parameter for _, parameter in parameters]
        self.pieces = [make_piece(name, p, 0, p.numel(), mesh, sharded=False) for name, p in parameters]

    def finish(self) -> None:
        """Let the masters see the gradients."""
        for piece, parameter in zip(self.pieces, self.parameters, strict=True):
            piece.master.grad = None if parameter.grad is None else landed(piece, parameter.grad.view(-1))

    def clear(self) -> None:
        """Forget the gradients, memory included."""
        for piece, parameter in zip(self.pieces, self.parameters, strict=True):
            parameter.grad = piece.master.grad = None
