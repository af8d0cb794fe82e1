"""What a schedule's file says of it, beside its order: enough for the cost model and the planner to do without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from heddle.errors import HeddleError
from heddle.schedule.actions import Schedule
from heddle.schedule.placement import ChunkPlacement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# One number, or one for each plan. Whole numbers count as floats, in arrays as they do in Python.
Column: TypeAlias = "float | NDArray[np.floating[Any]]"
Mask: TypeAlias = "bool | NDArray[np.bool_]"  # the same for what is true or false
C = TypeVar("C", bound=Column, covariant=True)  # of records: of one plan, or of many


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
    placement: ChunkPlacement = ChunkPlacement.LOOP
    splits: bool = False  # takes backwards in two
    started: InFlight | None = None  # forwards of a rank before its first backward, where that is less than `in_flight`
    microbatches_per_rank: int = 0  # that a step must have
    written: Written = flush_formula  # the bubble's formula in letters
    deepened: Callable[[int], Rule] | None = None  # the same with another extra_warmup, where it has one
    # What the planner does with it. Bounds hold for any order without these; with them they are closer.
    by_default: bool = False  # searched where no schedule is asked for
    in_all: bool = True  # searched where all are asked for
    over_network: tuple[int | None, ...] = ()  # tried over slow links, with these values of extra_warmup
    one_chunk: str = ""  # the schedule that it is with one chunk per rank, where that has a name of its own
    starts_like_1f1b: bool = False  # as many forwards before the first backward as 1F1B, interleaved or not
    waits_for_input: bool = False  # ranks idle for (p-1)(F+I-W), not just for their late start, (p-1)·F
    forwards_first: bool = False  # all forwards before all backwards
    torch_name: str = ""  # what torch.distributed.pipelining calls it, where it has it

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

    def least_microbatches(self, pipeline: int) -> int:
        """Microbatches that a step must have over so many ranks."""
        return max(1, self.microbatches_per_rank * pipeline)

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
