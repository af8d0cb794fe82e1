"""Orders of work that have no name, as a plan file writes them: a line for each rank.

A word is an action: F a forward, B a whole backward, I and W its two halves, and the number of the microbatch. Where
ranks have two chunks, which lie in a V, those of the way up have small letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from heddle.errors import HeddleError
from heddle.schedule.actions import Action, Kind, Schedule
from heddle.schedule.placement import ChunkPlacement
from heddle.schedule.rule import Column, Rule
from heddle.schedule.verify import verify

SEARCHED = "searched"  # what a plan calls a schedule that it writes out
KINDS = {kind.letter: kind for kind in Kind}


def write_order(schedule: Schedule) -> tuple[str, ...]:
    """A schedule's order of work, line by line."""
    lines = []
    for rank, order in enumerate(schedule.ranks):
        letters = dict(zip(schedule.chunks_of(rank), (str.upper, str.lower), strict=False))
        lines.append(" ".join(f"{letters[chunk](kind.letter)}{microbatch}" for kind, chunk, microbatch in order))
    return tuple(lines)


def read_order(lines: Sequence[str], pipeline: int, virtual: int) -> Schedule:
    """The schedule that these lines are."""
    if len(lines) != pipeline:
        raise HeddleError(
            f"plan.order has {len(lines)} lines, but pipeline = {pipeline}.",
            "It has one line per pipeline rank, with its order of work.",
            "Let `heddle plan JOB.toml --schedule searched -o PLAN.toml` write it.",
        )
    placement = placed(virtual)
    ranks = tuple(tuple(_actions(rank, line, placement, pipeline, virtual)) for rank, line in enumerate(lines))
    microbatches = 1 + max((action.microbatch for order in ranks for action in order), default=0)
    return Schedule(SEARCHED, pipeline, virtual, microbatches, ranks, placement)


@lru_cache(maxsize=64)
def order_for(lines: Sequence[str], pipeline: int, virtual: int, microbatches: int) -> Schedule:
    """The same, checked: nothing is lost, repeated or waited for forever, and it is of so many microbatches."""
    schedule = read_order(lines, pipeline, virtual)
    if schedule.microbatches != microbatches:
        raise HeddleError(
            f"plan.order is for {schedule.microbatches} microbatches per step, but there are {microbatches}.",
            "A searched schedule holds for one number of microbatches.",
            f"Search again, or choose [train] global_batch so that a step has {schedule.microbatches}.",
        )
    verify(schedule)
    return schedule


def placed(virtual: int) -> ChunkPlacement:
    """Where chunks of such an order are."""
    return ChunkPlacement.V if virtual > 1 else ChunkPlacement.LOOP


def _actions(rank: int, line: str, placement: ChunkPlacement, pipeline: int, virtual: int) -> list[Action]:
    chunks = placement.chunks_of(rank, pipeline, virtual)
    actions = []
    for word in line.split():
        letter, number = word[0], word[1:]
        lap = int(letter.islower())
        if letter.upper() not in KINDS or not number.isdecimal() or lap >= len(chunks) or len(number) > 9:
            raise HeddleError(
                f"plan.order of rank {rank} has the word {word[:20]!r}.",
                f"A word is one of {', '.join(KINDS)} and a microbatch; lower case is for a rank's second chunk.",
                "Let `heddle plan JOB.toml --schedule searched -o PLAN.toml` write it.",
            )
        actions.append(Action(KINDS[letter.upper()], chunks[lap], int(number)))
    return actions


def _build(pipeline: int, microbatches: int, virtual: int) -> Schedule:  # noqa: ARG001
    raise HeddleError(
        f"schedule = '{SEARCHED}' has no order for pipeline = {pipeline} and {microbatches} microbatches.",
        "Unlike the others, it is searched for one model on one cluster and written out in the plan.",
        f"Use `heddle plan JOB.toml --schedule {SEARCHED} -o PLAN.toml`, or another schedule.",
    )


def _all(pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column:  # noqa: ARG001
    return virtual * microbatches


RULE = Rule(
    SEARCHED,
    _build,
    lambda pipeline, microbatches, virtual=1: 0.0,  # noqa: ARG005
    _all,
    most_virtual=2,
    splits=True,
)
