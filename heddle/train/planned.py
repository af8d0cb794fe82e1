"""A job that says nothing of how it is to be split gets the best plan for where it runs."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import HeddleError
from heddle.plan.regions.network_search import search_network
from heddle.plan.search.search import Search, search
from heddle.runtime.environment import launched_place
from heddle.spec.job import Job, load_job
from heddle.spec.this_machine import this_machine


def with_plan(job: Job, resume: bool = False, dry_run: bool = False) -> tuple[Job, Search | None]:
    """The job with its plan, or with the best one, and then the search that found it."""
    if job.plan is not None:
        return job, None
    place = launched_place()
    if place is not None and place.world > 1:
        raise HeddleError(
            f"{place.world} processes were started, but the job has no [plan].",
            "Each of them would plan on its own, and they might not agree.",
            "Plan once with `heddle plan JOB.toml -o plan.toml`, then train plan.toml.",
        )
    before = job.run_folder / "job.toml"
    if resume and before.exists():  # a run goes on as it began: only so are its numbers the same to the bit
        return replace(job, plan=load_job(before).plan), None
    here = this_machine().devices
    if job.cluster is not None and job.cluster.world > here and not dry_run:
        raise HeddleError(
            f"The job's cluster has {job.cluster.world} devices, but this machine has {here}.",
            "A job without a [plan] is planned for its cluster, and trained where it is started.",
            "Write a plan with `heddle plan JOB.toml -o plan.toml`, and start it there: see `heddle launch`.",
        )
    if job.network is not None:
        best = search_network(job).best
        return replace(job, plan=best.plan, predicted=best.predicted), None
    found = search(job, devices=1 if place is not None else None)
    return replace(job, plan=found.best.plan, predicted=found.best.predicted), found
