"""How much faster the best plan would be on a machine, or with a batch, that is larger in one respect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from heddle.cost.work import work_of
from heddle.format import GIB
from heddle.planning.layer_memory.solve import best_strategies
from heddle.planning.search.candidates import Candidates
from heddle.planning.search.objective import SearchGoal
from heddle.planning.search.pricing import priced
from heddle.planning.search.search import Search
from heddle.simulating.closed_form import closed_form
from heddle.simulating.simulation import Simulation, simulate_if_fits
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job

QUICK, TRIED = 4000, 3  # plans that are priced for another machine, and of these how many are replayed


def gains_of(search: Search) -> Iterator[tuple[str, float]]:
    """How much faster the best plan would be with more of one thing, the plan chosen anew."""
    job, cluster = search.job, search.cluster
    base = search.fastest.step_seconds if search.goal.objective == "fastest" else _fastest(search, job, cluster)
    device = cluster.device
    larger: list[tuple[str, Job, Cluster]] = [
        (
            f"twice the memory ({2 * device.memory_gib:.4g} GiB)",
            job,
            replace(cluster, device=replace(device, memory_gib=2 * device.memory_gib)),
        )
    ]
    for place, link in enumerate(cluster.links):
        links = [replace(each, gbs=2 * each.gbs) if i == place else each for i, each in enumerate(cluster.links)]
        larger.append((f"twice as fast a link '{link.name}'", job, replace(cluster, links=tuple(links))))
    batch = 2 * job.train.global_batch
    larger.append((f"twice the batch ({batch})", replace(job, train=replace(job.train, global_batch=batch)), cluster))
    for change, wanted, machine in larger:
        tokens = wanted.tokens_per_step / job.tokens_per_step
        yield change, max(1.0, base / _fastest(search, wanted, machine) * tokens)


def _fastest(search: Search, job: Job, cluster: Cluster) -> float:
    """Seconds of a fast plan for another job or machine, on as many devices; at worst the same plan there."""
    goal = SearchGoal("fastest", search.goal.fixed)
    job = replace(job, plan=None, predicted=None, cluster=cluster)
    same = replace(job, plan=search.fastest.plan)
    again = best_strategies(same) if search.fastest.plan.layers else simulate_if_fits(same)
    found = [each for each in (again, *_quickest(search, job, cluster)) if each is not None]
    if not found:  # the plan chosen anew from all
        counts = [search.best.plan.world]
        anew = Candidates(job, *priced(job, cluster, counts, goal.fixed, "fitting"), goal).fastest
        return np.inf if anew is None else anew.step_seconds
    return min(each.step_seconds for each in found)


def _quickest(search: Search, job: Job, cluster: Cluster) -> Iterator[Simulation]:
    """The quickest there, about, of the plans that are quick here; with more memory, of all that fit then."""
    space, step = search.space, search.step
    if cluster.device.memory_gib > search.cluster.device.memory_gib:
        space, step = priced(job, cluster, [search.best.plan.world], search.goal.fixed, "near")
    alike = np.flatnonzero(space.devices == search.best.plan.world)
    space = space.take(alike[np.argsort(step.seconds[alike], kind="stable")[:QUICK]])
    there = closed_form(work_of(job, cluster, space.work_columns()), cluster)
    fitting = np.flatnonzero(there.fits & (there.memory <= cluster.device.memory_gib * GIB))
    for row in fitting[np.argsort(there.seconds[fitting], kind="stable")[:TRIED]]:
        plan = space.plan(int(row))
        found = simulate_if_fits(replace(job, plan=plan))
        if found is not None:
            yield found
