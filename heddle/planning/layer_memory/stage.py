"""One stage of a pipeline: the ways to choose for its layers, and the search for the room that they really have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from heddle.cost.layers import LayerKind
from heddle.planning.layer_memory.front import Front
from heddle.planning.layer_memory.options import Option
from heddle.schedule import Kind
from heddle.spec.layer_memory import LayerMemory

# Where a layer stands in its chunk, by what it recomputes and whether it lets go of what it keeps.
PLACES = {("full", False): 0, ("full", True): 1, ("elementwise", False): 2, ("selective", False): 4, ("none", False): 5}
PLACES |= dict.fromkeys((("none", True), ("selective", True), ("elementwise", True)), 3)


class StageChoice(NamedTuple):
    """Seconds of a stage, and what the layers of each of its chunks do."""

    seconds: float
    layers: list[list[LayerMemory]]


class Ways(NamedTuple):
    """Choices for the layers of a stage, with the bytes of each at its fullest moment."""

    ways: Front
    bytes: np.ndarray
    allowed: list[list[Option]]  # for each group of layers


def moments(ways: Front, allowed: list[list[Option]], chunks: list[int]) -> np.ndarray:
    """What lives for a moment in each of the ways: a layer has it when those behind it have let go of their own."""
    most = np.zeros(len(ways.seconds))
    for chunk in sorted(set(chunks)):
        own = [number for number, each in enumerate(chunks) if each == chunk]
        every = [option for number in own for option in allowed[number]]
        order = sorted(range(len(every)), key=lambda place: place_of(every[place].memory), reverse=True)
        counts = np.concatenate([ways.counts[number] for number in own], axis=1)[:, order]
        left = counts * np.array([every[place].left for place in order])
        held = np.array([every[place].moment for place in order]) - (np.cumsum(left, axis=1) - left)
        most = np.maximum(most, np.where(counts > 0, held, 0.0).max(axis=1))
    return most


@cache
def place_of(memory: LayerMemory) -> tuple[int, LayerMemory]:
    """Where a layer with this strategy stands in its chunk."""
    return PLACES[memory.recompute, LayerKind(0, memory).leaves], memory


class StageSearch:
    """Brings the room that a choice is made for and the exact memory of what comes of it together, by halving."""

    def __init__(self, room: float, lean: StageChoice | None, worth: float) -> None:
        self.room, self.done = room, False
        self.best = lean  # what fits in any case, where it does
        self.worth = worth  # seconds that are not worth another try
        self.fits: float | None = None  # the largest room that was too little for more than fits
        self.too_much: float | None = None  # the smallest whose choice does not fit
        self.hoped = 0.0  # the seconds of that choice
        self.stride = 1.0

    def learn(self, found: StageChoice | None, over: float) -> None:
        """What came of the room: nothing, or a choice that has so many bytes too many."""
        if self.done:
            return
        if found is None or over <= 0:
            self.fits = self.room if self.fits is None else max(self.fits, self.room)
            if found is not None and (self.best is None or found.seconds < self.best.seconds):
                self.best = found
            self.done = found is None and self.too_much is None
            self.room -= over * self.stride  # the sum over layers may be too careful
        else:
            self.too_much = self.room if self.too_much is None else min(self.too_much, self.room)
            self.hoped = max(self.hoped, found.seconds)
            self.room -= over * self.stride
        self.stride *= 2  # choices come in lumps
        if self.fits is not None and self.too_much is not None:
            self.room = (self.fits + self.too_much) / 2
        self.done = self.done or (self.best is not None and self.best.seconds <= self.hoped + self.worth)


def in_flight(order: np.ndarray, own: Sequence[int], chunks: int) -> tuple[int, ...]:
    """Microbatches that each chunk of a rank holds when it holds most of all together; `order`: see Schedule.places."""
    holds = np.array([kind.holds for kind in Kind])[order // chunks]
    changes = np.stack([np.where(order % chunks == chunk, holds, 0) for chunk in own])
    held = np.cumsum(changes, axis=1)
    return tuple(int(each) for each in held[:, int(np.argmax(held.sum(axis=0)))])
