"""Piper for a runtime whose stages all work alike: one tensor degree, one data degree, one way of everything else.

Then only the borders of the stages and the memory options of the layers are left to choose, so every pair of degrees
is a search of its own, which ends at once where it cannot beat the best so far.
"""

from __future__ import annotations

import dataclasses
import time

from heddle.graph.deadline import OutOfTime
from heddle.planning.piper.pace import Piper
from heddle.planning.piper.result import PiperPlan
from heddle.planning.piper.stages import DegreeTable
from heddle.spec.job import Job
from heddle.spec.layer_memory import Recompute
from heddle.spec.plan import Plan


def solve_uniform(piper: Piper, devices: int, known: PiperPlan | None = None) -> PiperPlan | None:
    """The best pipeline with the same degrees in all stages, at least as good as a known one; None: nothing fits.

    Raises:
        OutOfTime: the deadline came before any plan was known.
    """
    started = time.perf_counter()
    alike: dict[tuple[int, str, int], list[DegreeTable]] = {}
    for table in piper.tables:
        for data in table.data if table.options.available.all() else ():
            if data * table.tensor <= devices:
                alike.setdefault((table.tensor, table.options.how, data), []).append(table)
    best, bounds, optimal = known, [], True
    try:
        for (_, _, data), tables in alike.items():
            fewer = piper.only(tables, data)
            if best is not None and fewer.cover(best.value * (1 - 1e-9), devices).needed is None:
                continue
            found = fewer.solve(devices, best)
            if found is not None:
                best, optimal = found, optimal and found.optimal
                bounds.append(found.lower_bound)
    except OutOfTime:
        if best is None:
            raise
        optimal = False
        bounds.append(float(piper.work[-1]) / devices)
    if best is None:
        return None
    bound = best.value if optimal else min(best.value, *bounds)
    return dataclasses.replace(best, lower_bound=bound, optimal=optimal, seconds=time.perf_counter() - started)


def runtime_plan(job: Job, pipeline: PiperPlan, microbatch: int) -> Plan:
    """What a uniform pipeline for a job's model is as a plan that `heddle train` runs."""
    stages = pipeline.stages
    words: list[Recompute] = []
    for stage in stages:
        for layer, option in zip(stage.layers, stage.options, strict=True):
            if isinstance(layer, int):  # the two ends have no word
                words.append(option)  # type: ignore[arg-type]
    how = stages[0].how
    plan = Plan(
        tensor=stages[0].tensor,
        sequence="sequence" in how,
        pipeline=len(stages),
        data=stages[0].data,
        zero=1 if "zero 1" in how else 0,
        microbatch=microbatch,
        stages=tuple(sum(isinstance(layer, int) for layer in stage.layers) for stage in stages),
        recompute=words[0] if len(set(words)) == 1 else tuple(words),
    )
    plan.check(job.model, job.train.global_batch, job.sequence)
    return plan
