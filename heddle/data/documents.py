"""Documents of their own lengths, of whose tokens some are learned, and the samples that are made of them.

A sample has one length for every plan. It holds one document, or several that do not see each other; what is left is
padding, from which nothing is learned. A document of n tokens takes n - 1 places: each but the last is read, each but
the first is a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heddle.data.mixture import SourceTurns
from heddle.data.packing import packed
from heddle.data.sampler import Order, Samples
from heddle.errors import HeddleError
from heddle.spec.model import IGNORE

Array = NDArray[Any]


@dataclass(frozen=True)
class Documents:
    """Tokens of documents one after the other, which of them are learned, and how long each document is."""

    tokens: Array
    learned: Array  # 1 where a token is learned
    lengths: Array
    end: int  # also what pads
    pack: bool = False
    pairs: bool = False  # two by two: what is preferred, and what is not

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each document begins."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths, dtype=np.int64)])

    def samples(self, sequence: int, seed: int) -> DocumentSamples:
        """What is trained on."""
        return DocumentSamples(self, sequence, seed)


@dataclass(frozen=True)
class MixedDocuments:
    """Several sources of documents, and how much each counts."""

    parts: tuple[Documents, ...]
    weights: tuple[float, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def samples(self, sequence: int, seed: int) -> MixedSamples:
        """What is trained on: of the sources that have any."""
        return MixedSamples([part.samples(sequence, seed) for part in self.parts], self.weights)


Trained = Array | Documents | MixedDocuments  # what tokens a run learns from


class Usable(NamedTuple):
    """What documents give for some length of samples."""

    documents: NDArray[np.int64]  # that are used
    places: NDArray[np.int64]  # that each of them takes
    targets: NDArray[np.int64]  # that each of them has
    cut: int  # documents that are longer than a sample
    lost: int  # documents of which nothing to learn is left


def usable(documents: Documents, sequence: int) -> Usable:
    """The documents with something to learn in their first tokens, as many as a sample takes.

    Of a pair, both or neither: a sample holds both, and where it cannot, half of it is for each.
    """
    lengths = np.asarray(documents.lengths, np.int64)
    kept = np.minimum(lengths, sequence + 1)
    if documents.pairs:
        both = (lengths - 1).reshape(-1, 2).sum(1)
        kept = np.where(np.repeat(both, 2) > sequence, np.minimum(lengths, sequence // 2 + 1), lengths)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(documents.learned, dtype=np.int64)])
    first = np.minimum(documents.starts[:-1] + 1, len(documents.tokens))  # the first token is never a target
    last = np.maximum(documents.starts[:-1] + kept, first)
    targets = before[last] - before[first]
    used = np.flatnonzero(np.repeat((targets > 0).reshape(-1, 2).all(1), 2) if documents.pairs else targets > 0)
    cut = int((lengths[used] > kept[used]).sum())
    return Usable(used, kept[used] - 1, targets[used], cut, len(lengths) - len(used))


class DocumentSamples:
    """Samples of documents, in an order of its own in every epoch; numbers run on without end."""

    def __init__(self, documents: Documents, sequence: int, seed: int) -> None:
        self.source, self.sequence = documents, sequence
        self.usable = found = usable(documents, sequence)
        if not len(found.documents):
            raise HeddleError(
                "There is no document with anything to learn.",
                f"Of {len(documents.lengths):,} documents none has a token that is learned among its first "
                f"{sequence + 1:,}.",
                "Use a longer train.sequence, or other data; `heddle data look` shows what is learned.",
            )
        self.together = 2 if documents.pairs else 1  # documents that are always in one sample
        places = found.places.reshape(-1, self.together).sum(1)
        if documents.pack:
            self.members, self.first = packed(places, sequence)
        else:
            self.members = self.first = np.arange(len(places))
        self.count = len(self.first)  # samples an epoch
        self.ends = np.append(self.first[1:], len(self.members))
        # what the loss is a mean of: tokens that are learned, or pairs
        counted = np.ones_like(places) if documents.pairs else found.targets
        self.targets_of = np.add.reduceat(counted[self.members], self.first).astype(np.int64)
        self.order = Order(self.count, seed)

    @property
    def fill(self) -> float:
        """The share of the places that hold documents rather than padding."""
        return float(self.usable.places.sum()) / (self.count * self.sequence)

    @property
    def learned(self) -> float:
        """The share of the places whose next token is learned."""
        return float(self.usable.targets.sum()) / (self.count * self.sequence)

    def targets(self, first: int, count: int) -> int:
        """How many targets, or pairs, some samples have together; every rank knows, whoever reads them."""
        return int(self.targets_of[self.order.of(np.arange(first, first + count))].sum())

    def batch_of(self, numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets of the samples with these numbers, one per row; what is not learned is IGNORE."""
        rows = self.order.of(numbers)
        ids = np.full((len(rows), self.sequence), self.source.end, np.int64)
        targets = np.full((len(rows), self.sequence), IGNORE, np.int64)
        for row, sample in enumerate(rows):
            at = 0
            for member in self._documents(sample):
                places, start = int(self.usable.places[member]), int(self.source.starts[self.usable.documents[member]])
                tokens = np.asarray(self.source.tokens[start : start + places + 1], np.int64)
                learned = np.asarray(self.source.learned[start + 1 : start + places + 1], bool)
                ids[row, at : at + places] = tokens[:-1]
                targets[row, at : at + places] = np.where(learned, tokens[1:], IGNORE)
                at += places
        return ids, targets

    def _documents(self, sample: int) -> NDArray[np.int64]:
        """The documents of a sample, by their places among those that are used."""
        members = self.members[self.first[sample] : self.ends[sample]]
        return (members[:, None] * self.together + np.arange(self.together)).ravel()

    @property
    def several(self) -> bool:
        """Whether samples hold more than one document."""
        return self.source.pack or self.source.pairs

    def lengths_of(self, numbers: ArrayLike) -> list[list[int]]:
        """How many places each document of these samples takes, in order; the rest is padding.

        Empty where each has one: what pads its end comes after everything that is learned, and is seen by none of it.
        """
        if not self.several:
            return []
        rows = self.order.of(numbers)
        return [[int(self.usable.places[member]) for member in self._documents(row)] for row in rows]

    def batch(self, first: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets of `count` samples from number `first` on."""
        return self.batch_of(np.arange(first, first + count))


class MixedSamples:
    """Samples of several sources, by their weights."""

    def __init__(self, parts: Sequence[DocumentSamples], weights: Sequence[float]) -> None:
        self.parts, self.turns = parts, SourceTurns(weights)
        self.sequence = parts[0].sequence
        # an epoch ends when the source that is used up last has been seen once
        rounds = max(part.count / share for part, share in zip(parts, self.turns.shares, strict=True))
        self.count = max(1, round(rounds * self.turns.period))

    @property
    def fill(self) -> float:
        """The share of the places that hold documents, over a period."""
        return self._mean([part.fill for part in self.parts])

    @property
    def learned(self) -> float:
        """The share of the places whose next token is learned, over a period."""
        return self._mean([part.learned for part in self.parts])

    def _mean(self, values: Sequence[float]) -> float:
        shares = self.turns.shares
        return sum(value * share for value, share in zip(values, shares, strict=True)) / self.turns.period

    def epochs(self, samples: int) -> list[float]:
        """How often each source has been gone through after so many samples."""
        return [count / part.count for count, part in zip(self.turns.counts(samples), self.parts, strict=True)]

    def targets(self, first: int, count: int) -> int:
        """How many targets some samples have together."""
        source, number = self.turns.of(np.arange(first, first + count))
        found = 0
        for index, part in enumerate(self.parts):
            found += int(part.targets_of[part.order.of(number[source == index])].sum())
        return found

    def batch_of(self, numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets of the samples with these numbers, one per row."""
        source, number = self.turns.of(np.asarray(numbers, np.int64).ravel())
        ids = np.empty((len(source), self.sequence), np.int64)
        targets = np.empty_like(ids)
        for index, part in enumerate(self.parts):
            own = source == index
            if own.any():
                ids[own], targets[own] = part.batch_of(number[own])
        return ids, targets

    def lengths_of(self, numbers: ArrayLike) -> list[list[int]]:
        """The same of a mixture."""
        if not any(part.several for part in self.parts):
            return []
        source, number = self.turns.of(np.asarray(numbers, np.int64).ravel())
        return [self.parts[s].lengths_of([n])[0] for s, n in zip(source, number, strict=True)]

    def batch(self, first: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets of `count` samples from number `first` on."""
        return self.batch_of(np.arange(first, first + count))


AnySamples = Samples | DocumentSamples | MixedSamples


def samples_of(trained: Trained, sequence: int, seed: int) -> AnySamples:
    """The samples of whatever is learned from."""
    if isinstance(trained, Documents | MixedDocuments):
        return trained.samples(sequence, seed)
    return Samples(trained, sequence, seed)


def has_samples(trained: Trained, sequence: int) -> bool:
    """Whether there is a single one."""
    if isinstance(trained, MixedDocuments):
        return bool(trained.parts) and all(has_samples(part, sequence) for part in trained.parts)
    if isinstance(trained, Documents):
        return len(usable(trained, sequence).documents) > 0
    return len(trained) > sequence
