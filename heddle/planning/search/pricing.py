"""Every legal plan with its price: what the search ranks, and what tells why nothing fits or what would help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heddle.cost.work import work_of
from heddle.planning.search.space import SOME, Fixed, Space, legal_space
from heddle.simulating.closed_form import StepCosts, closed_form, recomputing_least
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job


def priced(job: Job, cluster: Cluster, counts: list[int], fixed: Fixed) -> tuple[Space, StepCosts]:
    """All legal plans, and what each takes and holds."""
    space = legal_space(job.model, job.sequence, job.train.global_batch, counts, fixed, cluster.devices)
    some = np.flatnonzero(space.columns["recompute"] == SOME)
    if len(some):
        # plans whose layers recompute as far as memory asks for: of no use where nothing or everything must
        count, needed = recomputing_least(work_of(job, cluster, space.take(some).work_columns()), cluster)
        space.columns["recomputed"][some] = count
        keep = np.ones(len(space), dtype=bool)
        keep[some] = needed
        space = space.take(keep)
    step = closed_form(work_of(job, cluster, space.work_columns()), cluster)
    if "stages" in fixed or isinstance(fixed.get("recompute"), tuple):
        step = _uneven(step, counts_recompute=len(job.model.shapes) == 1)
    return space, step


def _uneven(step: StepCosts, counts_recompute: bool) -> StepCosts:
    """Stages, or words of layers, that are given need not be even: then no rank's share is known, only all of them.

    Where layers differ, it may be the quick ones that recompute: how long that takes is not known then.
    """
    busy = step.breakdown.compute + step.breakdown.recompute * counts_recompute
    at_least = np.asarray(busy + step.breakdown.tensor + step.breakdown.pipeline)
    return replace(step, at_least=at_least, memory_at_least=0 * at_least, fits=at_least < np.inf)
