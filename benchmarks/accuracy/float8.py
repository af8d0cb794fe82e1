"""What products in 8 bits cost: the loss of fp8 after the same tokens as bf16, by how its operands are scaled.

    python -m benchmarks.accuracy.float8 [--steps 1500] [--seeds 3]

A byte-level GPT on the Python library. Products are emulated on CPUs: operands are rounded as a GPU's would be, and
multiplied in full precision. The loss is the mean over the last tenth of the steps; the gap is to bf16, over the seeds.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path

from heddle.data import prepared_for
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.step.trainer import Trainer

MODEL = ModelSpec(layers=4, hidden=64, heads=4, vocab=257, sequence=64, tied=True)
WAYS = {"bf16": ("bf16", "row"), "fp8, by row": ("fp8", "row"), "fp8, by tensor": ("fp8", "tensor")}
LIMIT = 0.02  # nats


def ending(way: str, seed: int, steps: int) -> float:
    """The mean loss over the last tenth of a run."""
    precision, scaling = WAYS[way]
    train = Train(
        steps=steps,
        global_batch=8,
        learning_rate=3e-3,
        warmup=steps // 50,
        seed=seed,
        precision=precision,  # type: ignore[arg-type]
        fp8_scaling=scaling,  # type: ignore[arg-type]
    )
    data = Data(text="stdlib:*.py", cache=str(Path.home() / ".cache" / "heddle-benchmarks"))
    job = Job(model=MODEL, data=data, train=train, plan=Plan(microbatch=8))
    trainer = Trainer(job, prepared_for(replace(data)).train)
    losses = [trainer.train_step().loss for _ in range(steps)]
    return statistics.mean(losses[-(steps // 10 or 1) :])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    ends = {way: [ending(way, seed, given.steps) for seed in range(given.seeds)] for way in WAYS}
    print(f"{'products':<16} {'loss':>8} {'gap':>8}   by seed")
    for way, found in ends.items():
        gaps = [one - other for one, other in zip(found, ends["bf16"], strict=True)]
        each = " ".join(f"{gap:+.4f}" for gap in gaps)
        print(f"{way:<16} {statistics.mean(found):>8.4f} {statistics.mean(gaps):>+8.4f}   {each}", flush=True)
        assert abs(statistics.mean(gaps)) <= LIMIT, f"{way} is more than {LIMIT} nats off"


if __name__ == "__main__":
    main()
