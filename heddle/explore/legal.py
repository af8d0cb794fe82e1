"""The values that a pinned field of a plan may have, for this model on these devices."""

from __future__ import annotations

from typing import Any, get_args

from heddle.errors import divisors
from heddle.explore.choices import PINNED
from heddle.schedule import NAMES
from heddle.spec.job import Job
from heddle.spec.layer_memory import Recompute
from heddle.spec.rules.context import PLAN_EXCHANGES

MOST = 64  # values in one list
ALWAYS: dict[str, list[Any]] = {
    "sequence": [False, True],
    "zero": [0, 1, 2, 3],
    "zero_within": [0, 2, 4, 8, 16, 32, 64],
    "recompute": [*get_args(Recompute)],
    "schedule": [*NAMES, "all"],
    "context_exchange": [*PLAN_EXCHANGES],
}


def legal_values(job: Job) -> dict[str, list[Any]]:
    """By field. A degree divides the devices and what it splits; what goes together is for the search to say."""
    assert job.cluster is not None
    degrees = divisors(job.cluster.world)
    model, batch = job.model, job.train.global_batch
    experts = model.expert_counts - {0}
    counted = {
        "expert_tensor": [0, *[1] * bool(experts)],
        "tensor": [degree for degree in degrees if degree in {*model.tensor_degrees}],
        "pipeline": [degree for degree in degrees if degree <= model.layers],
        "virtual": list(range(1, min(model.layers, MOST) + 1)),
        "context": [degree for degree in degrees if degree == 1 or job.sequence % (2 * degree) == 0],
        "data": [degree for degree in degrees if batch % degree == 0],
        "microbatch": divisors(batch),
        "expert": [degree for degree in degrees if degree == 1 or (experts and not any(n % degree for n in experts))],
    }
    return {name: ALWAYS.get(name) or counted.get(name, degrees)[:MOST] for name in PINNED}
