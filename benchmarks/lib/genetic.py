"""The published search of DT-FM, written again, as a baseline: a genetic algorithm with a local search of cycles.

Yuan et al., arXiv 2206.01288, and the program published with it. A hundred random layouts; then again and again two
parents, a child that has the second one's stages but for five devices, which stand where the first one has them, and
chains of moves on the child: of each stage the device with the fastest link inside it moves to the stage that it is
furthest from. The child takes the place of the worse parent unless it is worse than both. Unlike the published
program, this one is seeded, and compares with both parents.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from heddle.planning.regions.cost import costs_of
from heddle.planning.regions.problem import Problem

Ints = npt.NDArray[np.int64]
POPULATION = 100
CROSSED = 5


def genetic(problem: Problem, candidates: int, seed: int) -> float:
    """The cost of the best of so many candidates."""
    draws = np.random.default_rng(seed)
    size = min(POPULATION, candidates)
    stage = np.repeat(np.arange(problem.stages), problem.replicas)
    population = [draws.permutation(stage) for _ in range(size)]
    costs = costs_of(problem, np.stack([layout_of(problem, each) for each in population])).tolist()
    best = min(costs)
    for _ in range(candidates - size):
        first, second = draws.integers(size, size=2)
        child = cycled(problem, crossed(problem, population[first], population[second], draws))
        cost = float(costs_of(problem, layout_of(problem, child)[None])[0])
        best = min(best, cost)
        worse = first if costs[first] > costs[second] else second
        if cost <= costs[worse]:
            population[worse], costs[worse] = child, cost
    return best


def layout_of(problem: Problem, stage: Ints) -> Ints:
    """The devices of each stage, from the stage of each device."""
    return np.argsort(stage, kind="stable").reshape(problem.stages, problem.replicas)


def crossed(problem: Problem, one: Ints, two: Ints, draws: np.random.Generator) -> Ints:
    child = two.copy()
    points = draws.choice(problem.devices, size=min(CROSSED, problem.devices), replace=False)
    child[points] = one[points]
    sizes = np.bincount(child, minlength=problem.stages)
    for device in range(problem.devices):
        if sizes[child[device]] > problem.replicas:
            short = int((sizes < problem.replicas).argmax())
            sizes[child[device]] -= 1
            sizes[short] += 1
            child[device] = short
    return child


def cycled(problem: Problem, child: Ints) -> Ints:
    """Up to one cycle for each stage, cut where the sum of its gains was largest."""
    locked = np.zeros(problem.devices, dtype=bool)
    touched = np.zeros(problem.stages, dtype=bool)
    after, gained = [child], [0.0]
    for _ in range(problem.stages):
        now = after[-1].copy()
        gain, best, who, where = gains(problem, now, locked)
        home = here = int(best.argmax())
        moves: list[tuple[int, int, int]] = []
        along, closing = [], []
        for _ in range(problem.devices):
            device, to = int(who[here]), int(where[here])
            if device < 0:
                if not moves:
                    break
                device, to = moves[-1][0], home
            moves.append((device, here, to))
            along.append(best[here])
            closing.append(gain[here, home])
            now[device] = to
            locked[device] = touched[to] = True
            here = to
            if here == home:
                break
            gain, best, who, where = gains(problem, now, locked)
        if not moves:
            break
        sums = [float(np.sum(along[:i]) + closing[i]) if i else 0.0 for i in range(len(moves))]
        cut = int(np.argmax(np.nan_to_num(sums, nan=0.0, neginf=0.0)))
        for device, came_from, _ in reversed(moves[cut + 1 :]):
            now[device] = came_from
        now[moves[cut][0]] = home
        after.append(now)
        gained.append(max(0.0, sums[cut]))
        if touched.all():
            break
    totals = np.cumsum(gained)
    return after[int(totals.argmax())]


def gains(problem: Problem, stage: Ints, locked: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.float64], ...]:
    """Of each stage the device to move: what each way gains, the largest gain, the device, and where to."""
    hop = np.where(np.isfinite(problem.hop), problem.hop, 0.0)
    inside = stage[:, None] == np.arange(problem.stages)
    sizes = np.maximum(1, inside.sum(axis=0))
    to = hop @ inside / sizes  # (devices, stages): the mean hop
    own = np.where(stage[:, None] == stage, problem.hop, np.inf).min(axis=1)
    ways = np.full((problem.stages, problem.stages), -np.inf)
    best = np.full(problem.stages, -np.inf)
    who, where = np.full(problem.stages, -1), np.full(problem.stages, -1)
    for place in range(problem.stages):
        free = np.nonzero(inside[:, place] & ~locked)[0]
        if len(free):
            device = free[own[free].argmin()]
            ways[place] = to[device] - (own[device] if np.isfinite(own[device]) else 0.0)
            ways[place, place] = -np.inf
            who[place], where[place], best[place] = device, ways[place].argmax(), ways[place].max()
    return ways, best, who, where
