"""Which plan comes first: the best by the objective; among those that no model tells from it, the simplest.

A prediction is a few per cent off, so a plan that is ahead by half a per cent is not better, and one that needs less
machinery, or leaves more memory free, is. That is the only rule by which a plan comes before a faster one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from heddle.format import figures
from heddle.plan.search.objective import MARGIN, SearchGoal
from heddle.schedule import rule_of
from heddle.simulate.simulation import Simulation
from heddle.spec.plan import Plan

TIGHT = 0.1  # of a device's memory: with less than that free a plan counts as tight


def ranked(found: Iterable[Simulation], wish: SearchGoal) -> list[Simulation]:
    """The best first; those within the margin of the best by how much they need, then by free memory."""
    order = sorted(found, key=wish.of)
    if not order:
        return order
    alike = [each for each in order if wish.alike(each.step_seconds, each.plan.world, order[0])]
    chosen = {id(each) for each in alike}
    return [*sorted(alike, key=preference), *(each for each in order if id(each) not in chosen)]


def preference(found: Simulation) -> tuple[int, float, float]:
    """What is to be small among plans that are equally fast: parts, memory, seconds."""
    return len(parts(found.plan, found.worst / found.limit)), found.worst, found.step_seconds


def parts(plan: Plan, held: float) -> list[str]:
    """The machinery that a plan needs, and what is out of the ordinary about it.

    Args:
        plan: its stages are written out.
        held: share of a device's memory.
    """
    needs = {
        "tensor parallel": plan.tensor > 1,
        "sequence parallel": plan.sequence,
        "pipeline": plan.pipeline > 1,
        "several chunks per rank": plan.virtual > 1,
        "backwards in two": plan.pipeline > 1 and rule_of(plan.schedule).splits,
        "sharded optimizer": plan.zero > 0,
        "sharded gradients": plan.zero > 1,
        "sharded parameters": plan.zero > 2,
        "recomputation": plan.recompute != "none",
        "recomputation in only some layers": not isinstance(plan.recompute, str),
        "uneven stages": len(set(plan.stages)) > 1,
        "nearly all of the memory": held > 1 - TIGHT,
    }
    return [part for part, needed in needs.items() if needed]


def ties_in_words(shown: Sequence[Simulation], fastest: Simulation, wish: SearchGoal) -> str:
    """Why a table is not in the order of its times; empty where it is, or where nothing ties."""
    count = sum(bool(wish.alike(each.step_seconds, each.plan.world, fastest)) for each in shown)
    if count < 2 and (not count or shown[0].step_seconds <= fastest.step_seconds):
        return ""
    which = f"Plans 1 to {count} are" if count > 1 else "Plan 1 is"
    return (
        f"{which} within {MARGIN:.0%} of the fastest ({figures(fastest.step_seconds)} s), which is less than the error "
        "of a prediction. Of such plans the simplest comes first, then the one with the most free memory."
    )
