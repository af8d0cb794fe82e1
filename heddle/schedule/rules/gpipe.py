"""GPipe: every forward, then every backward (Huang et al. 2019; PTD-P §2.2.1, Figure 3)."""

from __future__ import annotations

from heddle.schedule.actions import Action, Kind, Schedule
from heddle.schedule.rule import Column, Rule, flush_bubble


def gpipe(pipeline: int, microbatches: int, virtual: int = 1) -> Schedule:
    """The simplest order, and the hungriest: every rank holds all microbatches at once.

    With virtual > 1 each rank takes all microbatches through its first chunk, then its second, and so on: the
    breadth-first order of Lamy-Poirier 2022 (arXiv 2211.05953).
    """
    return Schedule(
        name="gpipe",
        pipeline=pipeline,
        virtual=virtual,
        microbatches=microbatches,
        ranks=tuple(_order(rank, pipeline, microbatches, virtual) for rank in range(pipeline)),
    )


def _order(rank: int, pipeline: int, microbatches: int, virtual: int) -> tuple[Action, ...]:
    chunks = range(rank, pipeline * virtual, pipeline)
    forwards = [Action(Kind.FORWARD, chunk, i) for chunk in chunks for i in range(microbatches)]
    backwards = [Action(Kind.BACKWARD, chunk, i) for chunk in reversed(chunks) for i in range(microbatches)]
    return (*forwards, *backwards)


def in_flight(pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column:  # noqa: ARG001
    """Everything, on every rank."""
    return microbatches * virtual


GPIPE = Rule(
    "gpipe", gpipe, flush_bubble, in_flight, in_all=False, over_network=(None,), forwards_first=True, torch_name="GPipe"
)
