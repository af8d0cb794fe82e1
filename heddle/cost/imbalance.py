"""How uneven the work of ranks is that share experts: the slowest of a distribution, drawn rather than approximated.

Tokens do not choose experts evenly, whatever the router's losses. All ranks of a group wait for the one whose experts
were chosen most.
"""

from __future__ import annotations

from functools import lru_cache
from math import log, sqrt

import numpy as np

from heddle.schedule.rule import Column

# How much the use of experts differs from one to the next, relative to its mean: with a balance loss the most used of
# 64 had 1.72 and 1.52 times the mean's tokens (arXiv 2408.15664 Table 2, MaxVio), which is a spread of 0.18 to 0.25.
SPREAD = 0.2
DRAWS = 500


@lru_cache(maxsize=256)
def slowest_of(experts: int, ranks: int) -> float:
    """Mean of the largest share that any of so many ranks has, each with its part of the experts, over the mean.

    The use of experts is log-normal. Drawn, because a formula for the largest of many sums is up to a third off.
    """
    if ranks <= 1 or experts < ranks:
        return 1.0
    sigma = sqrt(log(1 + SPREAD**2))
    used = np.random.default_rng(0).lognormal(-(sigma**2) / 2, sigma, (DRAWS, ranks, experts // ranks)).sum(axis=2)
    return float((used.max(axis=1) / used.mean(axis=1)).mean())


def slowest_share(experts: Column, ranks: Column) -> Column:
    """The same for many plans."""
    if not np.any(np.greater(ranks, 1)):
        return 1.0
    if not np.ndim(experts) and not np.ndim(ranks):
        return slowest_of(int(experts), int(ranks))
    pairs = np.stack(np.broadcast_arrays(experts, ranks)).astype(np.int64).reshape(2, -1)
    known, place = np.unique(pairs, axis=1, return_inverse=True)
    found = np.array([slowest_of(*map(int, pair)) for pair in known.T])
    return np.asarray(found[place.ravel()].reshape(np.broadcast_shapes(np.shape(experts), np.shape(ranks))))
