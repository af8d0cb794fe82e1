"""Memory that tiles read and write: buffers, views of them, and the rectangles of a buffer that a tile touches."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

_numbers = itertools.count()
HUGE = 2 << 20  # bytes of a huge page
SPARE = 64  # bytes behind every buffer, so that a whole vector may be read at its end


class Rect(NamedTuple):
    """Rows and columns of a buffer, seen as a matrix of its `width`."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass(eq=False)
class Buffer:
    """A stretch of memory: of the arena, of a caller's input or output, or a constant's own."""

    size: int  # numbers
    dtype: torch.dtype
    width: int  # of its rows as tiles cut it
    place: str = "arena"  # or "input", "output", "constant"
    number: int = 0  # of an input or an output
    constant: Tensor | None = field(default=None, repr=False)
    offset: int = 0  # bytes into the arena
    name: int = field(default_factory=lambda: next(_numbers))

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class View:
    """A tensor in a buffer. `meta` has its shape, strides and offset, and its storage stands for the buffer."""

    buffer: Buffer
    meta: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.meta.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.meta.stride())

    @property
    def offset(self) -> int:
        return int(self.meta.storage_offset())

    @property
    def dtype(self) -> torch.dtype:
        return self.meta.dtype

    def then(self, function: Callable[[Tensor], Any]) -> Any:
        """What a function of tensors makes of this, as views; None where it would have to copy."""
        made = function(self.meta)
        parts = made if isinstance(made, tuple | list) else [made]
        storage = self.meta.untyped_storage()._cdata
        if any(part.untyped_storage()._cdata != storage for part in parts):
            return None
        views = [View(self.buffer, part) for part in parts]
        return views if isinstance(made, tuple | list) else views[0]

    def as_matrix(self, rows: int, columns: int) -> View | None:
        """As rows × columns, where it can be without copying."""
        return self.reshaped((rows, columns))

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """In another shape, where it can be without copying."""
        try:
            return View(self.buffer, self.meta.view(tuple(shape)))
        except RuntimeError:
            return None

    def rect(self, begins: Sequence[int], ends: Sequence[int]) -> Rect:
        """The part of the buffer that holds a box of this view; at most a bit more."""
        width = self.buffer.width
        low, rows, columns = self.offset, 0, 0
        for begin, end, stride in zip(begins, ends, self.strides, strict=True):
            if end <= begin:
                return Rect(0, 0, 0, 0)
            low += begin * stride
            if stride % width == 0:
                rows += (end - 1 - begin) * stride // width
            else:
                columns += (end - 1 - begin) * stride
        top, left = divmod(low, width)
        if left + columns >= width:  # goes over the edge: whole rows
            return Rect(top, top + rows + (left + columns) // width + 1, 0, width)
        return Rect(top, top + rows + 1, left, left + columns + 1)

    def whole(self) -> Rect:
        """All of it."""
        return self.rect([0] * len(self.shape), self.shape)


def new(
    shape: Sequence[int], width: int | None = None, like: Tensor | None = None, dtype: torch.dtype = torch.float32
) -> View:
    """A tensor in a buffer of its own: contiguous, or with the order of dims of another one."""
    meta = torch.empty(tuple(shape), device="meta", dtype=dtype)
    if like is not None:
        meta = torch.empty_like(like, dtype=dtype)
    last = [size for size, stride in zip(meta.shape, meta.stride(), strict=True) if stride == 1 and size > 1]
    return View(Buffer(meta.numel(), dtype, width or max(last, default=1)), meta)


def constant(tensor: Tensor) -> View:
    """A tensor that never changes, copied where it is not dense in memory that is ours alone."""
    kept = _roomy(tensor.numel() + SPARE, tensor.dtype)
    kept[: tensor.numel()] = tensor.detach().contiguous().reshape(-1)
    meta = torch.empty(tuple(tensor.shape), device="meta", dtype=tensor.dtype)
    return View(Buffer(tensor.numel(), tensor.dtype, max(tensor.numel(), 1), "constant", constant=kept), meta)


def _roomy(count: int, dtype: torch.dtype) -> Tensor:
    """Memory for weights: in huge pages where they are large, which saves a few percent of looking addresses up."""
    size = count * dtype.itemsize
    if size < HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(count, dtype=dtype)
    raw = torch.empty(size + HUGE, dtype=torch.uint8)
    shift = -raw.data_ptr() % HUGE
    ctypes.CDLL(None).madvise(ctypes.c_void_p(raw.data_ptr() + shift), ctypes.c_size_t(size), mmap.MADV_HUGEPAGE)
    return raw[shift : shift + size].view(dtype)
