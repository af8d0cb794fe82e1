"""Random numbers that are a pure function of where they are used: layout-free weights and dropout.

A generator that is drawn from in order gives other numbers to other layouts. Here every number is a hash of its
global place instead: a weight's of (seed, parameter name, index), a dropout decision's of (seed, site, sample,
position, feature). Whoever owns an element computes the same value for it, no rank computes what it does not own,
and a recomputed layer drops the same elements without any stored random state.
"""

from __future__ import annotations

import hashlib
from functools import cache

import torch
from torch import Tensor

from heddle.models import fused

LEVELS = 1 << 16  # quantiles of the normal table: weights are drawn from this many values
BLOCK = 1 << 16  # elements hashed at once; keeps the integer temporaries in the cache


def key(*parts: object) -> int:
    """A 63-bit number that names a place, the same on every machine and in every process."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def fill_normal(target: Tensor, name: str, seed: int, std: float, shape: torch.Size, offset: tuple[int, ...]) -> None:
    """Fill a box of a global matrix of `shape` that starts at `offset` with that matrix's normal numbers.

    Of a stack of matrices, the rows of each follow those of the one before.
    """
    if target.dim() > 2:
        for number, matrix in enumerate(target, offset[0]):
            corner = (number * shape[1] + offset[1], *offset[2:])
            fill_normal(matrix, name, seed, std, torch.Size((shape[0] * shape[1], *shape[2:])), corner)
        return
    columns, width = shape[-1], target.shape[-1]
    rows = target.view(-1, width)
    place = torch.arange(width, device=target.device) + offset[-1] + key(seed, name)
    first_row = offset[0] if target.dim() > 1 else 0
    table = _normal_table().to(target.device) * std
    step = max(1, BLOCK // width)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        row = torch.arange(first_row + start, first_row + start + len(block), device=target.device)
        bits = _mix64(row[:, None] * columns + place)
        block.copy_(table.index_select(0, (bits & (LEVELS - 1)).flatten()).view_as(block))


def token_keys(seed: int, samples: Tensor, sequence: int) -> Tensor:
    """One 32-bit key for every token of a microbatch, flattened: what its dropout depends on."""
    position = torch.arange(sequence, device=samples.device)
    return _mix64((samples[:, None] << 20) + position + key(seed, "dropout")).to(torch.int32).flatten()


def site(name: str) -> int:
    """A number of 31 bits that tells the dropouts of a model apart."""
    return key(name) & 0x7FFFFFFF


def dropout(x: Tensor, p: float, site: Tensor | int, tokens: Tensor) -> Tensor:
    """Drop features of each token with probability p; `site` is which of the model's dropouts this is."""
    feature = torch.arange(x.shape[-1], dtype=torch.int32, device=x.device)
    hashed, threshold, scale = _mix32(feature + site), int(p * 2**32) - 2**31, 1 / (1 - p)
    if x.is_contiguous() and tokens.is_contiguous() and tokens.dtype == torch.int32 and fused.usable(x):
        return fused.Drop.apply(x, tokens, hashed, threshold, scale)
    keep = _mix32(tokens[:, None] + hashed) >= threshold
    return torch.where(keep, x * scale, 0.0)


@cache
def _normal_table() -> Tensor:
    """Quantiles of the normal distribution.

    A table rather than logarithms and cosines, whose last bit depends on the vector width and the device.
    """
    middle = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    table = torch.special.ndtri(middle).float()
    return table / table.std()


def _mix64(x: Tensor) -> Tensor:
    """The finalizer of splitmix64: every input bit changes every output bit. Torch's int64 wraps, as this needs."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & (2**37 - 1))) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & (2**33 - 1))


def _mix32(x: Tensor) -> Tensor:
    """A 32-bit finalizer in the manner of MurmurHash3, with the shifts made logical by masks."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    x = (x ^ ((x >> 15) & 0x1FFFF)) * -0x7B935975
    return x ^ ((x >> 16) & 0xFFFF)
