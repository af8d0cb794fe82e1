"""Networks of many devices that are unlike: never worse than trivial, random and the published search's layouts.

Regions of unequal size, places by distance, a hierarchy, hubs, single machines in noise; slow members; devices that
compute unequally fast. Brute force is out of reach here (`test_regions.py` has it): other searches are the yardstick.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lib.genetic import genetic
from heddle.planning.regions import Problem, costs_of, problem_from, solve
from heddle.planning.regions.for_job import _plans, _shapes, plans_over
from heddle.simulating.network.over_network import OverNetwork
from heddle.spec.cluster import Device, Peak
from heddle.spec.network import DeviceGroup, GroupLink, Network, Speed
from tests.planning.regions.test_for_job import JOB

FEW = [(3, 4), (4, 3), (6, 2), (2, 8), (4, 4), (5, 4), (4, 6)]
SHAPES = [*FEW, (7, 4), (4, 8), (12, 2), (6, 6), (3, 13), (10, 4), (8, 8)]
KINDS = ("regions", "plane", "hierarchy", "hubs", "powers", "noise")


def uneven(seed: int, shapes: list[tuple[int, int]], kind: str | None = None) -> Problem:
    """A network that is drawn: how places differ, how many there are, who is slow, and how large gradients are."""
    draws = np.random.default_rng(seed)
    stages, replicas = shapes[draws.integers(len(shapes))]
    kind = kind or str(draws.choice(KINDS))
    n = stages * replicas
    count = int(draws.integers(2, max(3, n // 3) + 1))
    cuts = np.sort(draws.choice(np.arange(1, n), size=count - 1, replace=False))
    place = np.repeat(np.arange(count), np.diff([0, *cuts, n]))
    if draws.random() < 0.3:  # in no order
        place = draws.permutation(place)
    at = np.ix_(place, place)
    if kind == "regions":
        late, fast = draws.uniform(5, 150, (count, count))[at], draws.uniform(0.2, 3, (count, count))[at]
    elif kind == "plane":
        points = draws.uniform(size=(count, 2))
        far = np.linalg.norm(points[:, None] - points, axis=2)[at]
        late, fast = 5 + 200 * far, 0.3 + 2 * np.maximum(0, 1 - far) ** 2
    elif kind == "hierarchy":
        continent = draws.integers(0, 3, count)[place]
        near = continent[:, None] == continent
        late, fast = np.where(near, 20.0, 150.0), np.where(near, 2.0, 0.4)
    elif kind == "hubs":
        hub, speed = draws.uniform(5, 80, count)[place], draws.uniform(0.3, 5, count)[place]
        late, fast = hub[:, None] + hub, np.minimum(speed[:, None], speed)
    elif kind == "powers":
        late = 10.0 ** draws.integers(0, 3, (count, count))[at]
        fast = 2.0 ** draws.integers(-2, 3, (count, count))[at]
    else:
        late, fast = draws.uniform(1, 200, (n, n)), np.exp(draws.uniform(-2, 3, (n, n)))
    if kind != "noise":
        same = place[:, None] == place
        inside = draws.choice([2.0, 5.0, 10.0, 100.0], size=count)[place][:, None]
        late, fast = np.where(same, draws.choice([0.1, 1.0]), late), np.where(same, inside, fast)
    for slow in draws.choice(n, size=draws.integers(0, 4), replace=False):
        fast[slow] *= 0.2
        if draws.random() < 0.5:
            fast[:, slow] *= 0.2
    return problem_from(
        [f"place {each}" for each in place],
        late / 1e3,
        fast * 1e9 / 8,
        stages=stages,
        replicas=replicas,
        gradients=0.65e9 * float(np.exp(draws.uniform(-3, 3))),
        activations=0.47e9,
    )


def best_of_random(problem: Problem, count: int, seed: int) -> float:
    draws = np.random.default_rng(seed)
    shape = problem.stages, problem.replicas
    layouts = np.stack([draws.permutation(problem.devices).reshape(shape) for _ in range(count)])
    return float(costs_of(problem, layouts).min())


def check(problem: Problem, candidates: int, seed: int, seconds: float) -> None:
    found = solve(problem, time_limit=seconds)
    others = {
        "pipelines inside": found.pipelines_inside,
        "stages inside": found.stages_inside,
        "genetic": genetic(problem, candidates, seed),
        "random": best_of_random(problem, candidates, seed),
    }
    assert found.bound <= found.layout.cost * (1 + 1e-9)
    assert found.layout.cost <= min(others.values()) * (1 + 1e-9), others


@pytest.mark.parametrize("kind", KINDS)
def test_no_worse_than_whatever_else_finds(kind):
    check(uneven(KINDS.index(kind), FEW, kind), candidates=150, seed=1, seconds=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_no_worse_than_five_thousand_candidates_of_each(seed):
    check(uneven(seed, SHAPES), candidates=5000, seed=seed, seconds=3.0)


def mixed(seed: int) -> Network:
    """Three sites of unequal size and speed, one slow member."""
    draws = np.random.default_rng(seed)

    def group(name: str, devices: int, tflops: float) -> DeviceGroup:
        inside = Speed(latency_ms=0.1, gbps=float(draws.uniform(2, 20)))
        device = Device(name=name, memory_gib=4, memory_gbs=10.0, host=True, tflops=Peak(fp32=tflops))
        return DeviceGroup(name=name, devices=devices, inside=inside, device=device)

    groups = group("old", 3, 0.02), group("new", 4, 0.08), group("desk", 1, 0.05)
    names = [each.name for each in groups]
    links = [
        GroupLink(between=(a, b), latency_ms=float(draws.uniform(2, 40)), gbps=float(draws.uniform(0.01, 0.2)))
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    ]
    links.append(GroupLink(source="new:3", target="old", latency_ms=50.0, gbps=0.005))
    return Network(groups=groups, links=tuple(links))


def check_step(seed: int, tries: int, seconds: float) -> None:
    """By Heddle's own objective, over devices that differ."""
    network, draws = mixed(seed), np.random.default_rng(seed)
    job = replace(JOB, cluster=replace(JOB.cluster, devices=network.devices))
    best = plans_over(job, network, time_limit=seconds)[0]
    plans = [plan for shape in _shapes(job, network, {}) for plan in _plans(job, *shape, {}) if plan.tensor == 1]
    for _ in range(tries):
        plan = plans[draws.integers(len(plans))]
        devices = [*range(network.devices)] if draws.random() < 0.1 else draws.permutation(network.devices).tolist()
        priced = OverNetwork(replace(job, plan=plan, network=None), network, devices)
        if priced.verdict().fits:
            assert best.step.seconds <= priced.step.seconds * (1 + 1e-9), (plan, devices)


def test_a_step_over_mixed_devices_is_no_longer_than_that_of_random_plans_and_layouts():
    check_step(1, tries=60, seconds=3.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_step_over_mixed_devices_is_no_longer_than_that_of_five_thousand_others(seed):
    check_step(seed, tries=5000, seconds=15.0)
