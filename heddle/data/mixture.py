"""Samples of several sources by weight: which source sample number n comes from is computed, not drawn.

At every step each source has had its share of the samples, to within one (Tijdeman, "The chairman assignment problem",
1980). Weights are kept as fractions, so the order repeats, and one period of it is all there is to know: any sample
number is found without the ones before it, whichever rank asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from heddle.errors import HeddleError

LONGEST = 1 << 17  # samples in a period


class SourceTurns:
    """The order in which sources take turns."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.shares = whole_shares(weights)
        self.period = sum(self.shares)
        self.source = _order(self.shares)
        # how many samples of its own source came before each, within the period
        before = np.empty(self.period, np.int64)
        for number in range(len(self.shares)):
            own = self.source == number
            before[own] = np.arange(int(own.sum()))
        self.before = before

    def of(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The source of each sample number, and its number among the samples of that source."""
        period, place = np.divmod(numbers, self.period)
        source = self.source[place]
        return source, period * np.asarray(self.shares)[source] + self.before[place]

    def counts(self, samples: int) -> list[int]:
        """How many of the first so many samples each source gives."""
        period, rest = divmod(samples, self.period)
        partly = np.bincount(self.source[:rest], minlength=len(self.shares))
        return [period * share + int(extra) for share, extra in zip(self.shares, partly, strict=True)]


def whole_shares(weights: Sequence[float]) -> tuple[int, ...]:
    """Weights as the smallest whole numbers in the same proportion, exactly as they are written."""
    exact = [Fraction(str(weight)) for weight in weights]
    common = math.lcm(*(each.denominator for each in exact))
    whole = [int(each * common) for each in exact]
    divisor = math.gcd(*whole)
    shares = tuple(each // divisor for each in whole)
    if sum(shares) > LONGEST:
        raise HeddleError(
            f"The weights {', '.join(map(str, weights))} have no small common measure.",
            f"Their order would repeat after {sum(shares):,} samples only; {LONGEST:,} is the most.",
            "Round them to three digits.",
        )
    return shares


def _order(shares: Sequence[int]) -> NDArray[np.int64]:
    """Who is next: of those that are due a sample by now, the one whose next is overdue first."""
    total, given = sum(shares), [0] * len(shares)
    slack = max(1, 2 * len(shares) - 2)  # one over this is Tijdeman's
    order = np.empty(total, np.int64)
    for number in range(total):
        best, late, rate = -1, 0, 1
        for source, share in enumerate(shares):
            # its share after this sample, less what it was given, must be at least the slack
            if slack * ((number + 1) * share - given[source] * total) >= total:
                deadline = slack * (given[source] + 1) - 1  # over its share
                if best < 0 or deadline * rate < late * share:
                    best, late, rate = source, deadline, share
        order[number] = best
        given[best] += 1
    return order
