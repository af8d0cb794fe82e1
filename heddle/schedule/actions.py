"""The order of work of every pipeline rank, as data: what runs, in which order, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from heddle.schedule.placement import ChunkPlacement

if TYPE_CHECKING:
    import numpy as np


class Kind(StrEnum):
    """What an action does with its microbatch. A new kind is a line here: nobody else asks which kind it is.

    `direction`: +1 takes its input from the chunk before and hands its output to the one after, -1 the other way
    round, 0 talks to nobody. `holds`: by how many chunks' worth of activations it changes what its rank holds; `owes`:
    the same for products of weight gradients that are put off, each of which holds its two factors. `after`: what must
    have run for the same microbatch in the same chunk. `gradients`: whether it completes those of its chunk's
    parameters.
    """

    direction: int
    holds: int
    owes: int
    after: str | None
    gradients: bool
    letter: str  # in a drawing
    number: int  # in the order of this list

    FORWARD = "forward", +1, +1, 0, None, False, "F"
    BACKWARD = "backward", -1, -1, 0, "forward", True, "B"
    # the same backward in two: what the chunk before waits for, and what nobody waits for (arXiv 2401.10241 §1)
    BACKWARD_INPUT = "backward input", -1, -1, +1, "forward", False, "I"
    BACKWARD_WEIGHT = "backward weight", 0, 0, -1, "backward input", True, "W"

    def __new__(
        cls, word: str, direction: int, holds: int, owes: int, after: str | None, gradients: bool, letter: str
    ) -> Kind:
        kind = str.__new__(cls, word)
        kind._value_ = word
        kind.direction, kind.holds, kind.owes, kind.after = direction, holds, owes, after
        kind.gradients, kind.letter, kind.number = gradients, letter, len(cls.__members__)
        return kind


# What each microbatch goes through in each chunk: a schedule takes its backward whole, or in two.
WHOLE = (Kind.FORWARD, Kind.BACKWARD)
SPLIT = (Kind.FORWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)


class Action(NamedTuple):
    """One piece of work: one microbatch through one chunk of the model, in one direction.

    `chunk` counts in model order over the whole pipeline, 0 … pipeline·virtual - 1. A number local to the
    rank would need the rank beside it wherever it is read.
    """

    kind: Kind
    chunk: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind} of microbatch {self.microbatch} in chunk {self.chunk}"


def actions_of(kind: Kind, chunks: Iterable[int], microbatches: Iterable[int]) -> list[Action]:
    """One of that kind for each pair; searches build schedules of tens of thousands, and this takes a third of the time
    that calling `Action` for each would.
    """
    return list(map(partial(tuple.__new__, Action), zip(repeat(kind), chunks, microbatches, strict=False)))


@dataclass(frozen=True)
class Schedule:
    """What each pipeline rank does in one training step.

    `ranks[r]` is the list of actions of rank r, in the order it runs them. The simulator, the drawing, the
    check for deadlock and the pipeline executor all read this list; messages are derived from it.
    """

    name: str
    pipeline: int
    virtual: int
    microbatches: int
    ranks: tuple[tuple[Action, ...], ...]
    placement: ChunkPlacement = ChunkPlacement.LOOP

    @property
    def chunks(self) -> int:
        return self.placement.chunks(self.pipeline, self.virtual)

    @cached_property
    def places(self) -> tuple[np.ndarray, ...]:
        """Each rank's actions as places in a list that has something of each kind of action, in each chunk."""
        import numpy as np  # here, so that drawing a schedule does without it

        numbers = {kind: number * self.chunks for number, kind in enumerate(Kind)}
        return tuple(np.array([chunk + numbers[kind] for kind, chunk, _ in order]) for order in self.ranks)

    @cached_property
    def split(self) -> frozenset[tuple[int, int]]:
        """The chunks and microbatches whose backward is taken in two."""
        halves = (action for order in self.ranks for action in order if action[0] is Kind.BACKWARD_INPUT)
        return frozenset((chunk, microbatch) for _, chunk, microbatch in halves)

    def way(self, direction: int, chunk: int, microbatch: int) -> Action:
        """The action that takes a microbatch through a chunk: on (+1) or back (-1), whole or the half that hands on."""
        if direction > 0:
            return Action(Kind.FORWARD, chunk, microbatch)
        halved = (chunk, microbatch) in self.split
        return Action(Kind.BACKWARD_INPUT if halved else Kind.BACKWARD, chunk, microbatch)

    def rank_of(self, chunk: int) -> int:
        """The rank that holds a chunk."""
        return self.placement.rank_of(chunk, self.pipeline)

    def chunks_of(self, rank: int) -> tuple[int, ...]:
        """The chunks that a rank holds."""
        return self.placement.chunks_of(rank, self.pipeline, self.virtual)
