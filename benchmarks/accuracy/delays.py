"""What late updates cost: the loss of every method after the same tokens, each at its best learning rate.

    python -m benchmarks.accuracy.delays [--steps 1500] [--seeds 3] [--rates 3e-3 1e-2] [--store FILE]

A byte-level GPT of five blocks on the Python library, cut into five chunks. Delays are those of a pipeline of five,
applied on one device by the recurrence that `heddle prove` holds distributed runs against, so that nothing depends on a
clock. The first seed chooses the learning rate, the others are trained at that one.
The loss is the mean over the last tenth of the steps, and over the seeds; the gap is to synchronous updates of the same
model: only Ouroboros allows its output layer to be tied. Time to the target is that of the event replay on four
devices, for so many microbatches per step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from heddle.data import prepared_for
from heddle.schedule import build
from heddle.schedule.late import UPDATES, LateSchedule
from heddle.simulating.late import steady_seconds, with_replays
from heddle.simulating.replay import step_time
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.prove.recurrence import Recurrence

MODEL = ModelSpec(layers=5, hidden=32, heads=4, vocab=257, sequence=64, tied=True)
CHUNKS, BATCH = 5, 8
TARGET = 2.5  # nats per token: when is it first reached?


class Method(NamedTuple):
    update: str
    correction: str = "none"
    warmup: float = 0.0  # the share of the steps that are synchronous first
    beta1: float = 0.9

    @property
    def tied(self) -> bool:
        """Whether the model's output layer is: where both ends of the model are on one device."""
        return self.update == "ouroboros"

    @property
    def peer(self) -> str:
        """What its gap is to."""
        return SYNCHRONOUS if self.tied else UNTIED


SYNCHRONOUS, UNTIED = "synchronous", "synchronous, untied"
METHODS = {
    SYNCHRONOUS: Method("ouroboros", warmup=1.0),
    UNTIED: Method("2bw", warmup=1.0),
    "ouroboros": Method("ouroboros"),
    "ouroboros, warm-up, beta1": Method("ouroboros", "beta1", 0.2),
    "ouroboros, warm-up, feedback": Method("ouroboros", "feedback", 0.2),
    "ouroboros, warm-up, nesterov": Method("ouroboros", "nesterov", 0.2),
    "ouroboros, long warm-up, nesterov": Method("ouroboros", "nesterov", 0.4),
    "ouroboros, warm-up, rate": Method("ouroboros", "rate", 0.2),
    "pipedream, warm-up, nesterov": Method("pipedream", "nesterov", 0.2),
    "2bw, warm-up, nesterov": Method("2bw", "nesterov", 0.2),
    "features-replay, warm-up, nesterov": Method("features-replay", "nesterov", 0.2),
}


def losses(name: str, rate: float, seed: int, steps: int) -> list[float]:
    """The loss of every step."""
    method = METHODS[name]
    train = Train(
        steps=steps,
        global_batch=BATCH,
        learning_rate=rate,
        beta1=method.beta1,
        warmup=steps // 50,
        seed=seed,
        delay_correction=method.correction,  # type: ignore[arg-type]
        delay_warmup=round(method.warmup * steps),
    )
    rule = UPDATES[method.update]
    ranks = CHUNKS - 1 if method.tied else CHUNKS
    never_late = Plan(pipeline=CHUNKS)  # the same chunks
    plan = never_late if method.warmup == 1.0 else Plan(pipeline=ranks, update=method.update)
    model = replace(MODEL, tied=method.tied)
    job = Job(model=model, data=Data(text="stdlib:*.py"), train=train, plan=plan).planned
    tokens = prepared_for(replace(job.data, cache=str(Path.home() / ".cache" / "heddle-benchmarks"))).train
    found = Recurrence(job, LateSchedule(rule, ranks, BATCH)).run(np.asarray(tokens))
    return found.losses


def period(name: str, microbatches: int) -> float:
    """What a step takes on four devices with equal shares of the model, once they are all at work.

    One is what a device takes for its share's forward of a microbatch.
    """
    method, devices = METHODS[name], CHUNKS - 1
    if method.warmup == 1.0:
        return step_time(build("1f1b", devices, microbatches), 1.0, 2.0)
    late = LateSchedule(UPDATES[method.update], devices, microbatches)
    forward = [1.0] * devices if late.chunks == devices else [0.5, *[1.0] * (devices - 1), 0.5]
    backward = with_replays(late.rule, forward, [2 * seconds for seconds in forward])
    return steady_seconds(late, lambda order: step_time(order, forward, backward))


class Runs:
    """Runs that were trained, kept in a file so that what was stopped goes on."""

    def __init__(self, store: Path | None, steps: int, until: float) -> None:
        self.store, self.steps, self.until = store, steps, until
        lines = store.read_text().splitlines() if store is not None and store.exists() else []
        self.done = {self._key(run): run for run in map(json.loads, lines)}

    def __call__(self, method: str, rate: float, seed: int) -> dict[str, Any]:
        """The end of one run, and when it reached the target."""
        key = (method, rate, seed, self.steps)
        if key not in self.done:
            if time.monotonic() > self.until:
                raise TimeoutError
            curve = losses(method, rate, seed, self.steps)
            run = {"method": method, "rate": rate, "seed": seed, "steps": self.steps}
            run |= {"loss": statistics.fmean(curve[-self.steps // 10 :]), "to_target": _reached(curve)}
            print(run, file=sys.stderr, flush=True)
            self.done[key] = run
            if self.store is not None:
                with self.store.open("a") as file:
                    file.write(json.dumps(run) + "\n")
        return self.done[key]

    @staticmethod
    def _key(run: dict[str, Any]) -> tuple[str, float, int, int]:
        return run["method"], run["rate"], run["seed"], run["steps"]


def case_of(runs: Runs, method: str, options: argparse.Namespace) -> dict[str, Any]:
    """A method at its best rate."""
    rate = min(options.rates, key=lambda rate: runs(method, rate, 0)["loss"])
    found = [runs(method, rate, seed) for seed in range(options.seeds)]
    finals = [run["loss"] for run in found]
    reached = [run["to_target"] for run in found]
    case = {
        "case": method,
        "rate": rate,
        "loss": round(statistics.fmean(finals), 4),
        "spread": round(max(finals) - min(finals), 4),
    }
    if None not in reached:
        steps = statistics.fmean(reached)
        case["tokens_to_target"] = round(steps * BATCH * MODEL.sequence)
        for count in options.microbatches:
            # steps before the delay begins are as long as those with a flush
            before = min(steps, METHODS[method].warmup * options.steps)
            taken = before * period("synchronous", count) + (steps - before) * period(method, count)
            case[f"time_to_target_m{count}"] = round(taken)
    return case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-3, 1e-2])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--microbatches", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--store", type=Path, help="Where runs are kept; those in it are not trained again.")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Begin no run after so many.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = Runs(options.store, options.steps, time.monotonic() + options.seconds)
    try:
        cases = [case_of(runs, method, options) for method in options.methods]
    except TimeoutError:
        sys.exit("not all runs are done; run the same command to continue")
    for method, case in zip(options.methods, cases, strict=True):
        peers = [each["loss"] for each in cases if each["case"] == METHODS[method].peer]
        case["gap"] = round(case["loss"] - peers[0], 4) if peers else None
    about = {"benchmark": "loss under late updates", "peer": "synchronous updates", "steps": options.steps}
    print(json.dumps(about | {"target": TARGET, "rates": options.rates, "cases": cases}))


def _reached(run: list[float], window: int = 50) -> int | None:
    means = np.convolve(run, np.ones(window) / window, mode="valid")
    below = np.flatnonzero(means <= TARGET)
    return int(below[0]) + window if len(below) else None


if __name__ == "__main__":
    main()
