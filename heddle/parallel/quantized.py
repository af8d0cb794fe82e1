"""Frozen matrices in four bits, spread over ranks: slices of the whole matrix's blocks, filled row by row."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from heddle.models.nf4 import NF4Rows, rows_of, with_rows
from heddle.parallel.parameter_layout import ParameterLayout, set_place, split_parameter
from heddle.parallel.shards import Piece

AT_ONCE = 1 << 24  # numbers that are read at a time

# Fills a box of a weight, given its global shape and where the box is.
Read = Callable[..., None]


def split_matrix(weight: Tensor, dim: int, rank: int, size: int) -> nn.Parameter:
    """Slice `rank` of `size` along `dim`: of plain numbers, or of one in four bits, whose blocks a cut may go through.

    A rank then has the scale of a block of which it has a part.
    """
    whole = rows_of(weight)
    if whole is None:
        return split_parameter(weight, dim, rank, size)
    rows, columns = (-(-n // size) if dim == place else n for place, n in enumerate((len(weight), whole.columns)))
    offset = (rank * rows, 0) if dim == 0 else (0, rank * columns)
    layout = NF4Rows(offset[1], columns)
    local = with_rows(weight.new_empty(rows, layout.bytes), layout)
    set_place(local, ParameterLayout(torch.Size((len(weight), whole.columns)), offset, split=frozenset({"tensor"})))
    return local


@torch.no_grad()
def fill_quantized(piece: Piece, read: Read) -> None:
    """Quantize what this rank holds of a matrix: whole blocks are read, also where it holds a part of them."""
    layout, width, shape = piece.nf4, piece.local[1], piece.place.shape
    assert layout is not None
    if isinstance(piece.master, FakeTensor):
        return  # a dry run: it has a shape, and no memory to fill
    low, high = layout.begin, layout.end(shape[1])
    start, stop = piece.start, piece.start + piece.master.numel()  # bytes: a share of the rows may begin anywhere
    step = max(1, AT_ONCE // (high - low))
    for row in range(start // width, -(-stop // width), step):
        count = min(step, -(-stop // width) - row)
        values = torch.empty(count, high - low)
        read(values, shape=shape, offset=(piece.place.offset[0] + row, low))
        packed = layout.pack(values.to(piece.master.device)).view(-1)
        begin, end = max(start, row * width), min(stop, (row + count) * width)
        piece.master[begin - start : end - start].copy_(packed[begin - row * width : end - row * width])


def rounded_box(shape: torch.Size, offset: tuple[int, ...], values: Tensor, read: Read) -> None:
    """Fill a box of a matrix with its numbers as they come back from four bits."""
    layout = NF4Rows(offset[1], values.shape[1])
    low = layout.begin
    whole = torch.empty(len(values), layout.end(shape[1]) - low)
    read(whole, shape=shape, offset=(offset[0], low))
    values.copy_(layout.numbers(layout.pack(whole), torch.float32))
