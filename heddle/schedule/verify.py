"""Proof by execution: a schedule is run on paper, with real messages, before anything is spent on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from heddle.errors import HeddleError
from heddle.schedule.actions import SPLIT, WHOLE, Action, Schedule
from heddle.schedule.messages import Message, incoming, outgoing, producer

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
    for rank, order in enumerate(schedule.ranks):
        _check_rank(schedule, rank, order)
    messages = _execute(schedule)
    return Verified(
        actions=sum(len(order) for order in schedule.ranks),
        messages=messages,
        peak_stash=tuple(_peak_stash(order) for order in schedule.ranks),
    )


def _check_rank(schedule: Schedule, rank: int, order: Sequence[Action]) -> None:
    """Everything that one rank can get wrong by itself."""

    def wrong(action: Action, what: str, why: str, hint: str) -> ScheduleError:
        return ScheduleError(f"Schedule '{schedule.name}', rank {rank}: {action} {what}.", why, hint)

    own, chunks, microbatches = schedule.chunks_of(rank), schedule.chunks, schedule.microbatches
    done: set[tuple[str, int, int]] = set()
    for action in order:
        kind, chunk, microbatch = action
        if not (0 <= chunk < chunks and 0 <= microbatch < microbatches):
            size = f"There are {chunks} chunks and {microbatches} microbatches, counted from 0."
            raise wrong(action, "does not exist", size, "Remove it.")
        if chunk not in own:
            home = f"Chunk {chunk} lives on rank {schedule.rank_of(chunk)}."
            raise wrong(action, "is on the wrong rank", home, "Move it there.")
        if action in done:
            raise wrong(action, "is there twice", "Its gradient would count twice.", "Remove one of the two.")
        if kind.after is not None and (kind.after, chunk, microbatch) not in done:
            why = f"A {kind} needs what its {kind.after} left."
            raise wrong(action, f"precedes its {kind.after}", why, f"Move it behind its {kind.after}.")
        if kind in WHOLE and kind not in SPLIT and (chunk, microbatch) in schedule.split:
            raise wrong(action, "is there as well as its two halves", "Its gradient would count twice.", "Remove it.")
        # Between ranks the message orders producer and consumer; inside one rank only this list does.
        source = producer(schedule, action)
        if source is not None and source.chunk in own and source not in done:
            raise wrong(action, "precedes its input", f"Its input is made by {source}.", "Swap the two.")
        done.add(action)
    halved = sum(chunk in own for chunk, _ in schedule.split)
    if len(done) < len(WHOLE) * schedule.virtual * microbatches + (len(SPLIT) - len(WHOLE)) * halved:
        missing = next(
            action
            for chunk in own
            for microbatch in range(microbatches)
            for kind in (SPLIT if (chunk, microbatch) in schedule.split else WHOLE)
            if (action := Action(kind, chunk, microbatch)) not in done
        )
        why = "Every microbatch goes forward and backward through every chunk once."
        raise wrong(missing, "is missing", why, "Add it.")


def _execute(schedule: Schedule) -> int:
    """Run every rank until it waits, wake it when its message comes, and count the messages."""
    position = [0] * schedule.pipeline
    # A transport matches source, destination and tag, and so does this: two messages with one tag meet here.
    sent: set[tuple[int, int, int]] = set()
    waiting: dict[tuple[int, int, int], int] = {}
    ready = deque(range(schedule.pipeline))
    while ready:
        rank = ready.popleft()
        order = schedule.ranks[rank]
        for index in range(position[rank], len(order)):
            needed = incoming(schedule, order[index])
            if needed is not None and (envelope := needed[3:]) not in sent:
                position[rank] = index
                waiting[envelope] = rank
                break
            message = outgoing(schedule, order[index])
            if message is not None:
                envelope = message[3:]
                assert envelope not in sent, f"two messages with one tag: {message}"
                sent.add(envelope)
                if envelope in waiting:
                    ready.append(waiting.pop(envelope))
        else:
            position[rank] = len(order)
    if waiting:
        raise _deadlock(schedule, position, sorted(waiting.values()))
    return len(sent)


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


def _peak_stash(order: Sequence[Action]) -> int:
    held = peak = 0
    for action in order:
        held += action.kind.holds + action.kind.owes
        peak = max(peak, held)
    return peak
