"""Plans of a job over a network, by the step that is predicted over its very links: degrees, schedule, who holds what.

DT-FM's objective knows neither fill, overlap, microbatches nor memory. Here it only proposes layouts; each is replayed
with every schedule, and the best of each set of degrees is improved: devices exchanged, layers moved to stages whose
devices are faster, samples to replicas that are. Tensor-parallel ranks are neighbors inside a group.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np

from heddle.errors import HeddleError, divisors
from heddle.planning.fields import FIELDS, Use
from heddle.planning.regions.coded import WORTH, milder, with_codes
from heddle.planning.regions.cost import laid_out
from heddle.planning.regions.problem import Ints, Problem, problem_from
from heddle.planning.regions.solve import solve
from heddle.planning.regions.starts import pipelines_inside, stages_inside
from heddle.planning.regions.walk import NetworkPlan, exchanged, measured, walked
from heddle.schedule import RULES, rule_of
from heddle.simulating.network.over_network import OverNetwork
from heddle.spec.axes import Coordinates
from heddle.spec.job import Job
from heddle.spec.network import Network
from heddle.spec.plan import Plan
from heddle.spec.ranks import rank_of
from heddle.spec.rules.even import even_stages

# by which latency is paid for less and less, and memory more and more
SCHEDULES: tuple[tuple[str, int | None], ...] = tuple(
    sorted(
        ((rule.name, extra) for rule in RULES.values() for extra in rule.over_network),
        key=lambda one: int(rule_of(*one).in_flight(8, 1024, 1, 0)),
    )
)
FEW = 4  # devices of which all layouts are tried
WALKED = 2  # sets of degrees that are looked at for as long as there is time
GRACE = 2.0  # seconds beyond the limit in which layers may still move
MOST_MICROBATCHES = 256  # of a replica: more of them make messages that are all latency


def plans_over(
    job: Job,
    network: Network,
    time_limit: float = 20.0,
    top: int = 5,
    fixed: dict[str, Any] | None = None,
    allowed: str | None = None,
) -> list[NetworkPlan]:
    """The best plans over all devices of a network, the fastest first: of each set of degrees the best one.

    What the job's [plan] says of codes, local steps and recomputation holds for all of them; `fixed` are degrees,
    microbatch or schedule that are decided. `allowed` is the narrowest code that links may use; None: all are exact.
    """
    end = time.process_time() + time_limit
    fixed = fixed or {}
    best: dict[tuple[int, int, int, bool], NetworkPlan] = {}
    plans_of: dict[tuple[int, int, int], list[Plan]] = {}
    shapes = list(_shapes(job, network, fixed))
    for place, (tensor, stages, replicas) in enumerate(shapes):
        share = max(0.05, (end - time.process_time()) / 2 / (len(shapes) - place))
        layouts = list(_layouts(job, network, tensor, stages, replicas, share))
        plans = list(_with_and_without(_plans(job, tensor, stages, replicas, fixed), network, allowed))
        plans_of[tensor, stages, replicas] = plans
        for plan in plans:
            priced = OverNetwork(replace(job, plan=plan, network=None), network, range(network.devices))
            for layout in layouts:
                key = tensor, stages, replicas, bool(plan.codes)
                below = best[key].step.seconds if key in best else math.inf
                found = measured(priced, _devices(plan, layout), below)
                if found is not None and (key not in best or found.step.seconds < best[key].step.seconds):
                    best[key] = found
            if time.process_time() > end and best:
                break
    if not best:
        raise HeddleError(
            f"No plan for the {network.devices} devices of {network.name!r} divides the batch and fits.",
            f"Tensor degree, stages and replicas multiply to {network.devices}, replicas divide global_batch = "
            f"{job.train.global_batch}, and each stage fits into its device.",
            "Use another global_batch, recompute = 'full' in [plan], or more devices.",
        )
    order = sorted(best.values(), key=_preference)[:top]
    draws, improved = np.random.default_rng(0), list[NetworkPlan]()
    for place, found in enumerate(order):
        better = exchanged(job, network, found, end)
        few = network.devices // found.plan.tensor <= FEW  # of which all layouts were tried
        if place < WALKED and not few:
            now = time.process_time()
            until = now + (end - now) / (1.5 if place == 0 else 2)  # most for the most promising
            better = walked(job, network, better, plans_of[found.degrees], until, draws)
        improved.append(_layers_moved(job, network, better, end))
    if allowed is not None:
        improved = [_milder(job, network, each) for each in improved]
    return sorted(improved, key=_preference)


def _with_and_without(plans: Iterator[Plan], network: Network, allowed: str | None) -> Iterator[Plan]:
    """Each plan, and the same with codes where these are allowed."""
    for plan in plans:
        yield plan
        if allowed is not None and (coded := with_codes(plan, network, allowed)) is not None:
            yield coded


def _preference(found: NetworkPlan) -> float:
    """The fastest first; codes only where they are worth it."""
    return found.step.seconds * (1 + WORTH if found.plan.codes else 1)


def _milder(job: Job, network: Network, found: NetworkPlan) -> NetworkPlan:
    if not found.plan.codes:
        return found
    plan = milder(job, network, found.plan, found.devices)
    step = OverNetwork(replace(job, plan=plan, network=None), network, found.devices).step
    return NetworkPlan(plan, found.devices, step)


def _shapes(job: Job, network: Network, fixed: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
    """Degrees that use every device, tensor ranks inside one group."""
    sizes = [group.devices for group in network.groups]
    for tensor in job.model.tensor_degrees:
        if any(size % tensor for size in sizes) or fixed.get("tensor", tensor) != tensor:
            continue
        for stages in divisors(network.devices // tensor):
            replicas = network.devices // tensor // stages
            if stages > job.model.layers or job.train.global_batch % replicas:
                continue
            if fixed.get("pipeline", stages) == stages and fixed.get("data", replicas) == replicas:
                yield tensor, stages, replicas


def _plans(job: Job, tensor: int, stages: int, replicas: int, fixed: dict[str, Any]) -> Iterator[Plan]:
    given = job.plan or Plan()
    kept = [each.name for each in FIELDS if each.network is Use.KEPT and (replicas > 1 or not each.replicas)]
    same = {name: fixed.get(name, getattr(given, name)) for name in kept}
    share = job.train.global_batch // replicas
    orders = SCHEDULES if stages > 1 else SCHEDULES[:1]
    if "schedule" in fixed and stages > 1:
        depth = fixed.get("extra_warmup")
        named = [each for each in orders if each[0] == fixed["schedule"] and depth in (None, each[1])]
        orders = tuple(named) or ((fixed["schedule"], depth),)
    for microbatch in [fixed["microbatch"]] if "microbatch" in fixed else divisors(share):
        if share % microbatch or share // microbatch > MOST_MICROBATCHES:
            continue
        for schedule, extra in orders if share > microbatch else orders[:1]:
            yield Plan(
                tensor=tensor,
                pipeline=stages,
                data=replicas,
                microbatch=microbatch,
                schedule=schedule,
                extra_warmup=extra,
                **same,
            )


def _layouts(job: Job, network: Network, tensor: int, stages: int, replicas: int, seconds: float) -> Iterator[Ints]:
    """The first device of each tensor group, by stage and replica.

    All layouts where devices are few; else what DT-FM's objective finds best, and the two trivial ones.
    """
    firsts = np.arange(0, network.devices, tensor)
    if len(firsts) <= FEW:
        for order in permutations(firsts.tolist()):
            yield np.array(order).reshape(stages, replicas)
        return
    delay, speed = network.tables()
    element = 4 if job.precision == "fp32" else 2
    group_of = network.group_of
    problem: Problem = problem_from(
        [group_of[first] for first in firsts],
        delay[np.ix_(firsts, firsts)],
        speed[np.ix_(firsts, firsts)],
        stages=stages,
        replicas=replicas,
        gradients=4 * job.model.parameters / stages / tensor,
        activations=job.tokens_per_step / replicas * job.model.hidden * element / tensor,
    )
    for start in (pipelines_inside(problem), stages_inside(problem)):
        yield firsts[laid_out(problem, start).devices]
    yield firsts[solve(problem, seconds).layout.devices]


def _devices(plan: Plan, layout: Ints) -> tuple[int, ...]:
    """The device of each rank."""
    devices = np.empty(plan.world, dtype=np.int64)
    for stage, replica in np.ndindex(layout.shape):
        for tensor in range(plan.tensor):
            at = rank_of(plan, Coordinates(tensor=tensor, data=replica, pipeline=stage))
            devices[at] = layout[stage, replica] + tensor
    return tuple(devices.tolist())


def _layers_moved(job: Job, network: Network, found: NetworkPlan, end: float) -> NetworkPlan:
    """The same with single layers moved to other stages, as long as that helps: the model's ends weigh, too."""
    stages = list(found.plan.stages or even_stages(job.model.layers, found.plan.chunks))
    better = len(stages) > 1
    while better:
        better = False
        for a, b in permutations(range(len(stages)), 2):
            if time.process_time() > end + GRACE:
                return found
            if stages[a] == 1:
                continue
            moved = [layers - (place == a) + (place == b) for place, layers in enumerate(stages)]
            plan = replace(found.plan, stages=tuple(moved))
            priced = OverNetwork(replace(job, plan=plan, network=None), network, found.devices)
            if priced.step.seconds < found.step.seconds * (1 - 1e-9) and priced.verdict().fits:
                found, stages, better = NetworkPlan(plan, found.devices, priced.step), moved, True
    return found
