"""The layouts that `heddle regions` finds over unequal links, against the published search of DT-FM.

The peer is the published genetic algorithm, written again in `benchmarks.lib.genetic` (seeded, and with its costs
computed by our vectorized code, which is many times as fast as its own). On each network: what both cost, the better of
the two trivial layouts, the best of as many random ones, and CPU seconds. `ratio` is the peer's cost over ours; `a_a`
is our own with another seed over ours. The networks are drawn, unless --data names a folder with the published ones.

    python -m benchmarks.planners.regions [--data ../shared/data] [--candidates 5000] [--cases spot worldwide drawn-0 …]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.lib.genetic import genetic
from benchmarks.lib.rounds import report_cases
from heddle.planning.regions import Problem, costs_of, problem_from, read_case, solve

PUBLISHED = ("datacenter", "spot", "two-sites", "regional", "worldwide")
SHAPES = ((8, 8), (6, 6), (4, 12), (12, 4), (4, 6), (5, 8))


def drawn(number: int) -> Problem:
    """Places on a plane, of unequal sizes; links by distance, one slow member, directions that differ."""
    draws = np.random.default_rng(number)
    stages, replicas = SHAPES[number % len(SHAPES)]
    n = stages * replicas
    cuts = np.sort(draws.choice(np.arange(1, n), size=int(draws.integers(2, n // 4)), replace=False))
    sizes = np.diff(np.concatenate(([0], cuts, [n])))
    place = np.repeat(np.arange(len(sizes)), sizes)
    at = draws.uniform(size=(len(sizes), 2))
    far = np.linalg.norm(at[:, None] - at, axis=2)[np.ix_(place, place)]
    same = place[:, None] == place
    delay = np.where(same, 0.001, 0.005 + 0.2 * far)
    speed = np.where(same, draws.choice([2.0, 10.0, 100.0], size=len(sizes))[place][:, None], 0.3 + 2 * (1 - far) ** 2)
    speed *= draws.uniform(0.7, 1.3, size=(len(sizes), len(sizes)))[np.ix_(place, place)]
    slow = int(draws.integers(n))
    speed[slow] *= 0.3
    gradients = 0.65e9 * float(np.exp(draws.uniform(-2, 2)))
    return problem_from(
        [f"place {each}" for each in place],
        delay,
        speed * 1e9 / 8,
        stages=stages,
        replicas=replicas,
        gradients=gradients,
        activations=0.47e9,
    )


def compared(name: str, problem: Problem, candidates: int, seed: int) -> dict[str, object]:
    ours = solve(problem, seed=seed)
    again = solve(problem, seed=seed + 1)
    before = time.process_time()
    peer = genetic(problem, candidates, seed)
    taken = time.process_time() - before
    draws = np.random.default_rng(seed)
    shape = problem.stages, problem.replicas
    random = min(
        float(costs_of(problem, draws.permutation(problem.devices).reshape(1, *shape))[0]) for _ in range(candidates)
    )
    cost = ours.layout.cost
    return {
        "network": name,
        "stages": problem.stages,
        "replicas": problem.replicas,
        "cost": round(cost, 4),
        "bound": round(ours.bound, 4),
        "optimal": ours.optimal,
        "peer_cost": round(peer, 4),
        "trivial_cost": round(min(ours.pipelines_inside, ours.stages_inside), 4),
        "random_cost": round(random, 4),
        "ratio": round(peer / cost, 4),
        "a_a": round(again.layout.cost / cost, 4),
        "cpu_seconds": round(ours.seconds, 3),
        "peer_cpu_seconds": round(taken, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[3] / "shared" / "data")
    parser.add_argument("--candidates", type=int, default=5000)
    parser.add_argument("--cases", nargs="+", default=[*PUBLISHED, *(f"drawn-{number}" for number in range(12))])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    file = options.data / "networks" / "cases.json"
    cases = []
    for name in options.cases:
        if name in PUBLISHED and not file.exists():
            continue  # published networks lie beside the repository, not in it
        problem = read_case(file, name).problem if name in PUBLISHED else drawn(int(name.removeprefix("drawn-")))
        cases.append(compared(name, problem, options.candidates, options.seed))
    report_cases("regions", f"DT-FM's genetic search, {options.candidates} candidates, written again", cases)


if __name__ == "__main__":
    main()
