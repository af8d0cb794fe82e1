"""The best split together with the best strategies of its layers: splits in the order of what they promise."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from heddle.plan.layer_memory.solve import best_strategies
from heddle.plan.search.objective import SearchGoal
from heddle.plan.search.space import RECOMPUTE, Space
from heddle.simulate.closed_form import StepCosts
from heddle.simulate.simulation import Simulation
from heddle.spec.job import Job

FAMILIES = 64  # that are looked into at most
SECONDS = 2.0  # of this process, and for how long, once there is one that fits
BY_LAYER = ("recompute", "zero", "offload", "layers")  # what is chosen here


def best_by_layer(
    job: Job, space: Space, step: StepCosts, wish: SearchGoal, than: Simulation | None
) -> Simulation | None:
    """The best plan whose layers choose for themselves, where it is better than the best that was found without.

    A family is a split of the work; what it takes at least if memory were no object bounds what strategies can reach.
    """
    if any(name in wish.fixed for name in BY_LAYER):
        return None
    zero = np.where(space.columns["data"] > 1, 1, 0)
    plain = (space.columns["recompute"] == RECOMPUTE.index("none")) & (space.columns["zero"] == zero)
    rows = np.flatnonzero(plain & (step.at_least <= wish.limit(job)))
    bounds = wish.key(step.at_least, np.zeros(len(space)), space.devices)
    began, best = time.process_time(), than
    if than is not None:  # the split that was found, first of all
        plan = replace(than.plan, recompute="none")
        found = best_strategies(replace(job, plan=plan))
        if found is not None and wish.of(found) < wish.of(than):
            best = found
    for row in rows[np.lexsort([np.asarray(key)[rows] for key in reversed(bounds)])][:FAMILIES]:
        if best is not None:
            late = time.process_time() - began > SECONDS
            if late or tuple(float(np.asarray(key)[row]) for key in bounds) >= wish.of(best):
                break
        found = best_strategies(replace(job, plan=space.plan(int(row))))
        if (
            found is not None
            and found.step_seconds <= wish.limit(job)
            and (best is None or wish.of(found) < wish.of(best))
        ):
            best = found
    return None if best is than else best
