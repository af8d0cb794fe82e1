"""Which tokens of a sample each rank of the context axis holds.

A token attends to all before it, so that the last of n equal slices would have 2 - 1/n times the mean work. A sample is
cut into 2n blocks instead, and rank r takes the r-th from the front and the r-th from the end ("zigzag"): together they
see as much as any other pair. (The Llama 3 Herd of Models, arXiv 2407.21783 §3.3.2.)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class TokenBlock(NamedTuple):
    """Successive tokens of a sample, and where they lie among those that a rank holds."""

    start: int  # in the sample
    stop: int
    at: int  # locally


def blocks(sequence: int, rank: int, size: int) -> tuple[TokenBlock, ...]:
    """What a rank holds, in the order in which it holds it."""
    if size == 1:
        return (TokenBlock(0, sequence, 0),)
    length = sequence // (2 * size)
    return tuple(
        TokenBlock(number * length, (number + 1) * length, at * length)
        for at, number in enumerate((rank, 2 * size - 1 - rank))
    )


def in_order(slices: Tensor, dim: int) -> Tensor:
    """All tokens of a sample along `dim`, from what the ranks hold, [ranks, …]; `dim` counts without the ranks."""
    halves = slices.unflatten(dim + 1, (2, -1))
    first, last = halves.unbind(dim + 1)
    return torch.cat((first, last.flip(0))).movedim(0, dim).flatten(dim, dim + 1)


def as_held(whole: Tensor, dim: int, size: int) -> Tensor:
    """The other way: what each rank holds of all tokens along `dim`, [ranks, …]."""
    parts = whole.unflatten(dim, (2 * size, -1)).movedim(dim, 0)
    return torch.cat((parts[:size], parts[size:].flip(0)), dim=dim + 1)
