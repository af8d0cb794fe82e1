"""Every legal plan with its price: what the search ranks, and what tells why nothing fits or what would help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heddle.cost import memory
from heddle.cost.work import Work, work_of
from heddle.format import GIB
from heddle.planning.search.given import Fixed
from heddle.planning.search.legal import RECOMPUTE, SOME
from heddle.planning.search.space import Space, legal_space
from heddle.simulating.closed_form import StepCosts, closed_form, recomputing_least
from heddle.simulating.distinct import once
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job

# Times a device's memory that a plan's weights and optimizer may take, each rank's share of them, to be priced at all.
# An explanation asks for plans on devices with twice the memory, and nothing asks for more.
TOO_LARGE = 2.0


def priced(job: Job, cluster: Cluster, counts: list[int], fixed: Fixed) -> tuple[Space, StepCosts]:
    """All legal plans, and what each takes and holds: infinite seconds where it is far too large."""
    space = legal_space(job.model, job.sequence, job.train.global_batch, counts, fixed, cluster.devices)
    uneven = "stages" in fixed or isinstance(fixed.get("recompute"), tuple)
    held = np.zeros(len(space)) if uneven else _states(work_of(job, cluster, space.work_columns()))
    large = held > TOO_LARGE * cluster.device.memory_gib * GIB
    some = np.flatnonzero((space.columns["recompute"] == SOME) & ~large)
    keep = space.columns["recompute"] != SOME
    if len(some):
        # plans whose layers recompute as far as memory asks for: of no use where nothing or everything must
        count, needed = recomputing_least(work_of(job, cluster, space.take(some).work_columns()), cluster)
        space.columns["recomputed"][some] = count
        keep[some] = needed
    if not keep.all():
        space, held, large = space.take(keep), held[keep], large[keep]
    step = _of_those_that_may_fit(job, cluster, space, held, large & ~_for_layers_to_choose(space))
    return space, _uneven(step, counts_recompute=len(job.model.shapes) == 1) if uneven else step


def _states(work: Work) -> np.ndarray:
    """Bytes of weights and optimizer that a rank holds as a mean, and so the fullest at least; those that are sharded
    are not counted.
    """

    def held(some: Work) -> tuple[np.ndarray]:
        parameters = memory.layer_parameters(some) * some.layers / some.pipeline
        kept = np.where((some.zero < 2) | (some.replicas == 1), memory.state_bytes(some).kept, 0.0)
        return (np.broadcast_to(parameters * kept, max(1, len(some))),)

    if not len(work):
        return np.zeros(0)
    degrees = (work.tensor, work.context, work.pipeline, work.data, work.expert, work.whole_experts)
    found = once(work, (*degrees, work.zero, work.sharing), held).of(slice(None))[0]
    return np.asarray(np.broadcast_to(found, len(work)))


def _for_layers_to_choose(space: Space) -> np.ndarray:
    """Splits whose layers may choose for themselves: they are priced however large they are without that."""
    columns = space.columns
    several = columns["data"] * columns["context"] > 1
    return np.asarray((columns["recompute"] == RECOMPUTE.index("none")) & (columns["zero"] == several))


def _of_those_that_may_fit(job: Job, cluster: Cluster, space: Space, held: np.ndarray, large: np.ndarray) -> StepCosts:
    if not large.any():
        return closed_form(work_of(job, cluster, space.work_columns()), cluster)
    rows = np.flatnonzero(~large)
    step = closed_form(work_of(job, cluster, space.take(rows).work_columns()), cluster)
    columns = np.zeros((len(step.columns), len(space)))
    columns[:, rows] = step.columns
    priced = StepCosts.of(columns, cluster)
    priced.seconds[large] = priced.at_least[large] = np.inf
    priced.memory[large] = priced.memory_at_least[large] = held[large]
    priced.fits[large] = False
    return priced


def _uneven(step: StepCosts, counts_recompute: bool) -> StepCosts:
    """Stages, or words of layers, that are given need not be even: then no rank's share is known, only all of them.

    Where layers differ, it may be the quick ones that recompute: how long that takes is not known then.
    """
    busy = step.breakdown.compute + step.breakdown.recompute * counts_recompute
    at_least = np.asarray(busy + step.breakdown.tensor + step.breakdown.pipeline)
    return replace(step, at_least=at_least, memory_at_least=0 * at_least, fits=at_least < np.inf)
