"""What goes between ranks, derived from the actions: an order of work cannot disagree with its messages."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from heddle.schedule.actions import Action, Kind, Schedule

TAG_LIMIT = 2**31  # transports take a signed 32-bit tag


class Payload(StrEnum):
    ACTIVATION = "activation"
    GRADIENT = "gradient"


# What travels with the model's order, and what travels against it.
_PAYLOADS = {+1: Payload.ACTIVATION, -1: Payload.GRADIENT}


class Message(NamedTuple):
    """A tensor on its way from `source` to `destination`.

    `chunk` is the chunk that made it: the earlier one of an activation, the later one of a gradient.

    The tag is unique within a step. With pipeline=2 and virtual chunks the previous and the next rank are the
    same peer; there an activation and a gradient of equal shape are in flight between the same two ranks, and
    without tags they are swapped in silence. Two steps share their tags, which is safe: transports deliver
    messages of one (source, destination, tag) in the order they were sent.
    """

    kind: Payload
    chunk: int
    microbatch: int
    source: int
    destination: int
    tag: int

    def __str__(self) -> str:
        return f"{self.kind} of microbatch {self.microbatch} from chunk {self.chunk} on rank {self.source}"


def producer(schedule: Schedule, action: Action) -> Action | None:
    """The action of the neighboring chunk that makes this action's input.

    None at the two ends: the first chunk reads the data, the last one starts its backward from its own loss. None also
    for what needs nothing from a neighbor.
    """
    kind, chunk, microbatch = action
    direction = kind.direction
    source = chunk - direction
    return schedule.way(direction, source, microbatch) if direction and 0 <= source < schedule.chunks else None


def consumer(schedule: Schedule, action: Action) -> Action | None:
    """The action of the neighboring chunk that takes this action's output; None at the two ends."""
    kind, chunk, microbatch = action
    direction = kind.direction
    target = chunk + direction
    return schedule.way(direction, target, microbatch) if direction and 0 <= target < schedule.chunks else None


def incoming(schedule: Schedule, action: Action) -> Message | None:
    """The message that must have arrived before `action` starts.

    None when there is no producer, and when the producer is on the same rank: with pipeline=1, and at the turn of a V,
    neighboring chunks hand over in memory.
    """
    kind, chunk, microbatch = action
    return _message(schedule, kind, chunk - kind.direction, microbatch)


def outgoing(schedule: Schedule, action: Action) -> Message | None:
    """The message that `action` sends when it ends; None as for `incoming`."""
    return _message(schedule, *action)


def _message(schedule: Schedule, kind: Kind, chunk: int, microbatch: int) -> Message | None:
    """What the action (kind, chunk, microbatch), if there is one, sends to another rank."""
    chunks = schedule.chunks
    target = chunk + kind.direction
    if not kind.direction or not (0 <= chunk < chunks and 0 <= target < chunks):
        return None
    source, destination = schedule.rank_of(chunk), schedule.rank_of(target)
    if source == destination:
        return None
    tag = 2 * (microbatch * chunks + chunk) + (kind.direction < 0)
    return Message(_PAYLOADS[kind.direction], chunk, microbatch, source, destination, tag)


def early_forwards(schedule: Schedule) -> list[int]:
    """How many actions of each rank, from its first one on, are forwards that need nothing but such forwards."""
    counts = [
        next((place for place, action in enumerate(order) if action.kind.direction <= 0), len(order))
        for order in schedule.ranks
    ]
    places = [{action: place for place, action in enumerate(order)} for order in schedule.ranks]
    settled = False
    while not settled:
        settled = True
        for rank, order in enumerate(schedule.ranks):
            for place, action in enumerate(order[: counts[rank]]):
                source = producer(schedule, action)
                maker = None if source is None else schedule.rank_of(source.chunk)
                if source is not None and maker is not None and places[maker][source] >= counts[maker]:
                    counts[rank], settled = place, False
                    break
    return counts
