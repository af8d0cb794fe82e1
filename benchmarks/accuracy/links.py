"""Steps over slow links: what was predicted beside the clock, and what is sent, over sites made on this machine.

Each site is a network namespace; a relay between them delays and slows (`tests/helpers/sites.py`). Needs Linux, root.
How fast the machine computes is measured without links; what links add to it is predicted.

* `steps`: layouts and schedules at four sites: seconds measured and predicted, mean error, rank correlation, and how
  the planner's own choice compares with the fastest of those that send exactly, as it does.
* `overlap`: two replicas whose sums take about as long as their backward, which hides most of them.
* `latency`: GPipe, 1F1B and deep 1F1B at two delays and at none: the measured order and the predicted one.
* `bytes`: what interfaces sent for as many steps of data parallelism and of DiLoCo with H = 50 in int8.

`ratio` of a step is measured over predicted; the peer is the clock. `a_a` is the same layout measured twice.

    python -m benchmarks.accuracy.links [--only steps overlap latency bytes]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.rounds import report_cases
from heddle.planning.regions.for_job import plans_over
from heddle.simulating.network.over_network import OverNetwork, step_over_network
from heddle.simulating.simulation import simulate
from heddle.spec.job import Job, job_from_tables
from heddle.spec.network import DeviceGroup, GroupLink, Network
from tests.helpers.commands import ENVIRONMENT
from tests.helpers.sites import Sites, sites, why_not

REPOSITORY = Path(__file__).parents[2]
FAR, RATE = 0.05, 1e6
DELAY = [[0, 0.005, FAR, FAR], [0.005, 0, FAR, FAR], [FAR, FAR, 0, 0.01], [FAR, FAR, 0.01, 0]]
RATES = [[1, 4e6, RATE, RATE], [4e6, 1, RATE, RATE], [RATE, RATE, 1, 2e6], [RATE, RATE, 2e6, 1]]
SMALL = {"layers": 4, "hidden": 96, "heads": 4, "vocab": 64, "sequence": 64, "ffn": 128}
LARGE = {"layers": 9, "hidden": 512, "heads": 8, "vocab": 64, "sequence": 512, "ffn": 2048}  # three buckets
PLANS: list[dict[str, Any]] = [
    {"pipeline": 4},
    {"pipeline": 4, "schedule": "deep-1f1b"},
    {"pipeline": 4, "schedule": "gpipe"},
    {"pipeline": 2, "data": 2},
    {"pipeline": 2, "data": 2, "devices": [0, 2, 1, 3]},
    {"pipeline": 2, "data": 2, "schedule": "gpipe"},
    {"pipeline": 4, "microbatch": 2},
    {"data": 4, "microbatch": 2},
    {"data": 4, "microbatch": 2, "compress_gradients": "int8"},
]
ORDERS: list[dict[str, Any]] = [
    {"pipeline": 4, "schedule": "1f1b"},
    {"pipeline": 4, "schedule": "deep-1f1b", "extra_warmup": 1},
    {"pipeline": 4, "schedule": "gpipe"},
]


def tables(
    plan: dict[str, Any], slow: float = 1.0, batch: int = 8, steps: int = 20, model: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A job whose compute is little beside its messages, on devices that are so many times as slow."""
    device = {
        "name": "cpu",
        "memory_gib": 4,
        "memory_gbs": 10.0 / slow,
        "host": True,
        "tflops": {"fp32": 0.05 / slow},
    }
    return {
        "model": model or SMALL,
        "data": {"text": "-"},
        "train": {"steps": steps, "global_batch": batch},
        "plan": plan,
        "cluster": {
            "nodes": 1,
            "devices": 4,
            "links": [{"name": "any", "gbs": 1.0}],
            "device": device,
            "efficiency": {"launch_us": 10.0 * slow, "jitter": 0.0},
        },
    }


def network(delay: list[list[float]], rate: list[list[float]]) -> Network:
    """The same sites as Heddle describes them."""
    names = [f"site{number}" for number in range(len(delay))]
    links = tuple(
        GroupLink(source=a, target=b, latency_ms=1e3 * delay[i][j], gbps=8e-9 * rate[i][j])
        for i, a in enumerate(names)
        for j, b in enumerate(names)
        if i != j
    )
    return Network(groups=tuple(DeviceGroup(name=name) for name in names), links=links)


def timed(made: Sites, jobs: list[dict[str, Any]], port: int) -> list[float]:
    """Seconds of a step of each job, one rank at each site."""
    count = len(made.names)
    shared = {"MASTER_ADDR": made.addresses[0], "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    command = [sys.executable, "-m", "tests.helpers.site_rank", *map(json.dumps, jobs)]
    started = [
        made.start(
            rank,
            command,
            ENVIRONMENT | shared | {"RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        for rank in range(count)
    ]
    try:
        shown = started[0].communicate(timeout=400)[0]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    return [float(line) for line in shown.split()]


def slowness(alone: float, batch: int = 8, model: dict[str, Any] | None = None) -> float:
    """How many times slower than the tables' device this machine computes, by a step without links."""
    slow = 1.0
    for _ in range(20):
        slow *= alone / simulate(job_from_tables(tables({"microbatch": 1}, slow, batch, model=model))).step_seconds
    return slow


def predicted(plan: dict[str, Any], slow: float, over: Network) -> float:
    return step_over_network(job_from_tables(tables(plan, slow)), over).seconds


def ranks(values: list[float]) -> Any:
    return np.argsort(np.argsort(values))


def steps() -> dict[str, Any]:
    """Layouts and schedules at four sites."""
    over = network(DELAY, RATES)
    job: Job = job_from_tables(tables({"microbatch": 1}))
    best = plans_over(job, over, time_limit=10.0)[0].placed
    chosen = {
        "pipeline": best.pipeline,
        "data": best.data,
        "microbatch": best.microbatch,
        "schedule": best.schedule,
        **({} if best.extra_warmup is None else {"extra_warmup": best.extra_warmup}),
        "stages": list(best.stages),
        "devices": list(best.devices),
    }
    plans = [*PLANS, chosen, PLANS[0]]
    with _sites(DELAY, RATES) as made:
        alone, *measured = timed(made, [tables(plan) for plan in ({"microbatch": 1}, *plans)], 29621)
    slow = slowness(alone)
    expected = [predicted(plan, slow, over) for plan in plans]
    errors = [abs(e / m - 1) for e, m in zip(expected, measured, strict=True)][:-1]
    exact = [m for plan, m in zip(plans, measured, strict=True) if "compress_gradients" not in plan][:-1]
    found = {
        "case": "steps at four sites",
        "mean_error": round(float(np.mean(errors)), 4),
        "rank_correlation": round(float(np.corrcoef(ranks(measured[:-1]), ranks(expected[:-1]))[0, 1]), 4),
        "chosen_over_fastest": round(measured[-2] / min(exact), 4),
        "ratio": round(float(np.median(np.array(measured[:-1]) / expected[:-1])), 4),
        "a_a": round(measured[-1] / measured[0], 4),
    }
    rows = [
        {"plan": plan, "measured": round(m, 4), "predicted": round(e, 4)}
        for plan, m, e in zip(plans[:-1], measured, expected, strict=False)
    ]
    return found | {"steps": rows}


def overlap() -> dict[str, Any]:
    """Two replicas with a microbatch each: buckets are summed while the backward goes on."""
    delay, rate = [[0.0, 0.002], [0.002, 0.0]], [[1e8, 1e8], [1e8, 1e8]]
    plan = {"data": 2, "microbatch": 1}
    jobs = [tables({"microbatch": 1}, batch=1, model=LARGE), *[tables(plan, batch=2, model=LARGE)] * 2]
    with _sites(delay, rate) as made:
        alone, first, again = timed(made, jobs, 29651)
    slow = slowness(alone, 1, LARGE)
    priced = OverNetwork(job_from_tables(tables(plan, slow, 2, model=LARGE)), network(delay, rate))
    hidden = priced.sum_seconds(0, priced.held[0]) - priced.exchanges[0]
    return {
        "case": "sums beside the backward",
        "measured": round(first, 4),
        "predicted": round(priced.step.seconds, 4),
        "predicted_without_overlap": round(priced.step.seconds + hidden, 4),
        "ratio": round(first / priced.step.seconds, 4),
        "a_a": round(again / first, 4),
    }


def latency() -> dict[str, Any]:
    """Three orders of work under three delays."""
    rows = []
    for number, delay in enumerate((0.0, 0.01, 0.05)):
        table = [[0.0 if i == j else delay for j in range(4)] for i in range(4)]
        rate = [[1e8] * 4 for _ in range(4)]
        plans = [plan | {"microbatch": 1} for plan in ORDERS]
        with _sites(table, rate) as made:
            jobs = [tables(plan, batch=16) for plan in ({"microbatch": 1}, *plans)]
            alone, *measured = timed(made, jobs, 29631 + number)
        slow = slowness(alone / 2)  # twice the batch
        over = network(table, rate)
        expected = [step_over_network(job_from_tables(tables(p, slow, batch=16)), over).seconds for p in plans]
        names = [plan["schedule"] for plan in ORDERS]
        rows.append(
            {
                "delay_ms": 1e3 * delay,
                "measured": dict(zip(names, (round(m, 4) for m in measured), strict=True)),
                "predicted": dict(zip(names, (round(e, 4) for e in expected), strict=True)),
                "same_order": _ordered(measured, expected),
            }
        )
    return {"case": "orders of work by latency", "same_order": all(row["same_order"] for row in rows), "delays": rows}


def _ordered(measured: list[float], expected: list[float]) -> bool:
    """Whether any two that are predicted to differ by a twentieth or more are measured in that order."""
    return all(
        (measured[a] < measured[b]) == (expected[a] < expected[b])
        for a in range(len(measured))
        for b in range(a)
        if abs(expected[a] / expected[b] - 1) > 0.05
    )


def sent() -> dict[str, Any]:
    """Bytes that two sites send for a hundred steps."""
    found = {}
    table, rate = [[0.0, 0.001], [0.001, 0.0]], [[1e8, 1e8], [1e8, 1e8]]
    count = 100
    for number, (name, plan) in enumerate(
        (("data", {"data": 2}), ("diloco", {"data": 2, "local_steps": 50, "compress_gradients": "int8"}))
    ):
        with _sites(table, rate) as made:
            jobs = [tables(plan, steps=count) | {"whole": True}]
            before = [made.sent_bytes(site) for site in (0, 1)]
            timed(made, jobs, 29641 + number)
            found[name] = sum(made.sent_bytes(site) for site in (0, 1)) - sum(before)
    return {
        "case": "bytes of 100 steps, H = 50 in int8",
        "bytes": found,
        "ratio": round(found["data"] / found["diloco"], 2),
        "a_a": 1.0,
    }


def _sites(delay: list[list[float]], rate: list[list[float]]) -> AbstractContextManager[Sites]:
    return sites(delay, rate)


CASES = {"steps": steps, "overlap": overlap, "latency": latency, "bytes": sent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    chosen = parser.parse_args().only
    if (reason := why_not()) is not None:
        report_cases("links", f"the clock; not measured: {reason}", [])
        return
    cases = [each() for name, each in CASES.items() if name in chosen]
    report_cases("links", "the clock, at sites made of network namespaces", cases)


if __name__ == "__main__":
    main()
