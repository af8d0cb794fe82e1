"""Plans of a job over a network, by the step that is predicted over its very links: degrees, schedule, who holds what.

DT-FM's objective knows neither fill, overlap, microbatches nor memory. Here it only proposes layouts; each is replayed
with every schedule, and the best of each pair of degrees is improved by exchanging devices as long as that helps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, permutations

import numpy as np

from heddle.cost.local_machine import machine_for
from heddle.errors import HeddleError, divisors
from heddle.plan.regions.cost import laid_out
from heddle.plan.regions.problem import Ints, Problem, problem_from
from heddle.plan.regions.solve import solve
from heddle.plan.regions.starts import pipelines_inside, stages_inside
from heddle.simulate.over_network import NetworkStep, step_over_network
from heddle.simulate.stage_memory import memory_verdict
from heddle.spec.job import Job
from heddle.spec.network import Network
from heddle.spec.plan import Plan
from heddle.spec.ranks import Coordinates, rank_of

# by which latency is paid for less and less, and memory more and more
SCHEDULES: tuple[tuple[str, int | None], ...] = (("1f1b", None), ("deep-1f1b", 1), ("deep-1f1b", 3), ("gpipe", None))
FEW = 4  # devices of which all layouts are tried
MOST_MICROBATCHES = 256  # of a replica: more of them make messages that are all latency


@dataclass(frozen=True)
class NetworkPlan:
    """A plan, the device of each of its ranks, and what a step takes."""

    plan: Plan
    devices: tuple[int, ...]
    step: NetworkStep


def plans_over(job: Job, network: Network, time_limit: float = 20.0, top: int = 5) -> list[NetworkPlan]:
    """The best plans over all devices of a network, the fastest first: of each pair of degrees the best one.

    What the job's [plan] says of codes, local steps and recomputation holds for all of them.
    """
    end = time.process_time() + time_limit
    best: dict[tuple[int, int], NetworkPlan] = {}
    shapes = [p for p in divisors(network.devices) if p <= job.model.layers]
    for place, stages in enumerate(shapes):
        replicas = network.devices // stages
        if job.train.global_batch % replicas:
            continue
        share = max(0.05, (end - time.process_time()) / 2 / (len(shapes) - place))
        layouts = list(_layouts(job, network, stages, replicas, share))
        for plan in _plans(job, stages, replicas):
            given = replace(job, plan=plan)
            if not memory_verdict(given, machine_for(job.cluster, plan.world)).fits:
                continue
            for layout in layouts:
                found = _tried(given, plan, network, layout)
                if (stages, replicas) not in best or found.step.seconds < best[stages, replicas].step.seconds:
                    best[stages, replicas] = found
    if not best:
        raise HeddleError(
            f"No plan for the {network.devices} devices of {network.name!r} divides the batch and fits.",
            f"Stages and replicas multiply to {network.devices}, replicas divide global_batch = "
            f"{job.train.global_batch}, and each stage fits into its device.",
            "Use another global_batch, recompute = 'full' in [plan], or more devices.",
        )
    order = sorted(best.values(), key=lambda each: each.step.seconds)[:top]
    improved = [_exchanged(job, network, each, end) for each in order]
    return sorted(improved, key=lambda each: each.step.seconds)


def _plans(job: Job, stages: int, replicas: int) -> Iterator[Plan]:
    given = job.plan or Plan()
    local = given.local_steps if replicas > 1 else 0
    share = job.train.global_batch // replicas
    for microbatch in divisors(share):
        if share // microbatch > MOST_MICROBATCHES:
            continue
        for schedule, extra in SCHEDULES if stages > 1 and share > microbatch else SCHEDULES[:1]:
            yield Plan(
                pipeline=stages,
                data=replicas,
                microbatch=microbatch,
                schedule=schedule,
                extra_warmup=extra,
                recompute=given.recompute,
                compress_gradients=given.compress_gradients,
                compress_activations=given.compress_activations,
                local_steps=local,
            )


def _layouts(job: Job, network: Network, stages: int, replicas: int, seconds: float) -> Iterator[Ints]:
    """All of them where devices are few; else what DT-FM's objective finds best, and the two trivial ones."""
    if network.devices <= FEW:
        for order in permutations(range(network.devices)):
            yield np.array(order).reshape(stages, replicas)
        return
    delay, speed = network.tables()
    element = 4 if job.precision == "fp32" else 2
    problem: Problem = problem_from(
        network.group_of,
        delay,
        speed,
        stages=stages,
        replicas=replicas,
        gradients=4 * job.model.parameters / stages,
        activations=job.tokens_per_step / replicas * job.model.hidden * element,
    )
    for start in (pipelines_inside(problem), stages_inside(problem)):
        yield laid_out(problem, start).devices
    yield solve(problem, seconds).layout.devices


def _tried(job: Job, plan: Plan, network: Network, layout: Ints) -> NetworkPlan:
    devices = np.empty(plan.world, dtype=np.int64)
    for stage, replica in np.ndindex(layout.shape):
        devices[rank_of(plan, Coordinates(data=replica, pipeline=stage))] = layout[stage, replica]
    placed = tuple(devices.tolist())
    return NetworkPlan(plan, placed, step_over_network(job, network, placed))


def _exchanged(job: Job, network: Network, found: NetworkPlan, end: float) -> NetworkPlan:
    """The same with devices exchanged, two at a time, as long as that helps and time is left."""
    given = replace(job, plan=found.plan)
    better = True
    while better:
        better = False
        for a, b in combinations(range(len(found.devices)), 2):
            if time.process_time() > end:
                return found
            devices = list(found.devices)
            devices[a], devices[b] = devices[b], devices[a]
            step = step_over_network(given, network, devices)
            if step.seconds < found.step.seconds * (1 - 1e-9):
                found, better = NetworkPlan(found.plan, tuple(devices), step), True
    return found
