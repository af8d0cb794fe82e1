"""Which tokens a training sample holds: a shuffle that is computed, not stored.

Sample number i is a pure function of (seed, i). So a run has one number to save, the next sample's, and which
rank reads which samples changes nothing about them: every layout sees the same data in the same order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heddle.errors import HeddleError

ROUNDS = 8  # four are enough in theory (Luby and Rackoff, 1988); small domains gain from more

Words = NDArray[np.uint64]


def _mix(x: Words) -> Words:
    """Spread every bit of 64 over all of them (the finalizer of SplitMix64: Steele, Lea and Flood, 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def shuffled(places: Words, n: int, keys: Words) -> Words:
    """Where each of `places` in 0…n-1 goes in the permutation that its key stands for.

    A Feistel network on pairs (left, right) = divmod(place, width), with addition modulo a side for xor, so
    that sides need not be powers of two (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
    Each round can be undone, so the whole permutes 0…height×width-1, which is n or hardly more. A place that
    lands beyond n is sent on until it lands within: that shortens cycles, and leaves a permutation of 0…n-1.
    """
    width = np.uint64(math.isqrt(n - 1) + 1)
    height = np.uint64(-(-n // int(width)))
    out, away = places.copy(), np.arange(len(places))
    while len(away):
        (left, right), key = np.divmod(out[away], width), keys[away]
        for _ in range(ROUNDS // 2):
            key = _mix(key)
            left = (left + _mix(key ^ right) % height) % height
            key = _mix(key)
            right = (right + _mix(key ^ left) % width) % width
        out[away] = left * width + right
        away = away[out[away] >= n]
    return out


class Order:
    """An order of `count` samples for each epoch; sample numbers run on from epoch to epoch without end."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self._key = _mix(np.array([seed & (1 << 64) - 1], np.uint64))

    def of(self, numbers: ArrayLike) -> NDArray[np.int64]:
        """Which sample, of 0…count-1, each number is."""
        epoch, place = np.divmod(np.asarray(numbers, np.int64).ravel(), self.count)
        keys = _mix(self._key ^ _mix(epoch.astype(np.uint64)))
        return shuffled(place.astype(np.uint64), self.count, keys).astype(np.int64)


class Samples:
    """Windows of `sequence` + 1 tokens: inputs, and the same one step later as targets.

    Windows touch but do not overlap: the last target of one is the first input of the next. An epoch visits
    each once, in an order of its own; sample numbers run on from epoch to epoch without end.

    Args:
        tokens: the tokens of the corpus, usually mapped from a file.
        sequence: tokens per sample.
        seed: of the order.
    """

    def __init__(self, tokens: NDArray[Any], sequence: int, seed: int) -> None:
        if len(tokens) < sequence + 1:
            raise HeddleError(
                f"{len(tokens):,} tokens are too few for one sample of {sequence:,}.",
                f"A sample needs {sequence + 1:,} tokens: {sequence:,} to read, and the one after the last.",
                f"Use train.sequence = {len(tokens) - 1} or less, or more text."
                if len(tokens) > 1
                else "Use more text; for evaluation, a larger data.validation.",
            )
        self.tokens, self.sequence = tokens, sequence
        self.count = (len(tokens) - 1) // sequence  # samples an epoch
        self.order = Order(self.count, seed)

    def window_of(self, numbers: ArrayLike) -> NDArray[np.int64]:
        """The window of each sample number."""
        return self.order.of(numbers)

    def targets(self, first: int, count: int) -> None:  # noqa: ARG002
        """None: every token of every sample is one."""
        return

    def batch_of(self, numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets of the samples with these numbers, one per row."""
        starts = self.window_of(numbers) * self.sequence
        rows = np.empty((len(starts), self.sequence + 1), np.int64)
        for row, start in zip(rows, starts, strict=True):
            row[:] = self.tokens[start : start + self.sequence + 1]
        return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])

    def lengths_of(self, numbers: ArrayLike) -> list[list[int]]:  # noqa: ARG002
        """How long the documents of each of these samples are, where these do not see each other: none, every window is
        one document.
        """
        return []

    def batch(self, first: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets of `count` samples from number `first` on."""
        return self.batch_of(np.arange(first, first + count))
