"""Tensor-parallel products in chunks of the tokens: one chunk is multiplied while the next is on its way.

A product that waits for all tokens, or whose sum waits for all of it, leaves the links idle while it is made, and the
device while they carry. In chunks both work at once, but for the first chunk that comes or the last that goes
(asynchronous tensor parallelism; arXiv 2305.06942 §4 and 2406.06858). A chunk has the same rows of every rank's slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from heddle.parallel.collectives import Handle, start_all_reduce, start_gather, start_reduce_scatter
from heddle.parallel.mesh import Axis


def gathered_products(x: Tensor, weights: Sequence[Tensor], axis: Axis, chunks: int) -> list[Tensor]:
    """What each weight makes of all tokens, of which `x` is this rank's slice."""
    parts = x.chunk(chunks)
    made = [x.new_empty(axis.size, len(x), len(weight)) for weight in weights]
    coming: list[Handle] = [start_gather(parts[0], axis)]
    for number, rows in enumerate(_ranges(parts)):
        if number + 1 < len(parts):
            coming.append(start_gather(parts[number + 1], axis))
        everybody = coming[number].wait().view(axis.size, -1, x.shape[1])
        for y, weight in zip(made, weights, strict=True):
            _multiply(everybody, weight, y[:, rows])
    return [y.view(-1, y.shape[-1]) for y in made]


def summed_product(x: Tensor, weight: Tensor, axis: Axis, sequence: bool, chunks: int) -> Tensor:
    """The sum of what every rank makes of its slice of the inputs: of all tokens, or of this rank's slice of them."""
    if not sequence:
        parts = x.chunk(chunks)
        made = x.new_empty(len(x), len(weight))
        sums = []
        for part, rows in zip(parts, _ranges(parts), strict=True):
            torch.mm(part, weight.t(), out=made[rows])
            sums.append(start_all_reduce(made[rows], axis))
        for summing in sums:
            summing.wait()
        return made
    slices = x.view(axis.size, -1, x.shape[1])  # of each rank
    sums = []
    for rows in _ranges(slices[0].chunk(chunks)):
        part = slices[:, rows]
        y = x.new_empty(*part.shape[:2], len(weight))
        _multiply(part, weight, y)
        sums.append(start_reduce_scatter(y.view(-1, len(weight)), axis))
    return torch.cat([summing.wait() for summing in sums])


def _multiply(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """Every rank's rows by the same weight, in one kernel: their results lie apart."""
    torch.bmm(x, weight.t().expand(len(x), -1, -1), out=out)


def _ranges(parts: Sequence[Tensor]) -> Iterator[slice]:
    """Which rows each part has."""
    at = 0
    for part in parts:
        yield slice(at, at + len(part))
        at += len(part)
