"""What a schedule's file says of it, beside its order: enough for the cost model and the planner to do without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from heddle.errors import HeddleError
from heddle.schedule.actions import Schedule
from heddle.schedule.placement import Placement

Column: TypeAlias = Any  # a number, or a NumPy array of numbers: one for each plan


class Build(Protocol):
    def __call__(self, pipeline: int, microbatches: int, virtual: int) -> Schedule: ...


class Bubble(Protocol):
    def __call__(self, pipeline: int, microbatches: int, virtual: int = 1) -> float: ...


class Written(Protocol):
    def __call__(self, pipeline: int, microbatches: int, virtual: int = 1) -> str: ...


class InFlight(Protocol):
    def __call__(self, pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column: ...


def flush_bubble(pipeline: int, microbatches: int, virtual: int = 1) -> float:
    """Idle time over ideal time, t_pb / t_id, when all chunks cost the same and messages are free.

    (p-1) / (v·m) for m ≥ p: PTD-P §2.2.1 for v=1 and §2.2.2 for v>1. With fewer microbatches than ranks and
    v > 1, a rank waits for the single group to come round, so each lap lasts p microbatches instead of m:
    the step takes v·p + m - 1 pairs of forward and backward. Our own extension; it holds for GPipe,
    1F1B and the interleaved schedule alike, and the tests hold the event replay to it.
    """
    p, m, v = pipeline, microbatches, virtual
    return (v * max(m, p) + min(m, p) - 1 - v * m) / (v * m)


def flush_formula(pipeline: int, microbatches: int, virtual: int = 1) -> str:
    """The same in letters."""
    if virtual == 1:
        return "(p-1)/m"
    return "(p-1)/(v m)" if microbatches >= pipeline else "(v p + m-1)/(v m) - 1"


@dataclass(frozen=True)
class Rule:
    """A schedule, by name.

    `bubble` is idle over ideal time of one step when all chunks cost the same and messages are free, and each half of a
    backward that is taken in two is as long as a forward. `in_flight` is how many chunks' worth of activations a rank
    holds something of at most: it takes whole columns of plans, and for any one plan it is the peak of the very order
    that `build` makes.
    """

    name: str
    build: Build
    bubble: Bubble
    in_flight: InFlight
    most_virtual: int | None = None  # chunks per rank that it can run; None: any number
    usual_virtual: int = 1
    least_virtual: int = 1
    placement: Placement = Placement.LOOP
    splits: bool = False  # takes backwards in two
    started: InFlight | None = None  # forwards of a rank before its first backward, where that is less than `in_flight`
    least_microbatches: Callable[[Column], Column] = lambda _pipeline: 1
    written: Written = flush_formula  # the bubble's formula in letters
    deepened: Callable[[int], Rule] | None = None  # the same with another extra_warmup, where it has one

    def check_virtual(self, virtual: int) -> None:
        """Refuse a number of chunks per rank that the schedule cannot run."""
        if self.most_virtual is not None and virtual > self.most_virtual:
            several = "'interleaved', which is 1F1B over any number" if self.most_virtual == 1 else "'interleaved'"
            raise HeddleError(
                f"schedule = '{self.name}' runs {self.most_virtual} chunk{'s' * (self.most_virtual > 1)} per rank, "
                f"not virtual = {virtual}.",
                "Its order of work gives each rank no more than that.",
                f"Use schedule = {several}, or virtual = {self.most_virtual}.",
            )
        if virtual < self.least_virtual:
            raise HeddleError(
                f"schedule = '{self.name}' runs {self.least_virtual} chunks per rank, not virtual = {virtual}.",
                "Every microbatch goes down the ranks through their first chunks and up through their second.",
                f"Use virtual = {self.least_virtual}, or schedule = '1f1b'.",
            )

    def check_microbatches(self, pipeline: int, microbatches: int) -> None:
        """Refuse fewer microbatches than the schedule can run."""
        least = self.least_microbatches(pipeline)
        if microbatches < least:
            raise HeddleError(
                f"schedule = '{self.name}' over pipeline = {pipeline} needs {least} microbatches per step, but "
                f"there are {microbatches}.",
                "Its steady state begins once each rank has two microbatches.",
                f"Use at least {least} (a larger global_batch or a smaller microbatch), or schedule = 'zb-v'.",
            )
