"""Plans whose order of work is searched for: the best splits, each with the best order that its stages can hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heddle.cost.work import work_of
from heddle.errors import HeddleError
from heddle.planning.order.search import search_order
from heddle.planning.order.stages import Stages
from heddle.planning.search.given import ALL
from heddle.schedule import RULES, like_searched
from heddle.schedule.written import SEARCHED, placed, write_order
from heddle.simulating.chunks import chunk_costs
from heddle.simulating.simulation import Simulation, simulate_if_fits
from heddle.spec.plan import Plan

MOST = 4  # splits whose orders are searched for
MOST_ACTIONS = 40_000  # of an order: beyond, a plan file would be a book


def without_order(fixed: dict[str, Any]) -> dict[str, Any]:
    """Fixed fields of a plan that a search takes: it looks at all schedules that have a rule, to begin with."""
    if fixed.get("schedule") != SEARCHED:
        return fixed
    return {name: value for name, value in fixed.items() if name != "order"} | {"schedule": ALL}


def ordered_plans(found: Sequence[Simulation], seconds: float = 10.0) -> list[Simulation]:
    """The best of these pipelines with orders of their own, those that are faster than the best; the fastest first."""
    splits = list(dict.fromkeys(split for one in found if (split := _split(one)) is not None))[:MOST]
    best, faster = found[0], []
    for split in splits:
        like = simulate_if_fits(replace(best.job, plan=split, predicted=None))
        other = None if like is None else with_searched_order(like, seconds / len(splits))
        if other is not None and other.step_seconds < best.step_seconds:
            faster.append(other)
    return sorted(faster, key=lambda one: one.step_seconds)


def with_searched_order(found: Simulation, seconds: float) -> Simulation | None:
    """The same split with the best order that is found in so many seconds; None where none fits."""
    try:
        order = search_order(stages_of(found), seconds).schedule
    except HeddleError:  # no order fits
        return None
    plan = replace(found.plan, schedule=SEARCHED, order=write_order(order))
    return simulate_if_fits(replace(found.job, plan=plan, predicted=None))


def stages_of(found: Simulation) -> Stages:
    """What an order is searched for, of a plan: its parts take what the simulation says, and may hold what is free."""
    plan = found.plan
    chunks = chunk_costs(found.job, plan, work_of(found.job, found.cluster), found.cluster)
    return Stages(
        pipeline=plan.pipeline,
        microbatches=plan.microbatches(found.job.train.global_batch),
        forward=[chunk.forward.seconds for chunk in chunks],
        backward_input=[chunk.backward.seconds - chunk.backward.weight for chunk in chunks],
        backward_weight=[chunk.backward.weight for chunk in chunks],
        saved=found.left.saved,
        owed=found.left.owed,
        # slack is a share of all the rest
        limits=[
            float(breakdown.activations + (found.limit - breakdown.total) * (1 - breakdown.slack / breakdown.total))
            for breakdown in found.memory
        ],
        placement=placed(plan.virtual),
    )


def searched_in_words(searched: Simulation, best: Simulation) -> str:
    """What it gains."""
    gain = 1 - searched.step_seconds / best.step_seconds
    bound = stages_of(searched).bound() / searched.step_seconds
    return (
        f"With a searched order of work over pipeline {searched.plan.pipeline}, virtual {searched.plan.virtual}: "
        f"{searched.step_seconds:.4g} s per step, {gain:.1%} less; no order of this split takes less than {bound:.1%} "
        "of that."
    )


def _split(found: Simulation) -> Plan | None:
    """A plan as orders are searched for it: with backwards in two, one chunk per rank or two in a V."""
    plan = found.plan
    if plan.pipeline == 1 or plan.zero > 1 or plan.layers or plan.offload or plan.virtual > 2:
        return None
    count = plan.microbatches(found.job.train.global_batch)
    if 3 * plan.pipeline * plan.virtual * count > MOST_ACTIONS:
        return None
    in_a_v = plan.virtual == 2 and RULES[plan.schedule].placement is placed(2)
    if plan.virtual == 2 and not in_a_v:
        return None
    return replace(plan, schedule=like_searched(plan.virtual))
