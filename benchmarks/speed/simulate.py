"""Plans priced per second in closed form, memory included, against calculon; and the replay of large schedules.

calculon is not on PyPI, so its rate is the one that was measured with its released code: 3.2 ms a prediction on one
core. The A/A arm prices the same plans again: its ratio to itself is the noise of this machine.

    python -m benchmarks.speed.simulate [--plans 65536 --rounds 15]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from benchmarks.lib.rounds import alternate, report, speedup
from heddle.cost.model_columns import model_columns
from heddle.cost.work import Work
from heddle.schedule import build
from heddle.simulating.closed_form import closed_form
from heddle.simulating.replay import jitter, step_time
from heddle.spec.shorthand import cluster_from_table, model_from_table

CALCULON = 310.0  # plans per second on one core


def plans(count: int) -> Work:
    """Plans of GPT-3 175B for 512 GPUs, as a search would look at them."""
    draw = np.random.default_rng(0)
    tensor, pipeline = 2 ** draw.integers(0, 4, count), 2 ** draw.integers(0, 6, count)
    return Work(
        **model_columns(model_from_table({"preset": "gpt3-175b"})),
        batch=1536,
        precision="bf16",
        tensor=tensor,
        pipeline=pipeline,
        data=np.maximum(1, 512 // (tensor * pipeline)),
        virtual=np.where(pipeline > 1, 2 ** draw.integers(0, 2, count), 1),
        microbatch=2 ** draw.integers(0, 4, count),
        sequence_parallel=draw.integers(0, 2, count) * (tensor > 1),
        zero=draw.integers(0, 2, count),
        full=draw.integers(0, 2, count).astype(float),
    )


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()  # of this core: others may be at work on the machine
    work()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=1 << 16)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--pipeline", type=int, default=64)
    parser.add_argument("--microbatches", type=int, default=512)
    options = parser.parse_args()
    cluster = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 64})
    work = plans(options.plans)
    schedule = build("1f1b", options.pipeline, options.microbatches)
    replicas = 6  # 3,072 GPUs: tensor 8 × pipeline 64 × data 6

    def jittered() -> float:
        return max(step_time(schedule, noise=jitter(schedule, 0.02, seed)) for seed in range(replicas))

    arms = {
        "closed form": lambda: seconds(lambda: closed_form(work, cluster)),
        "closed form again": lambda: seconds(lambda: closed_form(work, cluster)),
        "replay": lambda: seconds(lambda: step_time(schedule)),
        "replay of 6 replicas with jitter": lambda: seconds(jittered),
    }
    found = alternate(arms, options.rounds)
    rate = options.plans / float(np.median(found["closed form"]))
    report(
        "simulate",
        "calculon, 310 plans per second as published",
        found,
        plans_per_second=round(rate),
        ratio=rate / CALCULON,
        a_a=speedup(found, "closed form again", "closed form"),
    )


if __name__ == "__main__":
    main()
