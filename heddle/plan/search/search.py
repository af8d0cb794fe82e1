"""The best plan for a job: all legal plans priced at once, the best replayed action by action, their stages balanced.

    space  ──►  closed form  ──►  those that fit, ranked  ──►  the best, exactly  ──►  Search

Nothing here needs torch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from heddle.cost.compute import peak_flops
from heddle.cost.local_machine import measured_machine
from heddle.cost.work import work_of
from heddle.errors import HeddleError
from heddle.plan.search.objective import Objective, Wish
from heddle.plan.search.refine import improved
from heddle.plan.search.space import Fixed, Space, check_fixed, legal_space, read_fixed
from heddle.simulate.closed_form import Step, closed_form
from heddle.simulate.simulation import Simulation, simulate
from heddle.spec.cluster import GIB, Cluster
from heddle.spec.job import Job
from heddle.spec.plan import Plan
from heddle.spec.tables import to_table

ACTIONS = 150_000  # that are replayed at most to tell the best plans apart: a fraction of a second
REPLAYED = 24  # plans at least, if they are not too long
IMPROVED = 4  # of the best
TOGETHER = 8  # counts of devices that are priced at once
ALIKE = 0.001  # share of the step time within which two plans count as equally fast


@dataclass(frozen=True)
class Point:
    """A plan that no other beats in both time and memory, as the closed form sees it."""

    plan: Plan
    step_seconds: float
    memory_gib: float


@dataclass(frozen=True)
class Search:
    """What a search found. `plans` are ranked and simulated exactly; `front` trades time for memory."""

    job: Job  # with the best plan
    cluster: Cluster
    wish: Wish
    plans: tuple[Simulation, ...]
    considered: int
    feasible: int
    seconds: float
    front: tuple[Point, ...]
    space: Space = field(repr=False)
    step: Step = field(repr=False)

    def __repr__(self) -> str:
        return f"<Search: the best of {self.feasible:,} plans that fit, {self.best!r}>"

    @property
    def best(self) -> Simulation:
        """The first choice."""
        return self.plans[0]

    def rank(self, plan: Plan) -> int | None:
        """The place of a plan among all feasible ones, from 1, by the closed form; None if it is not feasible."""
        at = self.space.where(plan)
        if at is None or not self.step.fits[at]:
            return None
        key = _keys(self.wish, self.step, self.space)[0]
        return 1 + int(np.sum(key[self.step.fits] < key[at]))

    def to_json(self, top: int | None = None) -> dict[str, Any]:
        """Plain data, with the keys that `heddle plan --json` prints."""
        return {
            "plans": [summary(found) for found in self.plans[:top]],
            "considered": self.considered,
            "feasible": self.feasible,
            "seconds": self.seconds,
            "objective": self.wish.objective,
            "front": [
                {"plan": to_table(point.plan), "step_seconds": point.step_seconds, "memory_gib": point.memory_gib}
                for point in self.front
            ],
        }


def summary(found: Simulation) -> dict[str, Any]:
    """A plan and what it is predicted to do, as plain data."""
    worst = found.worst / GIB
    return {
        "plan": to_table(found.plan),
        "devices": found.plan.world,
        "step_seconds": found.step_seconds,
        "tokens_per_second": found.tokens_per_second,
        "mfu": found.mfu,
        "worst_stage_gib": worst,
        "headroom_gib": found.limit / GIB - worst,
        "bubble": found.bubble,
    }


def search(
    job: Job,
    *,
    objective: Objective = "fastest",
    fixed: dict[str, Any] | None = None,
    top: int = 10,
    devices: int | None = None,
    memory_gib: float | None = None,
    days: float | None = None,
    tokens: float | None = None,
) -> Search:
    """Find the best plan for a job's model and batch on its cluster; the job's own plan is not looked at.

    Args:
        job: what is trained, and on what; without a cluster, on this machine.
        objective: "fastest" step; "cheapest", in device-seconds, and "fewest" devices that meet the deadline of
            `days`, both on at most all of the cluster's devices; "smallest" memory.
        fixed: fields of the plan that are decided, such as {"tensor": 8}.
        top: how many plans to simulate exactly and return, best first.
        devices: use this many of the cluster's devices.
        memory_gib: use at most this much of a device's memory.
        days: the deadline.
        tokens: what is learned from until then; the job's steps if left out.

    """
    began = time.perf_counter()
    cluster = within(measured_machine(job.cluster), memory_gib)
    job = replace(job, cluster=cluster, plan=None)
    wish = Wish(objective, read_fixed(fixed or {}), days, tokens)
    counts = device_counts(cluster, wish, devices)
    check_fixed(job.model, job.sequence, job.train.global_batch, counts, wish.fixed)
    considered = 0
    for group in groups(job, cluster, wish, counts):
        space, step = priced(job, cluster, group, wish.fixed)
        considered += len(space)
        in_time = replace(step, fits=step.fits & (step.seconds <= wish.limit(job)))
        # what fits in closed form by a hair may not when it is looked at exactly
        if best := ranked(list(exactly(job, space, in_time, wish, top)), wish):
            best = ranked([*(improved(found, wish) for found in best[:IMPROVED]), *best[IMPROVED:]], wish)
            break
    else:
        if step.fits.any() and not in_time.fits.any():
            raise too_slow(job, wish, space, step)
        from heddle.plan.search.nothing_fits import nothing_fits

        raise nothing_fits(job, cluster, wish, counts)
    step = in_time
    return Search(
        job=best[0].job,
        cluster=cluster,
        wish=wish,
        plans=tuple(best[:top]),
        considered=considered,
        feasible=int(step.fits.sum()),
        seconds=time.perf_counter() - began,
        front=_front(space, step),
        space=space,
        step=step,
    )


def within(cluster: Cluster, memory_gib: float | None) -> Cluster:
    """The cluster with at most that much memory a device."""
    if memory_gib is None:
        return cluster
    return replace(cluster, device=replace(cluster.device, memory_gib=min(memory_gib, cluster.device.memory_gib)))


def device_counts(cluster: Cluster, wish: Wish, devices: int | None) -> list[int]:
    """How many devices a plan may use: all of them, unless using fewer is the point.

    Then any number inside a node, and whole nodes: each number up to 32, beyond that every second, fourth, …, so that
    thousands of nodes remain a few dozen counts.
    """
    most = cluster.world if devices is None else devices
    if not 1 <= most <= cluster.world:
        raise HeddleError(
            f"A plan cannot use {most} devices.",
            f"Cluster '{cluster.name}' has {cluster.world}.",
            f"Use from 1 to {cluster.world}, or set cluster.nodes.",
        )
    if wish.objective in ("fastest", "smallest"):
        return [most]
    nodes = [n for n in range(1, most // cluster.devices + 1) if n % (1 << max(0, n.bit_length() - 6)) == 0]
    return sorted({most, *range(1, min(most, cluster.devices) + 1), *(n * cluster.devices for n in nodes)})


def groups(job: Job, cluster: Cluster, wish: Wish, counts: list[int]) -> Iterator[list[int]]:
    """Counts to price together. For the fewest devices few at a time, from where the deadline comes into reach."""
    if wish.objective != "fewest":
        yield counts
        return
    alone = job.model.flops(job.train.global_batch, job.sequence) / peak_flops(cluster, job.train.precision)
    within_reach = [count for count in counts if alone / count <= wish.limit(job)] or counts[-1:]
    yield from (within_reach[start : start + TOGETHER] for start in range(0, len(within_reach), TOGETHER))


def priced(job: Job, cluster: Cluster, counts: list[int], fixed: Fixed) -> tuple[Space, Step]:
    """All legal plans, and what each takes and holds."""
    space = legal_space(job.model, job.sequence, job.train.global_batch, counts, fixed)
    return space, closed_form(work_of(job, cluster, space.work_columns()), cluster)


def exactly(job: Job, space: Space, step: Step, wish: Wish, top: int) -> Iterator[Simulation]:
    """The best by the closed form, simulated exactly; only what fits."""
    keys = _keys(wish, step, space)
    chosen = np.flatnonzero(step.fits)
    order = chosen[np.lexsort([key[chosen] for key in reversed(keys)])]
    found = actions = 0
    for index in order:
        plan = space.plan(int(index))
        actions += 2 * plan.chunks * plan.microbatches(job.train.global_batch)
        if found >= top and (found >= max(top, REPLAYED) or actions > ACTIONS):
            return
        simulation = simulate(replace(job, plan=plan))
        if simulation.fits:
            found += 1
            yield simulation


def ranked(found: list[Simulation], wish: Wish) -> list[Simulation]:
    """The best first; among those that no model tells from the best, the simplest first."""
    found = sorted(found, key=lambda each: wish.of(each))
    if not found:
        return found
    first = found[0]
    alike = [
        each
        for each in found
        if each.plan.world == first.plan.world and each.step_seconds <= first.step_seconds * (1 + ALIKE)
    ]
    if wish.objective == "smallest":
        alike = [first]
    return [*sorted(alike, key=lambda each: _parts(each.plan)), *(each for each in found if each not in alike)]


def _parts(plan: Plan) -> tuple[int, ...]:
    """How much of the machinery a plan needs: shards, collectives along the tensor axis, chunks, recomputing."""
    return plan.zero, plan.tensor, plan.sequence, plan.pipeline, plan.virtual, plan.recompute != "none"


def _keys(wish: Wish, step: Step, space: Space) -> tuple[np.ndarray, ...]:
    devices = space.columns["tensor"] * space.columns["pipeline"] * space.columns["data"]
    return wish.key(step.seconds, step.memory, devices)


def _front(space: Space, step: Step) -> tuple[Point, ...]:
    """Plans that no other beats in both time and memory, the fastest first."""
    chosen = np.flatnonzero(step.fits)
    order = chosen[np.lexsort((step.memory[chosen], step.seconds[chosen]))]
    least = np.minimum.accumulate(step.memory[order])
    new = np.concatenate([[True], least[1:] < least[:-1]])
    return tuple(
        Point(space.plan(int(index)), float(step.seconds[index]), float(step.memory[index]) / GIB)
        for index in order[new]
    )


def too_slow(job: Job, wish: Wish, space: Space, step: Step) -> HeddleError:
    """Say how long the fastest plan takes, and how many devices the deadline would take."""
    at = int(np.flatnonzero(step.fits)[np.argmin(step.seconds[step.fits])])
    plan, limit = space.plan(at), wish.limit(job)
    assert wish.days is not None
    needed = wish.days * float(step.seconds[at]) / limit
    return HeddleError(
        f"No plan meets a deadline of {wish.days:g} days.",
        f"The fastest that fits, on {plan.world} devices, takes {needed:.3g} days.",
        f"Use about {int(np.ceil(plan.world * needed / wish.days))} devices, or allow {np.ceil(needed):.0f} days.",
    )
