"""The one door to a plan: `best(job)` searches a cluster or a network, whichever the job has."""

from __future__ import annotations

from dataclasses import replace

from heddle.planning.regions.network_search import NetworkSearch, search_network
from heddle.planning.request import PlanRequest
from heddle.planning.search.describe import in_words, planned_in_words
from heddle.planning.search.late import late_plans
from heddle.planning.search.ordered import ordered_plans
from heddle.planning.search.search import Search, search
from heddle.schedule.written import SEARCHED
from heddle.spec.job import Job, PlannedJob
from heddle.spec.network import in_words as network_in_words


def best(job: Job, request: PlanRequest | None = None) -> Search | NetworkSearch:
    """The best plans for a job, best first; its own plan is ignored. What does not apply to it is refused."""
    request = request or PlanRequest()
    request.check_for(job)
    if job.network is not None:
        return search_network(job, request.fixed, request.top, allowed=request.allow_compression)
    found = search(job, request)
    if request.fixed.get("schedule") == SEARCHED:
        found = replace(found, searched=tuple(ordered_plans(found.plans)))
    if request.allow_delay:
        found = replace(found, late=tuple(late_plans(found.plans)))
    return found


def with_best_plan(job: Job, devices: int | None = None) -> tuple[PlannedJob, Search | NetworkSearch | None]:
    """The job with its own plan, or with the best one and the search that found it.

    A job without a plan means the same to every command, so every command asks here.
    """
    if job.plan is not None:
        return job.planned, None
    found = best(job, PlanRequest(devices=devices))
    predicted = found.best.predicted
    if isinstance(found, Search):
        predicted = replace(predicted, rank=1, feasible=found.feasible)
    return replace(job.with_plan(found.best.plan), predicted=predicted), found


def choice_in_words(found: Search | NetworkSearch) -> str:
    """What a job without a [plan] got, and for what; said wherever one is planned."""
    if isinstance(found, Search):
        return planned_in_words(found.best, found.feasible)
    chosen = found.best
    return (
        f"Planned over {network_in_words(found.network)}: "
        f"{in_words(chosen.plan)}; {chosen.step_seconds:.3g} s per step. `heddle plan --explain` says why."
    )
