"""What a schedule's file says of it, beside its order: enough for the cost model and the planner to do without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from heddle.errors import HeddleError
from heddle.schedule.actions import Schedule

Column: TypeAlias = Any  # a number, or a NumPy array of numbers: one for each plan


class Build(Protocol):
    def __call__(self, pipeline: int, microbatches: int, virtual: int) -> Schedule: ...


class Bubble(Protocol):
    def __call__(self, pipeline: int, microbatches: int, virtual: int = 1) -> float: ...


class InFlight(Protocol):
    def __call__(self, pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column: ...


@dataclass(frozen=True)
class Rule:
    """A schedule, by name.

    `bubble` is idle over ideal time when all chunks cost the same and messages are free. `in_flight` is how many
    chunks' worth of activations a rank holds at most: it takes whole columns of plans, and for any one plan it is the
    peak of the very order that `build` makes.
    """

    name: str
    build: Build
    bubble: Bubble
    in_flight: InFlight
    most_virtual: int | None = None  # chunks per rank that it can run; None: any number
    usual_virtual: int = 1

    def check_virtual(self, virtual: int) -> None:
        """Refuse more chunks per rank than the schedule can run."""
        if self.most_virtual is not None and virtual > self.most_virtual:
            raise HeddleError(
                f"schedule = '{self.name}' runs {self.most_virtual} chunk{'s' * (self.most_virtual > 1)} per rank, "
                f"not virtual = {virtual}.",
                "Its order of work deals no more than that to each rank.",
                f"Use schedule = 'interleaved', which is 1F1B over any number, or virtual = {self.most_virtual}.",
            )
