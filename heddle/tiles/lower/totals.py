"""Sums, maxima and variances in terms of others that have kernels: those along the last dim, and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _total(
    mean: bool, x: Tensor, dims: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """A sum over dims of which the last is none, as a product with ones: rows of memory are read as they lie."""
    places = sorted(dim % x.dim() for dim in dims or ())
    images = mean and x.dim() == 4 and places == [2, 3]  # which is a kernel of its own
    if not places or x.dim() - 1 in places or images or dtype is not None or x.dtype != torch.float32:
        return NotImplemented
    before, behind = range(places[0]), [dim for dim in range(places[0], x.dim()) if dim not in places]
    count = math.prod(x.shape[dim] for dim in places)
    if not count or not x.numel():
        return NotImplemented
    sides = [math.prod(x.shape[dim] for dim in part) for part in (before, behind)]
    matrix = x.permute([*before, *places, *behind]).reshape(sides[0], count, sides[1])
    ones = torch.full((sides[0], 1, count), 1 / count if mean else 1.0)
    shape = [1 if dim in places else size for dim, size in enumerate(x.shape) if keepdim or dim not in places]
    return torch.bmm(ones, matrix).reshape(shape)


def _most(x: Tensor, dims: Sequence[int] = (), keepdim: bool = False) -> Any:
    """The largest along dims that are not the last alone: they are moved there."""
    places = sorted(dim % x.dim() for dim in dims)
    if not places or places == [x.dim() - 1] or not x.numel():
        return NotImplemented
    others = [dim for dim in range(x.dim()) if dim not in places]
    rows = x.permute([*others, *places]).reshape([*(x.shape[dim] for dim in others), -1])
    shape = [1 if dim in places else size for dim, size in enumerate(x.shape) if keepdim or dim not in places]
    return rows.amax(-1).reshape(shape)


def _var(x: Tensor, dim: Sequence[int] | None, unbiased: bool = True, keepdim: bool = False) -> Any:
    return _variance(x, dim, correction=float(unbiased), keepdim=keepdim)


def _variance(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    if not dim or not x.is_floating_point():
        return NotImplemented
    count = math.prod(x.shape[each] for each in dim)
    dims = list(dim)
    off = x - x.mean(dims, keepdim=True)
    return (off * off).sum(dims, keepdim=keepdim) / (count - (1.0 if correction is None else correction))


def _deviation(variance: Callable[..., Any], *given: Any, **named: Any) -> Any:
    found = variance(*given, **named)
    return found if found is NotImplemented else found.sqrt()


def _vector_norm(
    x: Tensor, order: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    if order != 2 or not dim or dtype is not None:
        return NotImplemented
    return (x * x).sum(list(dim), keepdim=keepdim).sqrt()


def totals() -> dict[Any, Callable[..., Any]]:
    """For each operator, what it is in terms of others; NotImplemented where it stays."""
    return {
        aten.sum.dim_IntList: partial(_total, False),
        aten.mean.dim: partial(_total, True),
        aten.amax.default: _most,
        aten.var.dim: _var,
        aten.var.correction: _variance,
        aten.std.dim: partial(_deviation, _var),
        aten.std.correction: partial(_deviation, _variance),
        aten.linalg_vector_norm.default: _vector_norm,
    }
