"""Which plan comes first: the best by the objective; among those that no model tells from it, the simplest.

A prediction is a few per cent off, so a plan that is ahead by half a per cent is not better, and one that needs less
machinery, or leaves more memory free, is. That is the only rule by which a plan comes before a faster one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from heddle.errors import listing
from heddle.format import figures
from heddle.planning.search.objective import MARGIN, SearchGoal
from heddle.schedule import rule_of
from heddle.simulating.simulation import Simulation
from heddle.spec.plan import Plan

TIGHT = 0.1  # of a device's memory: with less than that free a plan counts as tight


def ranked(found: Iterable[Simulation], goal: SearchGoal) -> list[Simulation]:
    """The best first; those within the margin of the best by how much they need, then by free memory."""
    order = sorted(found, key=goal.of)
    if not order:
        return order
    alike = [each for each in order if goal.alike(each.step_seconds, each.plan.world, order[0])]
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
    own = {run.recompute for run in plan.layers} - {None}
    words = own | ({plan.recompute} if isinstance(plan.recompute, str) else set(plan.recompute))
    levels = {plan.zero, *(run.zero for run in plan.layers if run.zero is not None)}
    moved = any(run.offload for run in plan.layers) or bool(plan.offload)
    needs = {
        "tensor parallel": plan.tensor > 1,
        "sequence parallel": plan.sequence,
        "pipeline": plan.pipeline > 1,
        "several chunks per rank": plan.virtual > 1,
        "backwards in two": plan.pipeline > 1 and rule_of(plan.schedule).splits,
        "sharded optimizer": max(levels) > 0,
        "sharded gradients": max(levels) > 1,
        "sharded parameters": max(levels) > 2,
        "recomputation": words != {"none"},
        "recomputation in only some layers": len(words) > 1,
        "sharding in only some layers": len(levels) > 1,
        "offload to the host": moved,
        "uneven stages": len(set(plan.stages)) > 1,
        "nearly all of the memory": held > 1 - TIGHT,
    }
    return [part for part, needed in needs.items() if needed]


def ties_in_words(shown: Sequence[Simulation], fastest: Simulation, goal: SearchGoal) -> str:
    """Why a table is not in the order of its times; empty where it is, or where nothing ties."""
    count = sum(bool(goal.alike(each.step_seconds, each.plan.world, fastest)) for each in shown)
    if count < 2 and (not count or shown[0].step_seconds <= fastest.step_seconds):
        return ""
    which = f"Plans 1 to {count} are" if count > 1 else "Plan 1 is"
    needs = [set(parts(each.plan, each.worst / each.limit)) for each in shown[:2]]
    more = sorted(needs[1] - needs[0]) if count > 1 and len(needs[0]) < len(needs[1]) else []
    return (
        f"{which} within {MARGIN:.0%} of the fastest ({figures(fastest.step_seconds)} s), which is less than the error "
        "of a prediction. Of such plans the one that needs the least machinery comes first, then the one with the most "
        "free memory." + (f" Plan 2 needs {listing(more)}, which plan 1 does not." if more else "")
    )
