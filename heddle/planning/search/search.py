"""The best plan for a job: all legal plans priced at once, replayed while they may still win, ranked.

    space  ──►  closed form, with bounds  ──►  those that may be the best, exactly  ──►  ranked choices  ──►  Search

Nothing here needs torch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from heddle.cost.compute import peak_flops
from heddle.cost.measured.local_machine import measured_machine
from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.planning.layer_memory.solve import best_strategies
from heddle.planning.layer_memory.solve import within as with_memory
from heddle.planning.request import PlanRequest
from heddle.planning.search.candidates import LEAD, Candidates, Choice
from heddle.planning.search.describe import in_words
from heddle.planning.search.fixed import check_fixed, read_fixed
from heddle.planning.search.given import ALL
from heddle.planning.search.late import without_update
from heddle.planning.search.nothing_fits import nothing_fits
from heddle.planning.search.objective import MARGIN, SearchGoal
from heddle.planning.search.ordered import without_order
from heddle.planning.search.pricing import Scope, SpaceCosts, priced
from heddle.planning.search.space import Space
from heddle.schedule.registry import BY_DEFAULT, NAMES
from heddle.simulating.simulation import Simulation, simulate_if_fits
from heddle.spec.axes import DEGREES
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.plan import Plan
from heddle.spec.tables import to_table

SIZES = 24  # of memory, at most, for which the fastest plan is looked for in closed form
BUDGETS = 4  # between the least memory and all of it, for which layers choose again


@dataclass(frozen=True)
class Point:
    """A plan, exactly priced, that no other of these beats in both time and memory."""

    plan: Plan
    step_seconds: float
    memory_gib: float


@dataclass(frozen=True)
class Search:
    """What a search found: `choices` are ranked and simulated exactly; `front` trades time for memory."""

    job: Job  # with the best plan
    cluster: Cluster
    goal: SearchGoal
    choices: tuple[Choice, ...]
    fastest: Simulation  # by the objective alone; the first choice may be simpler, and as good within the margin
    considered: int
    feasible: int
    seconds: float
    promising: Candidates = field(repr=False)  # what was found among
    searched: tuple[Simulation, ...] = ()  # with orders found for them, if fixed to schedule = "searched"
    late: tuple[Simulation, ...] = ()  # faster ones with late updates, if allowed; the fastest first

    @property
    def plans(self) -> tuple[Simulation, ...]:
        """The choices' plans, the first choice first."""
        return tuple(choice.best for choice in self.choices)

    @property
    def best(self) -> Simulation:
        """The first choice."""
        return self.choices[0].best

    @property
    def chosen(self) -> Simulation:
        """What is to be run: the fastest of what was allowed or asked for beside the first choice, or that."""
        return (self.late or self.searched or self.plans)[0]

    @property
    def candidates(self) -> Candidates:
        """All plans that fit, or whose layers may choose for themselves; priced when that is first asked for."""
        return self.promising.whole

    @property
    def space(self) -> Space:
        """These."""
        return self.candidates.space

    @property
    def step(self) -> SpaceCosts:
        """What each of them takes and holds, in closed form."""
        return self.candidates.step

    def __repr__(self) -> str:
        best = self.best
        return (
            f"<Search: {in_words(best.plan)}; {best.step_seconds:.4g} s per step, {best.worst / GIB:.3g} of "
            f"{best.limit / GIB:.3g} GiB; best of {self.feasible:,}>"
        )

    def _repr_html_(self) -> str:
        from heddle.trace.notebook import table_html

        rows = [
            {
                "plan": in_words(each.plan),
                "step s": f"{each.step_seconds:.4g}",
                "tokens/s": f"{each.tokens_per_second:,.0f}",
                "MFU": f"{each.mfu:.1%}",
                "GiB": f"{each.worst / GIB:.3g}",
            }
            for each in self.plans
        ]
        return f"<p>{escape(repr(self))}</p>" + table_html(rows) + self.best._repr_html_()

    def plot(self, axes: Any = None) -> Any:
        """Draw the plans that no other beats in both time and memory, and mark the best; needs matplotlib."""
        from heddle.trace.plots import plot_plans

        points = [(point.memory_gib, point.step_seconds) for point in self.front]
        return plot_plans(points, (self.best.worst / GIB, self.best.step_seconds), axes)

    def to_frame(self) -> Any:
        """The ranked plans, a row each, as a pandas DataFrame."""
        from heddle.trace.frames import frame

        facts = [summary(each) for each in self.plans]
        return frame([each.pop("plan") | each for each in facts])

    def rank(self, plan: Plan) -> int | None:
        """The place of a plan among all feasible ones, from 1; None if it does not fit, or is too slow.

        It is priced exactly; others as far as that was needed, and by estimate beyond.
        """
        if plan == self.best.plan:
            return 1
        try:
            own = simulate_if_fits(self.job.with_plan(plan))
        except HeddleError:  # it is not legal for this job
            return None
        if own is None or own.step_seconds > self.goal.limit(self.job):
            return None
        places = {each.plan: place for place, each in enumerate(self.plans, 1)}
        at_best = places.get(own.plan, 2)  # only the first choice comes before plans that are as good, or faster
        if at_best == 1:
            return 1
        near = self.promising.reaches(own, complete=True)
        return max(at_best, 1 + (self.promising if near else self.candidates).better_than(own))

    @cached_property
    def front(self) -> tuple[Point, ...]:
        """Plans, each exactly priced, that no other of these beats in both time and memory; the fastest first.

        Looked for where it is asked for: among all plans that were priced, those of the closed form's own front, the
        smallest, and those between for which layers choose again.
        """
        found = {each.plan: each for each in (*self.plans, self.fastest, *self.candidates.exactly, *self._lean())}
        found |= {each.plan: each for row in self._closed_form_front() if (each := self.candidates.exact(row))}
        points, least = list[Point](), np.inf
        for each in sorted(found.values(), key=lambda each: (each.step_seconds, each.worst)):
            if each.worst < least:
                least = each.worst
                points.append(Point(each.plan, each.step_seconds, each.worst / GIB))
        return tuple(points)

    def _closed_form_front(self) -> list[int]:
        """Plans that no other beats in both by estimate, the fastest first; evenly chosen where there are many."""
        step, chosen = self.step, self.candidates.rows
        order = chosen[np.lexsort((step.memory[chosen], step.seconds[chosen]))]
        least = np.minimum.accumulate(step.memory[order])
        rows = order[np.concatenate([[True], least[1:] < least[:-1]])] if len(order) else order
        some = np.unique(np.linspace(0, len(rows) - 1, SIZES).round().astype(int)) if len(rows) > SIZES else slice(None)
        return [int(row) for row in rows[some]]

    def _lean(self) -> Iterator[Simulation]:
        """Plans whose layers choose for themselves within less memory, down to the smallest of all."""
        smallest = self.candidates.families.smallest
        if smallest is None:
            return
        yield smallest
        fastest = self.fastest
        if not fastest.plan.layers:  # which has no need of it
            return
        for split in (fastest, smallest):
            for budget in np.linspace(smallest.worst, fastest.worst, BUDGETS + 1, endpoint=False)[1:]:
                within_it = best_strategies(with_memory(split.job, float(budget) / GIB))
                found = None if within_it is None else simulate_if_fits(self.job.with_plan(within_it.plan))
                if found is not None and found.step_seconds <= self.goal.limit(self.job):
                    yield found

    @cached_property
    def other_schedule(self) -> Simulation | None:
        """The split of the best plan with whichever other schedule is the fastest; None: it is fixed, or none fits."""
        others = self._other_schedules
        return None if others is None else others.hopeful()

    @cached_property
    def faster_schedule(self) -> Simulation | None:
        """The same, but only where it is faster than the best by more than the margin: few are hoped to be."""
        if (others := self._other_schedules) is None:
            return None
        worth = self.goal.less(self.goal.of(self.best), MARGIN)
        found = others.among(others.hopes[0] * (1 - LEAD) < worth[0]).beating(self.best)
        return found if found is not None and found.step_seconds < (1 - MARGIN) * self.best.step_seconds else None

    @cached_property
    def _other_schedules(self) -> Candidates | None:
        """The split of the best plan with all schedules but the usual ones."""
        best = self.best.plan
        if best.pipeline == 1 or "schedule" in self.goal.fixed:
            return None
        split = {name: getattr(best, name) for name in (*DEGREES, "microbatch")}
        fixed = {**self.goal.fixed, **split, "schedule": ALL}
        space, step = priced(self.job, self.cluster, [best.world], fixed, "fitting")
        every = Candidates(self.job, space, step, self.goal, self.candidates.by_layer)
        usual = [NAMES.index(name) for name in BY_DEFAULT]
        return every.among(~np.isin(space.columns["schedule"], usual))

    @property
    def tokens(self) -> float:
        """To train on: those that were asked for, or those of the job's steps."""
        return self.goal.tokens or float(self.job.train.steps * self.job.tokens_per_step)

    def to_json(self, top: int | None = None, price: float | None = None) -> dict[str, Any]:
        """Plain data, with the keys that `heddle plan --json` prints; `price`: dollars per device-hour."""

        def told(found: Simulation) -> dict[str, Any]:
            dollars = {} if price is None else {"dollars": found.dollars(self.tokens, price)}
            return summary(found) | {"days": found.days(self.tokens)} | dollars

        return {
            "plans": [
                told(choice.best) | {"variants": choice.variants, "variants_differ_in": list(choice.fields)}
                for choice in self.choices[:top]
            ],
            "fastest": told(self.fastest),
            "tokens": self.tokens,
            "considered": self.considered,
            "feasible": self.feasible,
            "seconds": self.seconds,
            "objective": self.goal.objective,
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
        **({} if found.error_bar is None else found.error_bar.to_json()),
        "tokens_per_second": found.tokens_per_second,
        "mfu": found.mfu,
        "worst_stage_gib": worst,
        "headroom_gib": found.limit / GIB - worst,
        "bubble": found.bubble,
    }


def by_layer_of(job: Job, request: PlanRequest) -> bool | None:
    """Whether layers may choose for themselves; moments in eight bits stay on the device, so there they may not."""
    if job.train.optimizer != "adamw8bit":
        return request.by_layer
    if request.by_layer:
        raise HeddleError(
            "--by-layer does not go with train.optimizer = 'adamw8bit'.",
            "Strategies of layers may offload moments, which are updated in full precision there.",
            "Leave --by-layer out, or use optimizer = 'adamw'.",
        )
    return False


def search(job: Job, request: PlanRequest | None = None) -> Search:
    """The best plans for a job on a cluster; `heddle.planning.best` is for any job."""
    request = request or PlanRequest()
    by_layer, top = by_layer_of(job, request), request.top
    began = time.perf_counter()
    cluster = within(measured_machine(job.cluster), request.memory_gib)
    job = replace(job, cluster=cluster, plan=None)
    fixed = read_fixed(without_order(without_update(request.fixed)))
    if job.train.optimizer == "muon" and any(job.model.expert_counts):  # which puts together what tensor ranks split
        fixed.setdefault("expert_tensor", 0)
    goal = SearchGoal(request.objective, fixed, request.days, request.tokens)
    counts = device_counts(cluster, goal, request.devices)
    check_fixed(job.model, job.sequence, job.train.global_batch, counts, goal.fixed)
    considered = 0
    alone = goal.objective == "fastest" and goal.days is None and cluster.cores is None
    scope: Scope = "near" if alone else "fitting"
    for group in groups(job, cluster, goal, counts):
        space, step = priced(job, cluster, group, goal.fixed, scope)
        candidates = Candidates(job, space, step, goal, by_layer)
        # what fits in closed form by a hair may not when it is looked at exactly
        best = candidates.fastest
        legal, feasible = candidates.counted  # whatever is looked at after the best is found
        choices = candidates.choices(top)
        if best is None or not candidates.reaches(choices[-1].best, len(choices) == top):
            candidates = candidates.whole
            best, choices = candidates.fastest, candidates.choices(top)
        considered += legal
        if choices:
            break
    else:
        free = Candidates(job, space, step, SearchGoal("fastest", goal.fixed), by_layer)
        if goal.days is not None and (fits := free.fastest) is not None:
            raise too_slow(job, goal, fits)
        raise nothing_fits(job, cluster, goal, counts, by_layer is not False)
    assert best is not None
    if by_layer and candidates.own is not None:  # who asks for it gets it for any gain
        choices = [choice for choice in choices if choice.best is not candidates.own]
        choices = [Choice(candidates.own, 0, ()), *choices][:top]
    return Search(
        job=choices[0].best.job,
        cluster=cluster,
        goal=goal,
        choices=tuple(choices),
        fastest=min([best, *(choice.best for choice in choices)], key=goal.of),
        considered=considered,
        feasible=feasible,
        seconds=time.perf_counter() - began,
        promising=candidates,
    )


def within(cluster: Cluster, memory_gib: float | None) -> Cluster:
    """The cluster with that much memory per device."""
    device = cluster.device
    if memory_gib is None:
        return cluster
    if memory_gib > device.memory_gib:
        raise HeddleError(
            f"--memory-gib {memory_gib:g} is more than a device has.",
            f"{device.name} has {device.memory_gib:.4g} GiB; the option limits what a plan may use of it.",
            f"Use at most {device.memory_gib:.4g}, or describe larger devices with cluster.device.memory_gib.",
        )
    return replace(cluster, device=replace(device, memory_gib=memory_gib))


def device_counts(cluster: Cluster, goal: SearchGoal, devices: int | None) -> list[int]:
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
    if goal.objective in ("fastest", "smallest"):
        return [most]
    nodes = [n for n in range(1, most // cluster.devices + 1) if n % (1 << max(0, n.bit_length() - 6)) == 0]
    return sorted({most, *range(1, min(most, cluster.devices) + 1), *(n * cluster.devices for n in nodes)})


def groups(job: Job, cluster: Cluster, goal: SearchGoal, counts: list[int]) -> Iterator[list[int]]:
    """Counts to price together. For the fewest devices one after the other, from where the deadline is in reach."""
    if goal.objective != "fewest":
        yield counts
        return
    alone = job.flops() / peak_flops(cluster, job.precision)
    within_reach = [count for count in counts if alone / count <= goal.limit(job)] or counts[-1:]
    yield from ([count] for count in within_reach)


def too_slow(job: Job, goal: SearchGoal, fastest: Simulation) -> HeddleError:
    """Say how long the fastest plan takes, and how many devices the deadline would take."""
    assert goal.days is not None
    devices, needed = fastest.plan.world, goal.days * fastest.step_seconds / goal.limit(job)
    return HeddleError(
        f"No plan meets a deadline of {goal.days:g} days.",
        f"The fastest that fits, on {devices} devices, takes {needed:.3g} days.",
        f"Use about {int(np.ceil(devices * needed / goal.days))} devices, or allow {np.ceil(needed):.0f} days.",
    )
