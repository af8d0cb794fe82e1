"""Predicted peaks against what really lives, on plans that the planner returns: it promises that they keep a budget."""

from __future__ import annotations

import pytest

from heddle.format import GIB
from heddle.planning.layer_memory.solve import best_strategies
from heddle.simulating.simulation import simulate
from heddle.spec import Plan
from tests.planning.layer_memory.test_promise import SLACK, job, lived

BUDGETS = 16  # between half of what everything takes and all of it, for two sizes of a microbatch
EXACT = 0.03


@pytest.mark.slow
def test_predicted_peaks_are_what_lives(tmp_path):
    errors = {}
    for microbatch in (2, 4):
        plain = Plan(microbatch=microbatch, prefetch=0)
        free = simulate(job(plain, 1.0, tmp_path)).worst
        for number in range(BUDGETS):
            budget = free * (0.5 + 0.5 * number / (BUDGETS - 1))
            found = best_strategies(job(plain, budget / GIB, tmp_path))
            if found is None or found.plan in errors:
                continue
            measured = lived(found.job)
            assert measured <= budget
            errors[found.plan] = found.worst / (1 + SLACK) / measured - 1
    assert len(errors) >= 20
    wrong = {plan.layers: error for plan, error in errors.items() if abs(error) > EXACT}
    assert not wrong, wrong
