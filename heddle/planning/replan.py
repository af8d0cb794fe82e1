"""Another plan for a run that has fewer devices than its own plan takes: a node was lost, and training goes on.

Checkpoints know no layout, so any plan may follow any other. What a plan computes must stay the same; only where it is
computed may change.
"""

from __future__ import annotations

from dataclasses import replace

from heddle.cost.measured.local_machine import machine_for
from heddle.errors import HeddleError
from heddle.planning.best import best
from heddle.planning.fields import Use, default, over_cluster
from heddle.planning.request import PlanRequest
from heddle.planning.search.describe import in_words
from heddle.spec.job import Job, PlannedJob
from heddle.spec.ranks import split_in_words, world_in_words

NEAR = 8  # counts below that of the devices that are looked at: an odd one may be slower than the next even one


def replanned(job: PlannedJob, count: int) -> PlannedJob:
    """The job under the fastest plan for at most that many devices, and what is predicted of it."""
    if (reason := not_replannable(job)) is not None:
        raise HeddleError(
            f"{count} processes are there, but the plan needs {world_in_words(job.plan)}.",
            f"The run cannot be planned anew: {reason}.",
            f"Start it again with {job.plan.world} processes, or with a plan of your own for fewer.",
        )
    found: list[PlannedJob] = []
    reasons: list[HeddleError] = []
    for devices in range(count, 0, -1):
        if devices <= count - NEAR and found:
            break
        try:
            found.append(_best(job, devices))
        except HeddleError as error:
            reasons.append(error)
    if not found:
        raise HeddleError(
            f"{count} of the plan's {job.plan.world} devices are left, and no plan for them fits.",
            f"{reasons[0].what} {reasons[0].why}",
            f"Start the run again with {job.plan.world} processes.",
        )
    return min(found, key=_seconds)


def _seconds(job: PlannedJob) -> float:
    assert job.predicted is not None
    return job.predicted.step_seconds


def _best(job: PlannedJob, devices: int) -> PlannedJob:
    fixed = {name: getattr(job.plan, name) for name in over_cluster(Use.KEPT)}
    fixed = {name: value for name, value in fixed.items() if value != default(name)}
    # this machine is described for as many processes as it is to run; a cluster knows its size
    cluster = machine_for(None, devices) if job.cluster is None else job.cluster
    chosen = best(replace(job, cluster=cluster), PlanRequest(devices=devices, fixed=fixed)).best
    return replace(job.with_plan(chosen.plan), predicted=chosen.predicted)


def not_replannable(job: Job) -> str | None:
    """Why another split would compute something else than the plan; None if it would not."""
    plan = job.plan
    assert plan is not None
    if job.network is not None:
        return "it runs over a [network], whose links are part of its plan"
    if job.train.meeting is not None:
        return "it is one of several sites, which count on its share of the work"
    if plan.local_steps:
        return "with local_steps, the number of replicas is part of what is computed"
    if plan.late is not None:
        return f"with update = {plan.update!r}, the number of stages is part of what is computed"
    return None


def in_words_for(given: PlannedJob, now: PlannedJob, count: int) -> str:
    """What became of a plan, for whoever reads the run's output."""
    idle = f", {count - now.plan.world} of them idle" if count > now.plan.world else ""
    return (
        f"{count} of {given.plan.world} devices are left{idle}. The run goes on under a plan for them: "
        f"{in_words(now.plan)}; {_seconds(now):.3g} s per step predicted. "
        f"It returns to {split_in_words(given.plan)} when the others are back."
    )
