"""What `--trace` costs: traced steps against untraced ones, over 2 processes, pipeline- and tensor-parallel.

A traced step also writes its file and shares its bubble with the other rank, as the first steps of a real run do;
later ones no longer write. The second untraced copy is the A/A arm: its ratio to the first is the noise of this
machine. A ratio is untraced / traced, so 0.98 means that tracing takes 2 % more time.

    python benchmarks/trace_overhead.py [--hidden 256 --layers 4 --sequence 128 --rounds 15]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from processes import measure, run
from rounds import report_cases

from heddle.parallel.mesh import Mesh, build_mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.train.recorder import Recorder, measured_bubble
from heddle.train.trainer import Trainer

PLANS = {"pipeline 2": Plan(pipeline=2, microbatch=2), "tensor 2": Plan(tensor=2, microbatch=2)}


class Untraced:
    def __init__(self, job: Job, mesh: Mesh, recorder: Recorder | None = None) -> None:
        tokens = np.random.default_rng(0).integers(0, job.model.vocab, 1 << 20).astype("<u2")
        self.trainer = Trainer(job, tokens, mesh, recorder)

    def train_step(self) -> float:
        return self.trainer.train_step().loss


class Traced(Untraced):
    def __init__(self, job: Job, mesh: Mesh, folder: Path) -> None:
        self.recorder, self.folder = Recorder(mesh, torch.device("cpu")), folder
        super().__init__(job, mesh, self.recorder)

    def train_step(self) -> float:
        loss = super().train_step()
        self.recorder.written = 0  # so that every step writes
        measured_bubble(self.recorder.write(self.folder, self.trainer.step), self.trainer.mesh)
        return loss


def cases(rank: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    model = ModelSpec(
        layers=options.layers, hidden=options.hidden, heads=4, vocab=8192, sequence=options.sequence, tied=False
    )
    found = []
    for name, plan in PLANS.items():
        train = Train(global_batch=2 * options.microbatches, learning_rate=1e-3)
        job = Job(model=model, data=Data(text="-"), train=train, plan=plan)
        mesh = build_mesh(plan, rank, plan.world)
        assert mesh is not None
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
            arms = {
                "traced": Traced(job, mesh, Path(folder)),
                "untraced": Untraced(job, mesh),
                "untraced again": Untraced(job, mesh),
            }
            ratios = {"ratio": ("traced", "untraced"), "a_a": ("untraced again", "untraced")}
            found.append(measure(arms, ratios, options.rounds, options.steps, plan=name))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"layers": 4, "hidden": 256, "sequence": 128, "microbatches": 8, "rounds": 15, "steps": 2}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    facts = {"layers": options.layers, "hidden": options.hidden, "microbatches": options.microbatches}
    report_cases("trace_overhead", "the same steps without --trace", run(2, cases, options), **facts)


if __name__ == "__main__":
    main()
