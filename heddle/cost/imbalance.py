"""How uneven the work of ranks is that share experts: the slowest of a distribution, drawn rather than approximated.

Tokens do not choose experts evenly, whatever the router's losses. All ranks of a group wait for the one whose experts
were chosen most.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log, sqrt

import numpy as np

from heddle.schedule.rule import Column

DRAWS = 500


@lru_cache(maxsize=256)
def largest_shares(experts: int, ranks: int, spread: float, layers: int = 1) -> np.ndarray:
    """What the fullest of so many ranks has over the mean, each with its part of the experts, drawn so often.

    The use of experts is log-normal, and differs from layer to layer: what a rank has in several is a mean of theirs.
    Drawn, because a formula for the largest of many sums is up to a third off.
    """
    sigma, size = sqrt(log(1 + spread**2)), (DRAWS, layers, ranks, experts // ranks)
    used = np.random.default_rng(0).lognormal(-(sigma**2) / 2, sigma, size).mean(axis=3)
    shares = (used / used.mean(axis=2, keepdims=True)).mean(axis=1)
    return np.asarray(shares.max(axis=1))


def slowest_of(experts: int, ranks: int, spread: float) -> float:
    """Mean of the largest share that any of so many ranks has, over the mean of all."""
    if ranks <= 1 or experts < ranks or not spread:
        return 1.0
    return float(largest_shares(experts, ranks, spread).mean())


def chance_above(share: float, experts: int, ranks: int, spread: float, layers: int) -> float:
    """How probable it is that some rank has more than that share, over all of its layers."""
    if ranks <= 1 or experts < ranks or not spread:
        return float(share < 1)
    return float((largest_shares(experts, ranks, spread, layers) > share).mean())


def spread_of(uses: Sequence[float]) -> float:
    """How much the use of experts differs, relative to its mean: of the tokens that each had."""
    tokens = np.asarray(uses, dtype=float)
    return float(tokens.std() / tokens.mean()) if tokens.any() else 0.0


def slowest_share(experts: Column, ranks: Column, spread: float) -> Column:
    """The slowest of many plans."""
    if not np.any(np.greater(ranks, 1)):
        return 1.0
    if not np.ndim(experts) and not np.ndim(ranks):
        return slowest_of(int(experts), int(ranks), spread)
    pairs = np.stack(np.broadcast_arrays(experts, ranks)).astype(np.int64).reshape(2, -1)
    known, place = np.unique(pairs, axis=1, return_inverse=True)
    found = np.array([slowest_of(count, group, spread) for count, group in known.T.tolist()])
    return np.asarray(found[place.ravel()].reshape(np.broadcast_shapes(np.shape(experts), np.shape(ranks))))
