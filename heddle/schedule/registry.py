"""The schedules there are, by name. Each brings its order, its bubble and what it holds."""

from __future__ import annotations

from heddle.errors import HeddleError, nearest
from heddle.schedule import rules
from heddle.schedule.actions import Schedule
from heddle.schedule.rule import Rule
from heddle.schedule.written import RULE as WRITTEN_OUT
from heddle.schedule.written import placed

RULES: dict[str, Rule] = {rule.name: rule for rule in vars(rules).values() if isinstance(rule, Rule)}
NAMES = tuple(RULES)
MOST_ACTIONS = 2**22  # of a schedule; far fewer than there are tags for their messages
BY_DEFAULT = tuple(name for name, rule in RULES.items() if rule.by_default)  # searched where none is asked for
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


def usual(virtual: int) -> str:
    """The schedule that a plan with so many chunks per rank has where nobody asks for another."""
    return next(
        name for name in BY_DEFAULT if RULES[name].usual_virtual <= virtual <= (RULES[name].most_virtual or virtual)
    )


def named_by_torch(name: str) -> str | None:
    """The schedule that torch.distributed.pipelining calls by this name, whatever its case; None: it is not here."""
    return next((rule.name for rule in RULES.values() if rule.torch_name.lower() == name.lower()), None)


def forwards_first() -> str:
    """The schedule that takes all forwards before any backward."""
    return next(rule.name for rule in RULES.values() if rule.forwards_first)


def like_searched(virtual: int) -> str:
    """The first schedule with a rule that takes backwards in two and places chunks as a searched order does."""
    return next(
        rule.name
        for rule in RULES.values()
        if rule.splits and rule.placement is placed(virtual) and rule.least_virtual <= virtual
    )


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
