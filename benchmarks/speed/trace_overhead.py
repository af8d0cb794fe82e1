"""What `--trace` costs: traced steps against untraced ones, over 2 processes, pipeline- and tensor-parallel.

A traced step also writes its file and shares its bubble with the other rank, as the first steps of a real run do;
later ones no longer write. The second untraced copy is the A/A arm: its ratio to the first is the noise of this
machine. A ratio is untraced / traced, so 0.98 means that tracing takes 2 % more time.

A few percent are less than what a shared machine varies by from step to step. So the work of tracing is also timed by
itself: as many spans as a step has are noted, written and shared, with nothing between them. `alone` is that time over
the time of an untraced step; it does not see what tracing does to the step around it, which the ratios do.

    python -m benchmarks.speed.trace_overhead [--hidden 256 --layers 4 --sequence 128 --rounds 40]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.lib.processes import measure, run
from benchmarks.lib.rounds import report_cases
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.runtime.recorder import Recorder, measured_bubble
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.trace import Span
from heddle.training.step.trainer import Trainer

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
        self.spans: list[Span] = []
        super().__init__(job, mesh, self.recorder)

    def train_step(self) -> float:
        loss = super().train_step()
        self._end_step()
        return loss

    def _end_step(self) -> None:
        self.recorder.written = 0  # so that every step writes
        self.spans = self.recorder.write(self.folder, self.trainer.step)
        measured_bubble(self.spans, self.trainer.mesh)

    def trace_alone(self) -> float:
        """Seconds of tracing the last step's spans once more, without the step."""
        collectives = self.trainer.mesh.tensor.watch
        assert collectives is not None
        dist.barrier()
        start = time.perf_counter()
        for span in self.spans:
            if span.lane == "tensor":
                complete = collectives(span.name, None, span.bytes)
                assert complete is not None
                complete()
            else:
                with self.recorder.span(span.lane, span.name, span.chunk, span.microbatch, span.bytes):
                    pass
        self._end_step()
        return time.perf_counter() - start


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
            traced = Traced(job, mesh, Path(folder))
            arms = {"traced": traced, "untraced": Untraced(job, mesh), "untraced again": Untraced(job, mesh)}
            ratios = {"ratio": ("traced", "untraced"), "a_a": ("untraced again", "untraced")}
            case = measure(arms, ratios, options.rounds, options.steps, plan=name)
            alone = statistics.median(traced.trace_alone() for _ in range(options.rounds))
            found.append(
                case | {"spans": len(traced.spans), "alone": round(alone / case["median_seconds"]["untraced"], 4)}
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"layers": 4, "hidden": 256, "sequence": 128, "microbatches": 4, "rounds": 40, "steps": 1}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    facts = {"layers": options.layers, "hidden": options.hidden, "microbatches": options.microbatches}
    report_cases("trace_overhead", "the same steps without --trace", run(2, cases, options), **facts)


if __name__ == "__main__":
    main()
