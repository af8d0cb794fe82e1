"""The schedules there are. Each brings its order, its bubble and what it holds; a new one is a file and a line here."""

from __future__ import annotations

from heddle.errors import HeddleError, nearest
from heddle.schedule.actions import Schedule
from heddle.schedule.dualpipev import DUALPIPEV
from heddle.schedule.gpipe import GPIPE
from heddle.schedule.interleaved import INTERLEAVED
from heddle.schedule.messages import TAG_LIMIT
from heddle.schedule.one_f_one_b import ONE_F_ONE_B
from heddle.schedule.rule import Rule
from heddle.schedule.zb_h import ZB_H1, ZB_H2
from heddle.schedule.zb_v import ZB_V

RULES: dict[str, Rule] = {rule.name: rule for rule in (ONE_F_ONE_B, INTERLEAVED, GPIPE, ZB_H1, ZB_H2, ZB_V, DUALPIPEV)}
NAMES = tuple(RULES)
IN_WORDS = f"{', '.join(NAMES[:-1])} or {NAMES[-1]}"


def rule_of(name: str) -> Rule:
    """The schedule that a plan file calls by this name."""
    if name not in RULES:
        raise HeddleError(
            f"There is no schedule '{name}'.",
            "A plan names the order of work it wants.",
            nearest(name, NAMES),
        )
    return RULES[name]


def build(name: str, pipeline: int, microbatches: int, virtual: int = 1) -> Schedule:
    """Build a schedule by the name it has in a plan file."""
    rule = rule_of(name)
    for what, value in (("pipeline", pipeline), ("microbatches", microbatches), ("virtual", virtual)):
        if value < 1:
            raise HeddleError(f"{what}={value} is not a schedule.", f"{what} counts from 1.", f"Use {what}=1.")
    if 2 * pipeline * virtual * microbatches > TAG_LIMIT:
        raise HeddleError(
            f"pipeline={pipeline} × virtual={virtual} × microbatches={microbatches} is too much for one step.",
            "Each message of a step has a tag of its own, and tags have 31 bits.",
            f"At most {TAG_LIMIT // (2 * pipeline * virtual)} microbatches are possible here.",
        )
    rule.check_virtual(virtual)
    rule.check_microbatches(pipeline, microbatches)
    return rule.build(pipeline, microbatches, virtual)
