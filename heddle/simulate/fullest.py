"""The fullest moment of a stage: what it holds after each action of its schedule, and for a moment during it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from heddle.schedule import Kind


class StagePeak(NamedTuple):
    """What a stage holds at its fullest moment, and of gradients what backwards have made by then."""

    activations: float
    briefly: float
    made: float


class ActionBytes(NamedTuple):
    """Bytes of each action, by its place among all chunks' actions of each kind: the same for all stages."""

    chunks: int
    change: np.ndarray  # of what is held
    back: np.ndarray  # whether it is a way back
    moment: np.ndarray  # what it holds for a moment
    made: np.ndarray  # gradients that a first one makes
    lately: np.ndarray  # what that one holds when it ends
    makes: bool

    @classmethod
    def of(cls, held: Sequence[tuple[float, float, float, float, float]]) -> ActionBytes:
        saved, moments, made, lately, owed = map(np.array, zip(*held, strict=True))
        nothing = np.zeros(len(saved))

        def each(of_kind: Callable[[Kind], np.ndarray]) -> np.ndarray:
            return np.concatenate([of_kind(kind) for kind in Kind])

        return cls(
            chunks=len(saved),
            change=each(lambda kind: kind.holds * saved + kind.owes * owed),
            back=each(lambda kind: nothing + (kind.direction < 0)) > 0,
            moment=each(lambda kind: moments if kind.direction < 0 else nothing),
            made=each(lambda kind: made if kind.gradients else nothing),
            lately=each(lambda kind: lately if kind.gradients else nothing),
            makes=bool(made.any()),
        )


def fullest_moment(order: np.ndarray, of: ActionBytes, sent: float, steady: int) -> StagePeak:
    """The fullest moment of a stage; `order`: what it does, as places among all chunks' actions of each kind.

    What was sent to the next stage lives until the first answer from there; from then on `steady` messages do.
    """
    change = of.change[order]
    held = change.cumsum()
    sends = sent * (order < of.chunks - 1)
    reached = sends.cumsum()
    answered = np.maximum.accumulate(np.where(of.back[order], np.arange(len(order)), -1))  # the last backward so far
    before = reached - sends
    sending = np.where(answered < 0, before, before - reached[answered] + steady * sent)
    # A backward holds most when it begins, or where it leaves more than it found, when it ends; a chunk's first one may
    # when it ends, with the gradients it has made.
    briefly = sending + of.moment[order]
    activations = np.maximum(held - change, held)
    if not of.makes:
        index = int(np.argmax(activations + briefly))
        return StagePeak(float(activations[index]), float(briefly[index]), 0.0)
    first, makes = np.zeros(len(order)), of.made[order]
    adds = np.flatnonzero(makes)
    at = adds[np.unique(order[adds] % of.chunks, return_index=True)[1]]
    first[at] = makes[at]
    grown = np.cumsum(first)
    ending = sending + of.lately[order]
    moment = np.array([activations, briefly, grown - first])
    later = np.where(first > 0, np.array([held, ending, grown]), 0.0)
    totals = np.stack([moment.sum(axis=0), later.sum(axis=0)], axis=1)
    index, which = divmod(int(np.argmax(totals)), 2)
    return StagePeak(*map(float, (moment, later)[which][:, index]))
