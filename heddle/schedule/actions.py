"""The order of work of every pipeline rank, as data: what runs, in which order, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class Kind(StrEnum):
    """What an action does with its microbatch. A new kind is a line here: nobody else asks which kind it is.

    `direction`: +1 takes its input from the chunk before and hands its output to the one after, -1 the other way
    round. `holds`: by how many chunks' worth of activations it changes what its rank holds. `after`: what must have
    run for the same microbatch in the same chunk. `gradients`: whether it adds to those of its chunk's parameters.
    """

    direction: int
    holds: int
    after: str | None
    gradients: bool
    letter: str  # in a drawing

    FORWARD = "forward", +1, +1, None, False, "F"
    BACKWARD = "backward", -1, -1, "forward", True, "B"

    def __new__(cls, word: str, direction: int, holds: int, after: str | None, gradients: bool, letter: str) -> Kind:
        kind = str.__new__(cls, word)
        kind._value_ = word
        kind.direction, kind.holds, kind.after = direction, holds, after
        kind.gradients, kind.letter = gradients, letter
        return kind


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

    @property
    def chunks(self) -> int:
        return self.pipeline * self.virtual

    @cached_property
    def places(self) -> tuple[np.ndarray, ...]:
        """Each rank's actions as places in a list that has something of each kind of action, in each chunk."""
        import numpy as np  # here, so that drawing a schedule does without it

        numbers = {kind: number * self.chunks for number, kind in enumerate(Kind)}
        return tuple(np.array([chunk + numbers[kind] for kind, chunk, _ in order]) for order in self.ranks)

    def rank_of(self, chunk: int) -> int:
        """Chunks are dealt to the ranks like cards, each rank gets early and late ones (PTD-P §2.2.2)."""
        return chunk % self.pipeline
