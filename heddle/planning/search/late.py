"""Plans whose updates come late, for whoever allows it: the same splits without waiting for the backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from heddle.errors import HeddleError
from heddle.schedule.late import SYNCHRONOUS, UPDATES
from heddle.schedule.registry import usual
from heddle.simulating.simulation import Simulation, simulate
from heddle.spec.plan import Plan

MARGIN = 0.01  # a gain that a prediction can tell


def without_update(fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Fixed fields of a plan that a search takes: it looks at synchronous updates."""
    update = fixed.get("update", SYNCHRONOUS)
    if update != SYNCHRONOUS:
        raise HeddleError(
            f"The planner does not search plan.update = {update!r}.",
            "Late updates may change the loss, so they are only considered with --allow-delay.",
            "Leave update out, and add --allow-delay; `heddle simulate` predicts a plan as it is.",
        )
    return {name: value for name, value in fixed.items() if name != "update"}


def late_plans(found: Sequence[Simulation]) -> list[Simulation]:
    """The pipelines among these plans with late updates, those that are faster than the first; the fastest first."""
    best = found[0]
    tried = {plan: best for prediction in found for plan in _late(prediction.plan)}
    faster = []
    for plan in tried:
        try:
            prediction = simulate(replace(best.job, plan=plan, predicted=None))
        except HeddleError:  # the model cannot be cut so, or has a tied weight at both ends
            continue
        if prediction.fits and prediction.step_seconds < (1 - MARGIN) * best.step_seconds:
            faster.append(prediction)
    return sorted(faster, key=lambda prediction: prediction.step_seconds)


def late_in_words(late: Simulation, best: Simulation) -> str:
    """What it gains, and what it may cost."""
    gain = 1 - late.step_seconds / best.step_seconds
    return (
        f"With late updates, update = '{late.plan.update}' over pipeline {late.plan.pipeline}: "
        f"{late.step_seconds:.4g} s per step, {gain:.0%} less. The loss may differ: `heddle compare` shows by how much."
    )


def _late(plan: Plan) -> Iterator[Plan]:
    if plan.pipeline == 1 or plan.zero > 1:
        return
    for update in UPDATES:
        yield replace(plan, update=update, schedule=usual(1), virtual=1, stages=(), layers=(), offload=())
