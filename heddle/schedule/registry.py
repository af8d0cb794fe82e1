"""The schedules there are. Each brings its order, its bubble and what it holds; a new one is a file and a line here."""

from __future__ import annotations

from heddle.errors import HeddleError, nearest
from heddle.schedule.actions import Schedule
from heddle.schedule.deep_one_f_one_b import DEEP_ONE_F_ONE_B
from heddle.schedule.dualpipev import DUALPIPEV
from heddle.schedule.gpipe import GPIPE
from heddle.schedule.interleaved import INTERLEAVED
from heddle.schedule.one_f_one_b import ONE_F_ONE_B
from heddle.schedule.rule import Rule
from heddle.schedule.written import RULE as WRITTEN_OUT
from heddle.schedule.zb_h import ZB_H1, ZB_H2
from heddle.schedule.zb_v import ZB_V

RULES: dict[str, Rule] = {
    rule.name: rule for rule in (ONE_F_ONE_B, INTERLEAVED, GPIPE, ZB_H1, ZB_H2, ZB_V, DUALPIPEV, DEEP_ONE_F_ONE_B)
}
NAMES = tuple(RULES)
MOST_ACTIONS = 2**22  # of a schedule; far fewer than there are tags for their messages
IN_WORDS = f"{', '.join(NAMES[:-1])} or {NAMES[-1]}"


def rule_of(name: str, extra_warmup: int | None = None) -> Rule:
    """The schedule that a plan file calls by this name; None: with its usual warm-up."""
    if name == WRITTEN_OUT.name and extra_warmup is None:
        return WRITTEN_OUT
    if name not in RULES:
        raise HeddleError(
            f"There is no schedule '{name}'.",
            "It names the order of work of a plan.",
            nearest(name, NAMES),
        )
    rule = RULES[name]
    if extra_warmup is None:
        return rule
    if rule.deepened is None:
        deep = [each.name for each in RULES.values() if each.deepened is not None]
        raise HeddleError(
            f"schedule = '{name}' does not take extra_warmup, got {extra_warmup}.",
            "Its order fixes how many microbatches each rank starts early.",
            f"Use schedule = '{deep[0]}', or leave extra_warmup out.",
        )
    return rule.deepened(extra_warmup)


def build(name: str, pipeline: int, microbatches: int, virtual: int = 1, extra_warmup: int | None = None) -> Schedule:
    """Build a schedule by the name it has in a plan file."""
    rule = rule_of(name, extra_warmup)
    for what, value in (("pipeline", pipeline), ("microbatches", microbatches), ("virtual", virtual)):
        if value < 1:
            raise HeddleError(
                f"{what} must be 1 or more, got {value}.", "A schedule needs something to run.", f"Use {what}=1."
            )
    if 2 * pipeline * virtual * microbatches > MOST_ACTIONS:
        raise HeddleError(
            f"pipeline={pipeline} × virtual={virtual} × microbatches={microbatches} is too large for one step.",
            f"Every rank's work is laid out action by action, and more than {MOST_ACTIONS:,} actions take minutes.",
            f"At most {MOST_ACTIONS // (2 * pipeline * virtual):,} microbatches are possible here: use larger ones, or "
            "a smaller global_batch.",
        )
    rule.check_virtual(virtual)
    rule.check_microbatches(pipeline, microbatches)
    return rule.build(pipeline, microbatches, virtual)
