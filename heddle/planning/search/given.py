"""What is decided before a search, and what that leaves: the schedules that are looked at, the levels of ZeRO."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from heddle.errors import HeddleError
from heddle.planning.fields import Use, over_cluster
from heddle.schedule import NAMES, RULES
from heddle.schedule.registry import BY_DEFAULT, usual
from heddle.spec.plan import Plan

ALL = "all"  # every schedule but GPipe, in place of a name
GIVEN = over_cluster(Use.KEPT)  # no search chooses it: its plans have it as it was given

Fixed = Mapping[str, Any]


def schedules_of(fixed: Fixed) -> tuple[str, ...]:
    """The schedules that plans may have."""
    name = fixed.get("schedule")
    return (
        BY_DEFAULT
        if name is None
        else tuple(other for other in NAMES if RULES[other].in_all)
        if name == ALL
        else (name,)
    )


def zero_levels(degrees: tuple[int, int], schedule: str, fixed: Fixed) -> tuple[int, ...]:
    """The levels of ZeRO that plans of so many stages and replicas may have, by the rules of plans and no others."""
    given = tuple((name, fixed[name]) for name in GIVEN if name in fixed)
    pipeline, data = (min(2, degree) for degree in degrees)
    return _levels_of(pipeline, data, schedule if pipeline > 1 else usual(1), given)


@lru_cache(maxsize=256)
def _levels_of(pipeline: int, data: int, schedule: str, given: tuple[tuple[str, Any], ...]) -> tuple[int, ...]:
    virtual = RULES[schedule].usual_virtual
    try:
        return Plan(pipeline=pipeline, data=data, schedule=schedule, virtual=virtual, **dict(given)).zero_levels
    except HeddleError:  # what was given does not go with one stage, or with one replica
        return ()
