"""The best plan for a job: all legal plans priced at once, replayed while they may still win, ranked.

    space  ──►  closed form, with bounds  ──►  those that may be the best, exactly  ──►  ranked choices  ──►  Search

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
from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.plan.layer_memory.families import best_by_layer
from heddle.plan.search.candidates import Candidates, Choice
from heddle.plan.search.describe import in_words
from heddle.plan.search.late import without_update
from heddle.plan.search.nothing_fits import nothing_fits
from heddle.plan.search.objective import MARGIN, Objective, SearchGoal
from heddle.plan.search.ordered import without_order
from heddle.plan.search.pricing import priced
from heddle.plan.search.space import Space, check_fixed, read_fixed
from heddle.simulate.closed_form import StepCosts
from heddle.simulate.simulation import Simulation
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.plan import Plan
from heddle.spec.tables import to_table

TOGETHER = 8  # counts of devices that are priced at once


@dataclass(frozen=True)
class Point:
    """A plan that no other beats in both time and memory, as the closed form sees it."""

    plan: Plan
    step_seconds: float
    memory_gib: float


@dataclass(frozen=True)
class Search:
    """What a search found: `choices` are ranked and simulated exactly; `front` trades time for memory."""

    job: Job  # with the best plan
    cluster: Cluster
    wish: SearchGoal
    choices: tuple[Choice, ...]
    fastest: Simulation  # by the objective alone; the first choice may be simpler, and as good within the margin
    considered: int
    feasible: int
    seconds: float
    front: tuple[Point, ...]
    candidates: Candidates = field(repr=False)

    @property
    def plans(self) -> tuple[Simulation, ...]:
        """The choices' plans, the first choice first."""
        return tuple(choice.best for choice in self.choices)

    @property
    def best(self) -> Simulation:
        """The first choice."""
        return self.choices[0].best

    @property
    def space(self) -> Space:
        """All legal plans."""
        return self.candidates.space

    @property
    def step(self) -> StepCosts:
        """What each of them takes and holds, in closed form."""
        return self.candidates.step

    def __repr__(self) -> str:
        best = self.best
        return (
            f"<Search: {in_words(best.plan)}; {best.step_seconds:.4g} s per step, {best.worst / GIB:.3g} of "
            f"{best.limit / GIB:.3g} GiB; best of {self.feasible:,} that fit>"
        )

    def rank(self, plan: Plan) -> int | None:
        """The place of a plan among all feasible ones, from 1, by the closed form; None if it is not feasible."""
        at = self.space.where(plan)
        if at is None or not self.step.fits[at]:
            return None
        key = self.wish.key(self.step.seconds, self.step.memory, self.space.devices)[0]
        return 1 + int(np.sum(key[self.step.fits] < key[at]))

    def to_json(self, top: int | None = None) -> dict[str, Any]:
        """Plain data, with the keys that `heddle plan --json` prints."""
        return {
            "plans": [
                summary(choice.best) | {"variants": choice.variants, "variants_differ_in": list(choice.fields)}
                for choice in self.choices[:top]
            ],
            "fastest": summary(self.fastest),
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
    by_layer: bool | None = None,
) -> Search:
    """What `heddle.plan` does, for a job that is loaded; the arguments are described there (`heddle.api.plan`)."""
    began = time.perf_counter()
    cluster = within(measured_machine(job.cluster), memory_gib)
    job = replace(job, cluster=cluster, plan=None)
    wish = SearchGoal(objective, read_fixed(without_order(without_update(fixed or {}))), days, tokens)
    counts = device_counts(cluster, wish, devices)
    check_fixed(job.model, job.sequence, job.train.global_batch, counts, wish.fixed)
    considered = 0
    for group in groups(job, cluster, wish, counts):
        space, step = priced(job, cluster, group, wish.fixed)
        considered += len(space)
        candidates = Candidates(job, space, step, wish)
        # what fits in closed form by a hair may not when it is looked at exactly
        choices = candidates.choices(top)
        own = None
        than = choices[0].best if choices else None
        short = than is None or memory_gib is not None
        if by_layer or (by_layer is None and short and (than is None or wish.objective != "smallest")):
            # unasked, layers that choose for themselves must be worth it: faster by more than a prediction is off
            own = best_by_layer(job, space, step, wish, than, 0.0 if by_layer else MARGIN)
        if own is not None:
            choices = [Choice(own, 1, ()), *choices]
        if choices:
            break
    else:
        if (fits := Candidates(job, space, step, SearchGoal("fastest", wish.fixed)).best()) is not None:
            raise too_slow(job, wish, fits)
        raise nothing_fits(job, cluster, wish, counts)
    step = replace(step, fits=step.fits & (step.at_least <= wish.limit(job)))
    plain = [candidates.fastest] if candidates.best() is not None else []
    return Search(
        job=choices[0].best.job,
        cluster=cluster,
        wish=wish,
        choices=tuple(choices),
        fastest=min([*plain, *(choice.best for choice in choices)], key=wish.of),
        considered=considered,
        feasible=int(step.fits.sum()),
        seconds=time.perf_counter() - began,
        front=_front(space, step),
        candidates=candidates,
    )


def within(cluster: Cluster, memory_gib: float | None) -> Cluster:
    """The cluster with at most that much memory per device."""
    if memory_gib is None:
        return cluster
    return replace(cluster, device=replace(cluster.device, memory_gib=min(memory_gib, cluster.device.memory_gib)))


def device_counts(cluster: Cluster, wish: SearchGoal, devices: int | None) -> list[int]:
    """How many devices a plan may use: all of them, unless using fewer is the point.

    Then any number inside a node, and whole nodes: each number up to 32, beyond that every second, fourth, …, so that
    thousands of nodes remain a few dozen counts.
    """
    most = cluster.world if devices is None else devices
    if not 1 <= most <= cluster.world:
        raise HeddleError(
            f"A plan cannot use {most} devices.",
            f"Cluster '{cluster.name}' has {cluster.world}.",
            f"Use 1 to {cluster.world}, or set cluster.nodes.",
        )
    if wish.objective in ("fastest", "smallest"):
        return [most]
    nodes = [n for n in range(1, most // cluster.devices + 1) if n % (1 << max(0, n.bit_length() - 6)) == 0]
    return sorted({most, *range(1, min(most, cluster.devices) + 1), *(n * cluster.devices for n in nodes)})


def groups(job: Job, cluster: Cluster, wish: SearchGoal, counts: list[int]) -> Iterator[list[int]]:
    """Counts to price together. For the fewest devices few at a time, from where the deadline comes into reach."""
    if wish.objective != "fewest":
        yield counts
        return
    alone = job.model.flops(job.train.global_batch, job.sequence) / peak_flops(cluster, job.precision)
    within_reach = [count for count in counts if alone / count <= wish.limit(job)] or counts[-1:]
    yield from (within_reach[start : start + TOGETHER] for start in range(0, len(within_reach), TOGETHER))


def _front(space: Space, step: StepCosts) -> tuple[Point, ...]:
    """Plans that no other beats in both time and memory, the fastest first."""
    chosen = np.flatnonzero(step.fits)
    if not len(chosen):
        return ()
    order = chosen[np.lexsort((step.memory[chosen], step.seconds[chosen]))]
    least = np.minimum.accumulate(step.memory[order])
    new = np.concatenate([[True], least[1:] < least[:-1]])
    return tuple(
        Point(space.plan(int(index)), float(step.seconds[index]), float(step.memory[index]) / GIB)
        for index in order[new]
    )


def too_slow(job: Job, wish: SearchGoal, fastest: Simulation) -> HeddleError:
    """Say how long the fastest plan takes, and how many devices the deadline would take."""
    assert wish.days is not None
    devices, needed = fastest.plan.world, wish.days * fastest.step_seconds / wish.limit(job)
    return HeddleError(
        f"No plan meets a deadline of {wish.days:g} days.",
        f"The fastest that fits, on {devices} devices, takes {needed:.3g} days.",
        f"Use about {int(np.ceil(devices * needed / wish.days))} devices, or allow {np.ceil(needed):.0f} days.",
    )
