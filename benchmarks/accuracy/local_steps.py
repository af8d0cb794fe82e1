"""What local steps cost: the validation loss of DiLoCo (H = 50, int8) and of data parallelism after the same tokens.

    python -m benchmarks.accuracy.local_steps [--steps 1000] [--seeds 3] [--every 50] [--rate 3e-3]

A byte-level GPT of five blocks on the Python library, two replicas in two processes. `gap` is in nats per token: the
loss of DiLoCo less that of data parallelism, both after the same samples, for each seed and in the mean. `a_a` is the
largest difference between two seeds of data parallelism.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.lib.rounds import report_cases
from heddle.data import prepared_for
from heddle.parallel.mesh import Mesh
from heddle.runtime.launch import run_processes
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.step.trainer import Trainer

MODEL = ModelSpec(layers=5, hidden=32, heads=4, vocab=257, sequence=64, tied=True)
PEER = "data parallelism"


def validation_loss(mesh: Mesh, job: Job) -> float:
    """Train a job to its end, and measure."""
    torch.set_num_threads(1)
    data = prepared_for(replace(job.data, cache=str(Path.home() / ".cache" / "heddle-benchmarks")))
    trainer = Trainer(job, np.asarray(data.train), mesh)
    for _ in range(job.train.steps):
        trainer.train_step()
    loss = trainer.evaluate(np.asarray(data.validation))
    assert loss is not None
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--outer-rate", type=float, default=0.7)
    parser.add_argument("--outer-momentum", type=float, default=0.9)
    options = parser.parse_args()
    plans = {
        PEER: Plan(data=2, microbatch=4),
        "DiLoCo, int8": Plan(data=2, microbatch=4, local_steps=options.every, compress_gradients="int8"),
    }
    found: dict[str, list[float]] = {name: [] for name in plans}
    for seed in range(options.seeds):
        for name, plan in plans.items():
            train = Train(
                steps=options.steps,
                global_batch=8,
                learning_rate=options.rate,
                warmup=options.steps // 20,
                seed=seed,
                eval_batches=50,
                outer_learning_rate=options.outer_rate,
                outer_momentum=options.outer_momentum,
            )
            job = Job(model=MODEL, data=Data(text="stdlib:*.py"), train=train, plan=plan)
            found[name].append(run_processes(plan, validation_loss, job))
            print(f"seed {seed}, {name}: {found[name][-1]:.4f}", file=sys.stderr, flush=True)
    exact = found[PEER]
    cases: list[dict[str, object]] = [
        {
            "case": f"{name}, H = {options.every}",
            "losses": [round(loss, 4) for loss in losses],
            "gaps": [round(loss - other, 4) for loss, other in zip(losses, exact, strict=True)],
            "gap": round(statistics.fmean(losses) - statistics.fmean(exact), 4),
            "a_a": round(max(exact) - min(exact), 4),
        }
        for name, losses in found.items()
        if name != PEER
    ]
    report_cases("loss under local steps", PEER, cases, steps=options.steps)


if __name__ == "__main__":
    main()
