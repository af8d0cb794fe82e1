"""The best split together with the best strategies of its layers: splits in the order of what they promise.

A family is a split of the work: tensor, pipeline, virtual, data, microbatch. What it takes if memory were no object
bounds it from below; what the layers of its first stage, which holds most microbatches, have to pay for fitting at all
makes that an estimate. The estimate is a relaxation, in closed form: layers may take parts of several strategies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from heddle.cost import memory
from heddle.cost.local_machine import machine_for
from heddle.cost.offload import Away, away, states
from heddle.cost.work import work_of
from heddle.format import GIB
from heddle.plan.layer_memory.options import Option, legal, options, useful
from heddle.plan.layer_memory.solve import best_strategies, tiers_of, zeros_of
from heddle.plan.search.objective import SearchGoal
from heddle.plan.search.space import RECOMPUTE, Space
from heddle.schedule import rule_of
from heddle.simulate.closed_form import StepCosts
from heddle.simulate.simulation import Simulation
from heddle.simulate.stage_memory import bytes_of, of_a_layer
from heddle.spec.job import Job
from heddle.spec.layer_memory import LayerMemory
from heddle.spec.plan import Plan

ESTIMATED = 192  # families whose estimate is looked at, the lowest bounds first
SOLVED = 6  # families that are solved, the lowest estimates first
BY_LAYER = ("recompute", "zero", "offload", "layers")  # what is chosen here


def best_by_layer(
    job: Job, space: Space, step: StepCosts, wish: SearchGoal, than: Simulation | None, gain: float = 0.0
) -> Simulation | None:
    """The best plan whose layers choose for themselves, where it beats what was found without by more than `gain`.

    How many families are looked at is a count, not a time: the same job has the same plan on every machine.
    """
    if any(name in wish.fixed for name in BY_LAYER):
        return None
    best: Simulation | None = None

    def beaten(key: tuple[float, ...]) -> bool:
        """Whether that is no better than what there is already."""
        if best is not None and key >= wish.of(best):
            return True
        return than is not None and key >= tuple(value * (1 - gain) for value in wish.of(than))

    def look_into(plan: Plan) -> None:
        nonlocal best
        found = best_strategies(replace(job, plan=plan))
        if found is not None and found.step_seconds <= wish.limit(job) and not beaten(wish.of(found)):
            best = found

    if than is not None and pays(than.plan):  # the split that was found, first of all
        look_into(replace(than.plan, recompute="none"))
    for key, plan in list(_estimated(job, space, step, wish, beaten))[:SOLVED]:
        if beaten(key):
            break
        look_into(plan)
    return best


def pays(plan: Plan) -> bool:
    """Whether a plan spends time on needing less memory."""
    return plan.recompute != "none" or (plan.zero >= 2 and plan.data > 1)


def _estimated(
    job: Job, space: Space, step: StepCosts, wish: SearchGoal, beaten: Callable[[tuple[float, ...]], bool]
) -> Iterator[tuple[tuple[float, ...], Plan]]:
    """Families that may be worth it, each with its estimate, the lowest first."""
    zero = np.where(space.columns["data"] > 1, 1, 0)
    plain = (space.columns["recompute"] == RECOMPUTE.index("none")) & (space.columns["zero"] == zero)
    rows = np.flatnonzero(plain & (step.at_least <= wish.limit(job)))
    bounds = wish.key(step.at_least, np.zeros(len(space)), space.devices)
    order = rows[np.lexsort([np.asarray(key)[rows] for key in reversed(bounds)])]
    found = []
    known: dict[Plan, _StageLayers] = {}
    for row in order[:ESTIMATED]:
        if beaten(tuple(float(np.asarray(key)[row]) for key in bounds)):
            break
        plan = space.plan(int(row))
        alike = _without_chunks(plan)
        if alike not in known:
            known[alike] = _StageLayers.of(replace(job, plan=alike))
        extra = known[alike].extra_seconds(plan, job)
        if extra is not None:
            key = wish.key(float(step.at_least[row]) + extra, 0.0, int(space.devices[row]))
            found.append((tuple(map(float, key)), plan))
    yield from sorted(found, key=lambda each: each[0])


def _without_chunks(plan: Plan) -> Plan:
    """What the price of a layer depends on: splits that differ in chunks alone share it."""
    return replace(plan, virtual=1, stages=(), schedule="1f1b") if plan.virtual > 1 else replace(plan, stages=())


class _StageLayers(NamedTuple):
    """The layers of a first stage: their options, and the room that they have between them."""

    options: list[Option]  # of the shape that most layers have
    away: list[Away]  # what each of them keeps on the host
    room: float
    host_room: float
    alike: bool  # whether all layers have that shape

    @classmethod
    def of(cls, job: Job) -> _StageLayers:
        job = job.planned
        plan = job.plan
        cluster = machine_for(job.cluster, plan.world)
        work = work_of(job, cluster)
        shape_of = job.model.shape_of
        usual = max(set(shape_of), key=shape_of.count)
        strategies = list(legal(plan, tiers_of(cluster), zeros_of(plan)))
        shape = work.each_shape[usual][1]
        every = useful(options(cluster, shape, plan, plan.microbatches(job.train.global_batch), strategies))
        ends = float(memory.end_parameters(work, True, plan.pipeline == 1))
        own = states(work, ends, LayerMemory("none", plan.zero, ()))
        limit = cluster.device.memory_gib * GIB / (1 + cluster.efficiency.slack)
        held = bytes_of(of_a_layer(shape))
        left = [away(shape, o.memory, "host", held.saved[o.memory.recompute], held.parameters) for o in every]
        room = limit - own.weights - own.gradients - own.optimizer
        host = cluster.device.host_gib
        return cls(every, left, room, np.inf if host is None else host * GIB, len(set(shape_of)) == 1)

    def extra_seconds(self, plan: Plan, job: Job) -> float | None:
        """Seconds per step that fitting costs the first stage at least; None: it cannot fit."""
        microbatches = plan.microbatches(job.train.global_batch)
        flights = float(rule_of(plan.schedule).in_flight(plan.pipeline, microbatches, plan.virtual, 0)) / plan.virtual
        layers = job.model.layers / plan.pipeline
        gone = np.array([each.always + flights * each.each for each in self.away])
        some = [o for o, bytes_away in zip(self.options, gone, strict=True) if layers * bytes_away <= self.host_room]
        held = np.array([option.always + flights * option.left for option in some])
        seconds = np.array([option.seconds for option in some])
        each = self.room / layers
        if each < held.min():
            return None if self.alike else 0.0
        hull = _hull(held, seconds)
        return layers * float(np.interp(each, held[hull], seconds[hull]) - seconds.min())


def _hull(held: np.ndarray, seconds: np.ndarray) -> list[int]:
    """The lower convex hull, fewest bytes first, down to the quickest."""
    hull: list[int] = []
    for at in np.lexsort((seconds, held)):
        if hull and seconds[at] >= seconds[hull[-1]]:
            continue
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (seconds[b] - seconds[a]) * (held[at] - held[a]) < (seconds[at] - seconds[a]) * (held[b] - held[a]):
                break
            hull.pop()
        hull.append(int(at))
    return hull
