"""What `heddle demo` runs: a GPT small enough for two cores, the place of its run, and how good its plan is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from math import prod
from typing import Any

from heddle.errors import HeddleError
from heddle.planning.search.describe import in_words
from heddle.planning.search.search import Search
from heddle.simulating.simulation import Simulation
from heddle.spec.job import Job, PlannedJob, job_from_tables, load_job

JOB: dict[str, dict[str, Any]] = {
    "model": {"preset": "tiny", "vocab": 1024},
    # tokens of several letters: after a hundred steps that reads better than bytes do
    "data": {"text": "stdlib:*.py", "tokenizer": "bpe:1024", "cache": "runs/prepared"},
    "train": {
        "name": "demo",
        "global_batch": 16,
        "sequence": 128,
        "learning_rate": 2e-3,
        "warmup": 30,  # with less, the loss rises above its start before it falls
        "eval_batches": 2,
        "log_every": 10,
    },
}
MOST = 16  # processes
SHOWN = ("tensor", "pipeline", "data")  # the axes that --plan names


def demo_job(plan: str, steps: int) -> PlannedJob:
    """The job, split as in "2x2x2": tensor × pipeline × data."""
    parts = plan.lower().replace("×", "x").split("x")
    degrees = [int(part) if part.isascii() and part.isdecimal() else 0 for part in parts]
    if len(degrees) != len(SHOWN) or min(degrees) < 1:
        raise HeddleError(
            f"--plan {plan} is not a plan.",
            f"It names the degrees {' x '.join(SHOWN)}.",
            "Write it as --plan 2x2x2.",
        )
    if prod(degrees) > MOST:
        raise HeddleError(
            f"--plan {plan} needs {prod(degrees)} processes.",
            f"They all run on this machine, where more than {MOST} would mostly wait for each other.",
            "Use --plan 2x2x2; `heddle plan` and `heddle simulate` take thousands.",
        )
    split = dict(zip(SHOWN, degrees, strict=True))
    return job_from_tables(JOB | {"train": JOB["train"] | {"steps": steps}, "plan": split}).planned


def for_show(job: PlannedJob) -> dict[str, int]:
    """The degrees that were asked for, and microbatches enough that a pipeline is seen to overlap."""
    plan = job.plan
    fixed = {axis: getattr(plan, axis) for axis in SHOWN}
    if plan.pipeline > 1:
        fixed["microbatch"] = max(1, job.train.global_batch // plan.data // (2 * plan.pipeline))
    return fixed


def make_room(job: Job) -> None:
    """Take away an earlier demo, and nothing else; what cannot be written is told before anything is measured."""
    folder = job.run_folder
    try:
        if folder.exists():
            if not _is_demo(job):
                raise HeddleError(
                    f"{folder} is the folder of another run.",
                    "A demo replaces the previous demo, and nothing else.",
                    f"Rename {folder}, or run `heddle demo` elsewhere.",
                )
            shutil.rmtree(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeddleError(
            f"{folder} cannot be written.", f"{error.strerror}.", "Run `heddle demo` in a folder of your own."
        ) from None


def _is_demo(job: Job) -> bool:
    try:
        before = load_job(job.run_folder / "job.toml")
    except HeddleError:
        return False
    return (before.model, before.data) == (job.model, job.data)


def standing(found: Search, chosen: Simulation, fewer: Simulation | None) -> Iterator[str]:
    """What is shown, and how good it is beside the best plan of as many processes, and of one per core."""
    seconds = chosen.step_seconds
    yield f"Shown here: {in_words(chosen.plan)}."
    verdict = f"{seconds:.3g} s per step, {seconds / found.best.step_seconds - 1:.0%} more than the best"
    if chosen.plan == found.best.plan:
        verdict = f"{seconds:.3g} s per step, and no other is faster"
    yield f"It is number {found.rank(chosen.plan)} of {found.feasible:,} by prediction: {verdict}."
    if fewer is not None:
        yield (
            f"{chosen.plan.world} processes take turns on {fewer.plan.world} cores: this is for show, not for speed. "
            f"One process per core ({in_words(fewer.plan)}) should need {fewer.step_seconds:.3g} s."
        )
