"""The least memory that any plan can do with: every layer as lean as can be, in every split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from heddle.cost.measured.local_machine import machine_for
from heddle.cost.work import work_of
from heddle.format import GIB
from heddle.planning.layer_memory.estimates import leanest_bytes
from heddle.planning.layer_memory.options import lean_ends, leanest
from heddle.planning.layer_memory.solve import tiers_of, zeros_of
from heddle.planning.layer_memory.tier_memory import fits_host, tier_bytes
from heddle.planning.search.space import Space
from heddle.simulating.simulation import Simulation, simulate
from heddle.simulating.stage_memory import stage_memory
from heddle.spec.axes import DEGREES
from heddle.spec.job import Job, PlannedJob
from heddle.spec.layer_memory import LayerMemory
from heddle.spec.plan import Plan

SPLITS = 8  # that are looked at exactly


class Lean(NamedTuple):
    """The plan of a split that holds least on its fullest device, and how much that is."""

    bytes: float
    row: int
    job: PlannedJob


def smallest_by_layer(job: Job, space: Space) -> Simulation | None:
    """The plan that holds least on its fullest device, whether it fits or not; None: nothing may leave a device."""
    least = min(lean_plans(job, space, np.arange(len(space))), key=lambda lean: lean.bytes, default=None)
    return None if least is None else simulate(least.job)


def lean_plans(job: Job, space: Space, rows: np.ndarray) -> Iterator[Lean]:
    """Of each split among some plans the one that holds least, whether it fits or not."""
    for row, split in _splits(job, space, rows):
        found: Lean | None = None
        for plan in _lean(replace(job, plan=split).planned):
            own = replace(job, plan=plan).planned
            cluster = machine_for(own.cluster, plan.world)
            work, schedule = work_of(own, cluster), plan.order_of_work(job.train.global_batch)
            worst = max(float(breakdown.total) for breakdown in stage_memory(own, own.plan, work, schedule, cluster)[0])
            if found is None or worst < found.bytes:
                found = Lean(worst, row, own)
        if found is not None:
            yield found


def _lean(job: PlannedJob) -> Iterator[Plan]:
    """The leanest ways of one split: all layers alike, or as many of them as the host has room for."""
    assert job.cluster is not None
    tiers = tiers_of(job.cluster)
    plan = lean_ends(job.plan, tiers)
    cluster = machine_for(job.cluster, plan.world)
    work, schedule = work_of(job, cluster), plan.order_of_work(job.train.global_batch)
    stays = LayerMemory("full", max(zeros_of(plan)), ())
    for memory in leanest(plan, tiers, zeros_of(plan), job.model.own):
        whole = plan.with_memory([memory] * job.model.layers)
        held = tier_bytes(replace(job, plan=whole).planned, work, schedule, "host")
        if fits_host(held, cluster):
            yield whole
        elif (room := cluster.device.host_gib) is not None:
            share = room * GIB / max(held)
            # of every so many layers as many, so that all stages get their part
            every = [memory if int((n + 1) * share) > int(n * share) else stays for n in range(job.model.layers)]
            some = plan.with_memory(every)
            if fits_host(tier_bytes(replace(job, plan=some).planned, work, schedule, "host"), cluster):
                yield some


def _splits(job: Job, space: Space, rows: np.ndarray) -> Iterator[tuple[int, Plan]]:
    """Splits, each once, with what needs least: few samples at a time, one chunk per stage, sequences split.

    Of many those whose first stage needs least by estimate.
    """
    columns = {name: column[rows] for name, column in space.columns.items()}
    order = np.lexsort((columns["virtual"], columns["microbatch"], -columns["sequence"]))
    known: dict[tuple[int, ...], int] = {}
    for at in order:
        known.setdefault(tuple(int(columns[name][at]) for name in DEGREES), int(rows[at]))
    some = np.array(list(known.values()), dtype=np.int64)
    if len(some) > SPLITS:
        some = some[np.argsort(leanest_bytes(job, space, some), kind="stable")[:SPLITS]]
    for row in some.tolist():
        plan = space.plan(row)
        yield row, replace(plan, recompute="none", zero=1 if plan.replicas > 1 else 0)
