"""A job without a [plan] gets the best one for where it is trained."""

from __future__ import annotations

from dataclasses import replace

from heddle.data import check_named
from heddle.errors import HeddleError
from heddle.planning.best import with_best_plan
from heddle.planning.regions.network_search import NetworkSearch
from heddle.planning.search.search import Search
from heddle.runs.folder import Run, refuse_existing
from heddle.runs.given_plan import given_plan
from heddle.runtime.environment import launched_place
from heddle.spec.job import Job, load_job
from heddle.spec.this_machine import this_machine


def plan_to_train(job: Job, resume: bool = False, dry_run: bool = False) -> tuple[Job, Search | NetworkSearch | None]:
    """The job with its plan, or with the best one and the search that found it, if it can be trained from here."""
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
        plan, predicted = given_plan(Run(job.run_folder), load_job(before))
        return replace(job, plan=plan, predicted=predicted), None
    here = this_machine().devices
    if job.cluster is not None and job.cluster.world > here and not dry_run:
        raise HeddleError(
            f"The job's cluster has {job.cluster.world} devices, but this machine has {here}.",
            "A job without a [plan] is planned for its cluster, and trained where it is started.",
            "Write a plan with `heddle plan JOB.toml -o plan.toml`, and start it there: see `heddle launch`.",
        )
    if not dry_run:  # said before a machine is measured
        refuse_existing(job)
        check_named(job.corpus, job.model.vocab)
    return with_best_plan(job, devices=1 if place is not None else None)
