"""Proof by execution: a schedule is run on paper, with real messages, before anything is spent on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from heddle.errors import HeddleError
from heddle.schedule.actions import SPLIT, WHOLE, Action, Kind, Schedule
from heddle.schedule.messages import Message, incoming

_SHOWN = 8  # ranks named in the report of a deadlock; the cycle is visible in a few


class ScheduleError(HeddleError):
    """An order of work that would lose, repeat or wait forever for something."""


@dataclass(frozen=True)
class Verified:
    """What a schedule that passed is known to need.

    `peak_stash[r]` is the most (chunk, microbatch) pairs that rank r holds something of at once, each counted from its
    forward to the end of its backward: where that is taken in two, to the half that makes the weights' gradients.
    """

    actions: int
    messages: int
    peak_stash: tuple[int, ...]


def verify(schedule: Schedule) -> Verified:
    """Check that every action is there once, in its place, after its inputs, and that no rank waits forever.

    Sends are buffered and never block, receives block until the message with their tag is there: what the
    executor does. So a schedule that passes here cannot deadlock there, whatever its actions cost.
    """
    if len(schedule.ranks) != schedule.pipeline:
        raise ScheduleError(
            f"Schedule '{schedule.name}' has an order for {len(schedule.ranks)} ranks.",
            f"It says pipeline={schedule.pipeline}.",
            "Give one order of work per rank.",
        )
    peaks = tuple(_check_rank(schedule, rank, order) for rank, order in enumerate(schedule.ranks))
    _execute(schedule)
    homes = [schedule.rank_of(chunk) for chunk in range(schedule.chunks)]
    crossed = sum(a != b for a, b in pairwise(homes))  # by every microbatch, on and back
    return Verified(
        actions=sum(len(order) for order in schedule.ranks),
        messages=2 * crossed * schedule.microbatches,
        peak_stash=peaks,
    )


def _check_rank(schedule: Schedule, rank: int, order: Sequence[Action]) -> int:
    """Everything that one rank can get wrong by itself; returns the most that it holds at once.

    What is done is marked in bytes, one for each action there can be: a schedule may have millions.
    """

    def wrong(action: Action, what: str, why: str, hint: str) -> ScheduleError:
        return ScheduleError(f"Schedule '{schedule.name}', rank {rank}: {action} {what}.", why, hint)

    own, chunks, microbatches = schedule.chunks_of(rank), schedule.chunks, schedule.microbatches
    first = {chunk: lap * microbatches for lap, chunk in enumerate(own)}
    size = len(own) * microbatches
    done = {kind.value: bytearray(size) for kind in Kind}
    marks = [(done[kind.value], done.get(kind.after or "")) for kind in Kind]
    passed = bytearray(size), bytearray(size), bytearray(size)  # by direction: -1 is the last
    held = peak = 0
    for action in order:
        kind, chunk, microbatch = action
        at = first.get(chunk, -1)
        if at < 0 or not 0 <= microbatch < microbatches:
            if not (0 <= chunk < chunks and 0 <= microbatch < microbatches):
                there = f"There are {chunks} chunks and {microbatches} microbatches, counted from 0."
                raise wrong(action, "does not exist", there, "Remove it.")
            home = f"Chunk {chunk} lives on rank {schedule.rank_of(chunk)}."
            raise wrong(action, "is on the wrong rank", home, "Move it there.")
        at += microbatch
        mine, earlier = marks[kind.number]
        if mine[at]:
            raise wrong(action, "is there twice", "Its gradient would count twice.", "Remove one of the two.")
        if earlier is not None and not earlier[at]:
            why = f"A {kind} needs what its {kind.after} left."
            raise wrong(action, f"precedes its {kind.after}", why, f"Move it behind its {kind.after}.")
        direction = kind.direction
        if direction:
            if passed[direction][at]:
                raise wrong(action, "is there in halves and whole", "Its gradient would count twice.", "Remove it.")
            # Between ranks the message orders producer and consumer; inside one rank only this list does.
            source = first.get(chunk - direction, -1)
            if source >= 0 and not passed[direction][source + microbatch]:
                made = schedule.way(direction, chunk - direction, microbatch)
                raise wrong(action, "precedes its input", f"Its input is made by {made}.", "Swap the two.")
            passed[direction][at] = 1
        mine[at] = 1
        held += kind.holds + kind.owes
        peak = max(peak, held)
    halved = sum(done[Kind.BACKWARD_INPUT.value])
    if len(order) < len(WHOLE) * size + (len(SPLIT) - len(WHOLE)) * halved:
        missing = next(
            Action(kind, chunk, microbatch)
            for chunk in own
            for microbatch in range(microbatches)
            for kind in (SPLIT if done[Kind.BACKWARD_INPUT.value][first[chunk] + microbatch] else WHOLE)
            if not done[kind.value][first[chunk] + microbatch]
        )
        why = "Every microbatch goes forward and backward through every chunk once."
        raise wrong(missing, "is missing", why, "Add it.")
    return peak


def _execute(schedule: Schedule) -> None:
    """Run every rank until it waits, and wake it when its input is there."""
    position = [0] * schedule.pipeline
    microbatches, last = schedule.microbatches, schedule.chunks - 1
    on, back = (bytearray(schedule.chunks * microbatches) for _ in range(2))  # what has passed each chunk
    waiting: dict[int, int] = {}  # the place in `on`, or as ~place in `back`, that a rank waits for
    ready = deque(range(schedule.pipeline))
    while ready:
        rank = ready.popleft()
        order = schedule.ranks[rank]
        for index in range(position[rank], len(order)):
            kind, chunk, microbatch = order[index]
            direction = kind.direction
            if not direction:
                continue
            place = chunk * microbatches + microbatch
            if direction > 0:
                if chunk and not on[place - microbatches]:
                    position[rank] = index
                    waiting[place - microbatches] = rank
                    break
                on[place] = 1
            else:
                if chunk < last and not back[place + microbatches]:
                    position[rank] = index
                    waiting[~(place + microbatches)] = rank
                    break
                back[place] = 1
                place = ~place
            if place in waiting:
                ready.append(waiting.pop(place))
        else:
            position[rank] = len(order)
    if waiting:
        raise _deadlock(schedule, position, sorted(waiting.values()))


def _deadlock(schedule: Schedule, position: list[int], stuck: list[int]) -> ScheduleError:
    waits = []
    for rank in stuck[:_SHOWN]:
        action = schedule.ranks[rank][position[rank]]
        message: Message | None = incoming(schedule, action)
        waits.append(f"rank {rank} (before its action {position[rank]}, {action}) waits for the {message}")
    if len(stuck) > _SHOWN:
        waits.append(f"and {len(stuck) - _SHOWN} more ranks wait")
    return ScheduleError(
        f"Schedule '{schedule.name}' deadlocks: {len(stuck)} of {schedule.pipeline} ranks wait forever.",
        "; ".join(waits) + ".",
        "One of these ranks must run the awaited action before the one it is stuck at.",
    )
