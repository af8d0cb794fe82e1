"""What late updates cost: the loss of every method after the same tokens, each at its best learning rate.

    python -m benchmarks.accuracy.delays [--steps 1500] [--seeds 3] [--rates 1e-3 3e-3 1e-2]

A byte-level GPT of five blocks on the Python library, cut into five chunks. Delays are those of a pipeline of five,
applied on one device by the recurrence that `heddle prove` holds distributed runs against, so that nothing depends on a
clock.
The loss is the mean over the last tenth of the steps, and over the seeds; the gap is to synchronous updates.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from heddle.data import prepared_for
from heddle.schedule.delayed import UPDATES, DelayedSchedule
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.train.prove.recurrence import Recurrence

MODEL = ModelSpec(layers=5, hidden=32, heads=4, vocab=257, sequence=64, tied=True)
TARGET = 2.5  # nats per token: when is it first reached?
# name: the method, its correction, and the share of the steps that are synchronous first
METHODS = {
    "synchronous": ("ouroboros", "none", 1.0),
    "ouroboros": ("ouroboros", "none", 0.0),
    "ouroboros, warm-up, rate": ("ouroboros", "rate", 0.2),
    "ouroboros, warm-up, beta1": ("ouroboros", "beta1", 0.2),
    "features-replay, warm-up, beta1": ("features-replay", "beta1", 0.2),
    "2bw, warm-up, beta1": ("2bw", "beta1", 0.2),
}


def losses(method: str, rate: float, seed: int, steps: int) -> list[float]:
    """The loss of every step."""
    update, correction, warmup = METHODS[method]
    rule = UPDATES[update]
    train = Train(
        steps=steps,
        global_batch=8,
        learning_rate=rate,
        warmup=steps // 50,
        seed=seed,
        delay_correction=correction,  # type: ignore[arg-type]
        delay_warmup=round(warmup * steps),
    )
    plan = Plan(pipeline=4 if update == "ouroboros" else 5, update=update)
    model = MODEL if update == "ouroboros" else replace(MODEL, tied=False)
    job = Job(model=model, data=Data(text="stdlib:*.py"), train=train, plan=plan).planned
    tokens = prepared_for(replace(job.data, cache=str(Path.home() / ".cache" / "heddle-benchmarks"))).train
    found = Recurrence(job, DelayedSchedule(rule, plan.pipeline, 8)).run(np.asarray(tokens))
    return found.losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 3e-3, 1e-2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = []
    for method in METHODS:
        best = None
        for rate in options.rates:
            runs = [losses(method, rate, seed, options.steps) for seed in range(options.seeds)]
            finals = [statistics.fmean(run[-options.steps // 10 :]) for run in runs]
            found = {
                "case": method,
                "rate": rate,
                "loss": round(statistics.fmean(finals), 4),
                "spread": round(max(finals) - min(finals), 4),
                "steps_to_target": [_reached(run) for run in runs],
            }
            print(found, file=sys.stderr, flush=True)
            if best is None or found["loss"] < best["loss"]:
                best = found
        assert best is not None
        cases.append(best)
    for case in cases:
        case["gap"] = round(case["loss"] - cases[0]["loss"], 4)
    about = {"benchmark": "loss under late updates", "peer": "synchronous updates", "steps": options.steps}
    print(json.dumps(about | {"target": TARGET, "rates": options.rates, "cases": cases}))


def _reached(run: list[float], window: int = 50) -> int | None:
    means = np.convolve(run, np.ones(window) / window, mode="valid")
    below = np.flatnonzero(means <= TARGET)
    return int(below[0]) + window if len(below) else None


if __name__ == "__main__":
    main()
