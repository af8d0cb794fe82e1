"""The fullest moment of a stage: what it holds before each action of its schedule, and most during it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from heddle.schedule import Kind
from heddle.simulating.way_back import ActionPeak


class StagePeak(NamedTuple):
    """What a stage holds at its fullest moment beside what it always does."""

    activations: float
    briefly: float  # gathered weights apart
    made: float  # gradients that backwards have made by then, and sums that are under way
    gathered: float


class ChunkBytes(NamedTuple):
    """Bytes of a chunk: what a microbatch leaves, and the fullest moment of each of its actions.

    Fullest moments are relative to what was held before the action.
    """

    saved: float
    owed: float  # that weight gradients hold where they are put off
    forward: ActionPeak
    back: ActionPeak
    back_first: ActionPeak  # of a step
    halved: ActionPeak  # of a backward that puts its weight gradients off
    weights: float  # of the rest of a backward that was taken in two
    weights_first: float
    made: float  # gradients that a first backward makes
    made_halved: float  # of these, what one makes that puts its weight gradients off
    pending: float  # gradients whose sum is under way after a backward

    def peak(self, kind: Kind, first: bool) -> ActionPeak:
        """Of an action of that kind."""
        if kind.direction > 0:
            return self.forward
        if kind.direction < 0 and kind.owes:
            return self.halved
        if kind.direction < 0:
            return self.back_first if first else self.back
        return ActionPeak(self.weights_first if first else self.weights)


class ActionBytes(NamedTuple):
    """Bytes of each action, by its place among all chunks' actions of each kind: the same for all stages."""

    chunks: int
    change: np.ndarray  # of what is held
    onward: np.ndarray  # whether it is a way on
    later: np.ndarray  # what it holds for a moment
    first: np.ndarray  # the same of a chunk's first, which makes gradients
    gathered: np.ndarray  # of these, weights
    gathered_first: np.ndarray
    made: np.ndarray  # gradients that stay after a first one
    pending: np.ndarray  # gradients whose sum is under way after one

    @classmethod
    def of(cls, held: Sequence[ChunkBytes]) -> ActionBytes:
        distinct = {id(chunk): chunk for chunk in held}  # most are alike
        place = {own: number for number, own in enumerate(distinct)}
        which = np.array([place[id(chunk)] for chunk in held])

        def each(of_kind: Callable[[Kind, ChunkBytes], float]) -> np.ndarray:
            values = np.array([[of_kind(kind, chunk) for chunk in distinct.values()] for kind in Kind])
            return values[:, which].ravel()

        def made(kind: Kind, chunk: ChunkBytes) -> float:
            if kind.direction < 0:
                return chunk.made_halved if kind.owes else chunk.made
            return chunk.made - chunk.made_halved if kind.gradients else 0.0

        return cls(
            chunks=len(held),
            change=each(lambda kind, chunk: kind.holds * chunk.saved + kind.owes * chunk.owed),
            onward=each(lambda kind, _: kind.direction > 0) > 0,
            later=each(lambda kind, chunk: chunk.peak(kind, False).bytes),
            first=each(lambda kind, chunk: chunk.peak(kind, True).bytes),
            gathered=each(lambda kind, chunk: chunk.peak(kind, False).gathered),
            gathered_first=each(lambda kind, chunk: chunk.peak(kind, True).gathered),
            made=each(made),
            pending=each(lambda kind, chunk: chunk.pending * (kind.direction < 0)),
        )


def fullest_moment(order: np.ndarray, of: ActionBytes, messages: np.ndarray) -> StagePeak:
    """The fullest moment of a stage; `order`: what it does, as places among all chunks' actions of each kind.

    `messages`: bytes of all that are under way while each action runs.
    """
    change = of.change[order]
    before = change.cumsum() - change
    brief, gathered = of.later[order], of.gathered[order]
    grown = np.zeros(len(order))
    if of.made.any() or of.pending.any():
        at = _firsts(order, of)
        grown[at] = of.made[order[at]]
        brief, gathered = brief.copy(), gathered.copy()
        brief[at], gathered[at] = of.first[order[at]], of.gathered_first[order[at]]
        if (waiting := of.pending[order]).any():  # one at a time, whichever chunk's it is
            grown[int(np.argmax(waiting > 0))] += waiting.max()
        grown = grown.cumsum() - grown
    index = int(np.argmax(before + brief + messages + grown))
    # what a forward saves, it has saved by its end
    activations = before[index] + (change[index] if of.onward[order[index]] else 0.0)
    rest = before[index] + brief[index] + messages[index] - activations - gathered[index]
    return StagePeak(float(activations), float(rest), float(grown[index]), float(gathered[index]))


def _firsts(order: np.ndarray, of: ActionBytes) -> np.ndarray:
    """The actions that make gradients: of each chunk the first backward, or both halves of it."""
    kinds, firsts = list(Kind), []
    back = np.array([kind.direction < 0 or (kind.gradients and not kind.direction) for kind in kinds])
    places = np.flatnonzero(back[order // of.chunks])
    known: dict[int, set[int]] = {}
    for place in places[np.sort(np.unique(order[places], return_index=True)[1])]:
        kind, chunk = divmod(int(order[place]), of.chunks)
        before = known.setdefault(chunk, set())
        whole = not kinds[kind].owes
        if not before or (not whole and all(kinds[other].owes for other in before)):
            firsts.append(int(place))
            before.add(kind)
    return np.array(firsts, dtype=int)
