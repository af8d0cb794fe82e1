"""Pipeline schedules: who runs which chunk on which microbatch, in which order."""

from __future__ import annotations

from heddle.errors import HeddleError, nearest
from heddle.schedule.actions import Action, Kind, Schedule
from heddle.schedule.bubble import bubble_fraction
from heddle.schedule.gpipe import gpipe
from heddle.schedule.interleaved import interleaved
from heddle.schedule.messages import TAG_LIMIT, Message, Payload, consumer, incoming, outgoing, producer
from heddle.schedule.one_f_one_b import one_f_one_b
from heddle.schedule.verify import ScheduleError, Verified, verify

__all__ = [
    "NAMES",
    "Action",
    "Kind",
    "Message",
    "Payload",
    "Schedule",
    "ScheduleError",
    "Verified",
    "bubble_fraction",
    "build",
    "consumer",
    "incoming",
    "outgoing",
    "producer",
    "verify",
]

NAMES = ("gpipe", "1f1b", "interleaved")


def build(name: str, pipeline: int, microbatches: int, virtual: int = 1) -> Schedule:
    """Build a schedule by the name it has in a plan file."""
    if name not in NAMES:
        raise HeddleError(
            f"There is no schedule '{name}'.",
            "A plan names the order of work it wants.",
            nearest(name, NAMES),
        )
    for what, value in (("pipeline", pipeline), ("microbatches", microbatches), ("virtual", virtual)):
        if value < 1:
            raise HeddleError(f"{what}={value} is not a schedule.", f"{what} counts from 1.", f"Use {what}=1.")
    if 2 * pipeline * virtual * microbatches > TAG_LIMIT:
        raise HeddleError(
            f"pipeline={pipeline} × virtual={virtual} × microbatches={microbatches} is too much for one step.",
            "Each message of a step has a tag of its own, and tags have 31 bits.",
            f"At most {TAG_LIMIT // (2 * pipeline * virtual)} microbatches are possible here.",
        )
    if name == "gpipe":
        return gpipe(pipeline, microbatches, virtual)
    if name == "interleaved":
        return interleaved(pipeline, microbatches, virtual)
    if virtual > 1:
        raise HeddleError(
            f"Schedule '1f1b' cannot have virtual={virtual}.",
            "1F1B gives each rank one chunk of the model.",
            "Use schedule 'interleaved', which is 1F1B with several chunks a rank, or virtual=1.",
        )
    return one_f_one_b(pipeline, microbatches)
