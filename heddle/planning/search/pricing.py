"""Legal plans with their prices: what the search ranks, and what tells why nothing fits or what would help."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from heddle.cost.fits import fits
from heddle.cost.work import Work, work_of
from heddle.format import GIB
from heddle.planning.search.given import Fixed
from heddle.planning.search.legal import RECOMPUTE, SOME
from heddle.planning.search.space import Space, legal_space
from heddle.planning.search.splits import Kept, SplitGroup, Splits
from heddle.simulating.closed_form import closed_form, recomputing_least, step_bytes, step_seconds
from heddle.simulating.floors import MeanBytes, least_seconds
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job

NEAR = 8192  # plans that fit whose seconds are asked for first: those of the least work
REACH = 1.1  # times what the quickest of these takes: what works no longer than that is promising
MANY = 16_384  # splits whose activations are looked at before their plans are written: of fewer that takes longer
NONE, FULL = RECOMPUTE.index("none"), RECOMPUTE.index("full")

# All legal plans; those that may fit, and one for each split in which layers may choose for themselves; and of those
# only the promising ones, as long as nothing else is asked for.
Scope = Literal["all", "fitting", "near"]


@dataclass(frozen=True)
class SpaceCosts:
    """What each plan of a space takes and holds."""

    seconds: np.ndarray  # where they are not known, as `at_least`
    at_least: np.ndarray  # that a replay is never below
    memory: np.ndarray  # bytes of the fullest rank; of what is far too large, as `memory_at_least`
    memory_at_least: np.ndarray
    fits: np.ndarray  # by that
    known: np.ndarray  # whether seconds are

    @property
    def horizon(self) -> float:
        """Seconds that no plan takes less than whose seconds are not known; those that matter to nobody aside."""
        return float(np.min(self.at_least[~self.known], initial=np.inf))


def priced(
    job: Job, cluster: Cluster, counts: list[int], fixed: Fixed, scope: Scope = "all"
) -> tuple[Space, SpaceCosts]:
    """Legal plans, and what each takes and holds."""
    uneven = "stages" in fixed or isinstance(fixed.get("recompute"), tuple)
    floors = None if scope == "all" or uneven else _Floors(job, cluster, fixed)
    space = legal_space(job.model, job.sequence, job.train.global_batch, counts, fixed, cluster.devices, floors)
    space = _recomputing(job, cluster, space)
    if uneven or floors is None:
        step = closed_form(work_of(job, cluster, space.work_columns()), cluster)
        columns = step.seconds, step.at_least, step.memory, step.memory_at_least
        if uneven:
            # Stages, or words of layers, that are given need not be even: then no rank's share is known, only all of
            # them. Where layers differ, it may be the quick ones that recompute: how long that takes is not known then.
            breakdown = step.breakdown
            busy = breakdown.compute + breakdown.recompute * (len(job.model.shapes) == 1)
            least = np.asarray(busy + breakdown.tensor + breakdown.pipeline)
            columns = step.seconds, least, step.memory, 0 * least
        every = np.ones(len(space), dtype=bool)
        return space, SpaceCosts(*columns, np.asarray(fits(columns[-1], cluster.device)), every)
    return space, _costs(job, cluster, space, floors.limit, near=scope == "near")


def _costs(job: Job, cluster: Cluster, space: Space, limit: float, near: bool) -> SpaceCosts:
    """Bytes of the plans that may fit; seconds of those that do, and of those for layers to choose in."""
    held = space.floor * (1 + cluster.efficiency.slack)
    least, may_fit = held.copy(), np.flatnonzero(space.floor <= limit)
    held[may_fit], least[may_fit] = step_bytes(_work(job, cluster, space, may_fit), cluster)
    fit = np.asarray(fits(least, cluster.device))
    fit[space.floor > limit] = False
    chooses = for_layers_to_choose(space.columns)
    wanted = np.flatnonzero(fit | chooses)
    at_least = np.full(len(space), np.inf)
    known = np.ones(len(space), dtype=bool)
    at_least[wanted] = least_seconds(_work(job, cluster, space, wanted), cluster)
    known[wanted] = False
    costs = SpaceCosts(at_least.copy(), at_least, held, least, fit, known)
    fitting = np.flatnonzero(fit)
    if not near or len(fitting) <= NEAR:
        return with_seconds(job, cluster, space, costs, wanted)
    first = fitting[np.argpartition(at_least[fitting], NEAR)[:NEAR]]
    costs = with_seconds(job, cluster, space, costs, first)
    reach = REACH * costs.seconds[first].min()
    return with_seconds(job, cluster, space, costs, np.flatnonzero(~costs.known & (at_least <= reach)))


def with_seconds(job: Job, cluster: Cluster, space: Space, costs: SpaceCosts, rows: np.ndarray) -> SpaceCosts:
    """The same with the seconds of some more plans."""
    seconds, at_least, known = costs.seconds.copy(), costs.at_least.copy(), costs.known.copy()
    seconds[rows], at_least[rows] = step_seconds(_work(job, cluster, space, rows), cluster)
    known[rows] = True
    return replace(costs, seconds=seconds, at_least=at_least, known=known)


def _work(job: Job, cluster: Cluster, space: Space, rows: np.ndarray) -> Work:
    return work_of(job, cluster, space.take(rows).work_columns())


def _recomputing(job: Job, cluster: Cluster, space: Space) -> Space:
    """Plans whose layers recompute as far as memory asks for: of no use where nothing or everything must."""
    some = np.flatnonzero(space.columns["recompute"] == SOME)
    if not len(some):
        return space
    count, needed = recomputing_least(work_of(job, cluster, space.take(some).work_columns()), cluster)
    space.columns["recomputed"][some] = count
    keep = space.columns["recompute"] != SOME
    keep[some] = needed
    return space.take(keep)


class _Floors:
    """Which plans are worth a row: those that may fit by the mean over ranks, and those for layers to choose in."""

    def __init__(self, job: Job, cluster: Cluster, fixed: Fixed) -> None:
        self.job, self.cluster, self.fixed = job, cluster, fixed
        self.limit = cluster.device.memory_gib * GIB / (1 + cluster.efficiency.slack) * (1 + 1e-9)

    def __call__(self, splits: Splits) -> Kept:
        columns = splits.columns
        like = dict.fromkeys(("virtual", "recompute", "schedule", "recomputed"), np.zeros_like(columns["tensor"]))
        like["virtual"] = like["virtual"] + 1
        space = Space(self.job.model.layers, columns | like, self.fixed, np.zeros(len(splits)))
        work = work_of(self.job, self.cluster, space.work_columns())
        held = MeanBytes(work, self.job.model.shape_of, RECOMPUTE)
        many = len(splits) >= MANY
        chooses = for_layers_to_choose(columns | {"recompute": like["recompute"]})

        def kept(group: SplitGroup) -> tuple[np.ndarray, np.ndarray]:
            orders = [(group.pipeline, form.virtual, group.microbatches, form.schedule) for form in group.forms]
            words = [FULL if word == SOME else word for word in group.words]
            shape = len(group.rows), len(orders), len(words)
            least = held.of(group.rows, words, orders) if many else np.broadcast_to(held.states_of(group.rows), shape)
            wanted = least <= self.limit
            if NONE in group.words:
                wanted[chooses[group.rows], :, group.words.index(NONE)] = True
            return wanted, least

        return kept


def for_layers_to_choose(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Splits whose layers may choose for themselves: they are there however large they are without that."""
    several = columns["data"] * columns["context"] > 1
    return np.asarray((columns["recompute"] == NONE) & (columns["zero"] == several))
