"""What a search leaves out of a fine-tuning cannot have been better: replayed plans are never below the bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import heddle
from heddle.planning.search.pricing import priced
from heddle.simulating.simulation import simulate

EVERY = ["q", "k", "v", "o", "gate", "up", "down"]
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "lora": ("llama-3-8b", {"lora": {"rank": 16, "targets": EVERY}}, "adamw"),
    "qlora": ("llama-3-8b", {"lora": {"rank": 64, "targets": EVERY}, "base": "nf4"}, "adamw8bit"),
    "tied, layers that differ": ("gemma-2-2b", {"lora": {"rank": 8, "targets": ["q", "v"]}, "base": "nf4"}, "adamw"),
    "also": ("gpt2-xl", {"lora": {"rank": 8, "targets": ["q", "down"]}, "also": ["embed", "norm"]}, "adamw"),
}


@pytest.mark.parametrize("name", CASES)
def test_no_plan_is_below_its_bounds(name):
    model, tune, optimizer = CASES[name]
    job = heddle.job(
        model, cluster="dgx-h100", nodes=2, global_batch=32, sequence_length=1024, precision="bf16", tune=tune,
        train={"optimizer": optimizer},
    )  # fmt: skip
    assert job.cluster is not None
    space, step = priced(job, job.cluster, [16], {})
    for row in np.random.default_rng(0).choice(len(space), 30, replace=False):
        found = simulate(replace(job, plan=space.plan(int(row))))
        assert step.memory_at_least[row] <= found.worst * (1 + 1e-9), found.plan
        assert step.at_least[row] <= found.step_seconds * (1 + 1e-9), found.plan
