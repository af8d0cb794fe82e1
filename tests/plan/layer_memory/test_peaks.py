"""Predicted peaks against what really lives, on many plans whose layers choose for themselves."""

from __future__ import annotations

import random

import pytest

from heddle.format import GIB
from heddle.plan.layer_memory.options import legal
from heddle.plan.layer_memory.solve import best_strategies
from heddle.simulate.simulation import simulate
from heddle.spec import Plan
from tests.plan.layer_memory.test_promise import MODEL, SLACK, job, lived

PLANS = 12  # by chance, and as many that the planner returns
EXACT = 0.03


@pytest.mark.slow
def test_predicted_peaks_are_what_lives(tmp_path):
    chance = random.Random(0)
    every = list(legal(Plan(), ("disk", "host"), (0,)))
    plain = Plan(microbatch=4, prefetch=0)
    free = simulate(job(plain, 1.0, tmp_path)).worst
    errors, returned = {}, 0
    for number in range(PLANS):
        plan = plain.with_memory([chance.choice(every) for _ in range(MODEL.layers)])
        found = simulate(job(plan, 1.0, tmp_path))
        errors[plan] = found.worst / (1 + SLACK) / lived(found.job) - 1
        budget = free * (0.55 + 0.45 * number / PLANS)
        kept = best_strategies(job(plain, budget / GIB, tmp_path))
        if kept is not None:
            measured = lived(kept.job)
            assert measured <= budget
            errors[kept.plan] = kept.worst / (1 + SLACK) / measured - 1
            returned += 1
    assert returned >= PLANS - 2
    assert len(errors) >= 20
    wrong = {plan.layers: error for plan, error in errors.items() if abs(error) > EXACT}
    assert not wrong, wrong
