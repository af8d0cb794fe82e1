"""Pipeline schedules: who runs which chunk on which microbatch, in which order."""

from __future__ import annotations

from heddle.schedule.actions import Action, Kind, Schedule
from heddle.schedule.messages import Message, Payload, consumer, early_forwards, incoming, outgoing, producer
from heddle.schedule.placement import ChunkPlacement
from heddle.schedule.registry import NAMES, RULES, build, like_searched, rule_of
from heddle.schedule.rule import Rule
from heddle.schedule.verify import ScheduleError, Verified, verify

__all__ = [
    "NAMES",
    "RULES",
    "Action",
    "ChunkPlacement",
    "Kind",
    "Message",
    "Payload",
    "Rule",
    "Schedule",
    "ScheduleError",
    "Verified",
    "build",
    "consumer",
    "early_forwards",
    "incoming",
    "like_searched",
    "outgoing",
    "producer",
    "rule_of",
    "verify",
]
