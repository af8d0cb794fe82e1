"""A run's folder as `heddle train --trace` leaves it, without training."""

from __future__ import annotations

import json
from pathlib import Path

from heddle.schedule import build
from heddle.simulating.replay import jitter, replay
from heddle.spec.job import dumps_job, job_from_tables
from heddle.trace import Span, Trace
from heddle.trace.steps import write_rank

TABLES = {
    "model": {"layers": 4, "hidden": 256, "heads": 8, "vocab": 1024, "sequence": 128},
    "cluster": {"preset": "dgx-a100-80gb"},
    "data": {"text": "corpus/*.txt"},
    "train": {"name": "small", "steps": 40, "global_batch": 16, "precision": "bf16"},
    "plan": {"tensor": 2, "pipeline": 2, "data": 2, "microbatch": 1},
}


def write_run(folder: Path, steps: int = 40, traced: bool = True) -> Path:
    """A run on two stages, whose second was slower than the first."""
    folder.mkdir(parents=True)
    job = job_from_tables(TABLES)
    (folder / "job.toml").write_text(dumps_job(job))
    plan = job.planned.plan
    assert plan is not None
    rows = []
    for step in range(1, steps + 1):
        seconds = 0.1 if step > 1 else 0.5
        rows.append(
            {
                "step": step,
                "loss": 6 - 0.5 * step**0.5 if step > 1 else 5.5,
                "learning_rate": 1e-3,
                "gradient_norm": 1.0,
            }
            | {"seconds": seconds, "tokens_per_second": 2048 / seconds, "mfu": 0.3, "memory_gib": 0.5}
        )
        if step % 10 == 0:
            rows.append({"step": step, "validation_loss": 6.2 - 0.5 * step**0.5})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if traced:
        for step in (1, 2, 3):
            write_step(folder, step, plan.world)
    return folder


def measured_trace(world: int = 8, seed: int = 0) -> Trace:
    """A step on `world` ranks, in rank order tensor, data, pipeline: lanes as the recorder writes them."""
    schedule = build("1f1b", 2, 8)
    pipe = replay(schedule, 2e-3, [4e-3, 6e-3], transfer=1e-4, noise=jitter(schedule, 0.1, seed))
    spans, each = [], world // 2
    for rank in range(world):
        own = [span._replace(rank=rank) for span in pipe.spans if span.rank == rank // each]
        spans += own
        spans += [
            Span(rank, "tensor", "all-reduce", span.start, span.start + 2e-4, 1024, span.chunk, span.microbatch)
            for span in own
        ]
        end = pipe.duration
        spans += [
            Span(rank, "optimizer", "gradients", end, end + 2e-3),
            Span(rank, "data", "all-reduce", end, end + 2e-3, 4096),
        ]
        spans.append(Span(rank, "optimizer", "update", end + 2e-3, end + 3e-3))
    return Trace(world, [span._replace(start=span.start + 1000, end=span.end + 1000) for span in spans])


def write_step(folder: Path, step: int, world: int) -> None:
    trace = measured_trace(world, step)
    for rank in range(world):
        own = [span for span in trace.spans if span.rank == rank]
        write_rank(folder / "traces", step, rank, Trace(world, own))
