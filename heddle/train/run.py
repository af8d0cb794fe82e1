"""The run folder: what a run keeps on disk, and how it is made, found and taken up again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from heddle.errors import HeddleError
from heddle.spec.job import Job, dumps_job, load_job
from heddle.train.files import replace_text


@dataclass(frozen=True)
class Run:
    """A folder with `job.toml`, `metrics.jsonl`, the tokenizer and `checkpoints/`."""

    folder: Path

    @property
    def checkpoints(self) -> Path:
        """One folder a saved step."""
        return self.folder / "checkpoints"

    @property
    def traces(self) -> Path:
        """Spans of the first steps, a file a step and rank; there when the run was traced."""
        return self.folder / "traces"

    @property
    def hang(self) -> Path:
        """What the ranks were doing, if the run stood still."""
        return self.folder / "hang"

    @property
    def tokenizer(self) -> Path:
        """Where the tokenizer's files are."""
        return self.folder / "tokenizer"

    @property
    def job_file(self) -> Path:
        """The job as it was run, with everything spelled out."""
        return self.folder / "job.toml"


def refuse_existing(job: Job) -> None:
    """A run never writes over another; said before any work is done."""
    if job.run_folder.exists():
        raise HeddleError(
            f"The run folder {job.run_folder} exists already.",
            "A run never writes over another.",
            "Go on with it by --resume, or choose another name with --name.",
        )


def create_run(job: Job, save_tokenizer: Callable[[Path], None]) -> Run:
    """Make the run folder. The job comes last: a folder that has it has everything."""
    refuse_existing(job)
    run = Run(job.run_folder)
    try:
        run.checkpoints.mkdir(parents=True)
        save_tokenizer(run.tokenizer)
        replace_text(run.job_file, dumps_job(job))
    except OSError as error:
        raise HeddleError(
            f"The run folder {run.folder} cannot be written.",
            f"{error.strerror}.",
            "Choose another place with [train] runs, or --set train.runs=FOLDER.",
        ) from None
    return run


@contextmanager
def writing_to(run: Run) -> Iterator[None]:
    """A disk that is full, or gone, is told; whatever is in the run's folder stays as it is."""
    try:
        yield
    except OSError as error:
        raise HeddleError(
            f"The run folder {run.folder} cannot be written.",
            f"{error.strerror or error}.",
            "Earlier checkpoints are untouched; make room, then go on with --resume.",
        ) from None


def resume_run(job: Job) -> Run:
    """Open the run folder of a job that was started before, and refuse to mix two models in it."""
    run = open_run(job.run_folder)
    before = load_job(run.job_file)
    if before.model != job.model:
        fields = [field.name for field in dataclasses.fields(job.model)]
        changed = [name for name in fields if getattr(before.model, name) != getattr(job.model, name)]
        shown = "; ".join(
            f"{name} was {getattr(before.model, name)!r}, is {getattr(job.model, name)!r}" for name in changed[:3]
        )
        raise HeddleError(
            f"{run.folder} trains another model.",
            f"{shown}.",
            "Choose another name with --name, or mend [model].",
        )
    replace_text(run.job_file, dumps_job(job))
    return run


def open_run(folder: Path) -> Run:
    """Find an existing run."""
    run = Run(folder)
    if not run.job_file.exists():
        near = [place for place in (folder, folder.parent) if place.is_dir()]  # many name the folder of all runs
        others = [str(path.parent) for place in near for path in sorted(place.glob("*/job.toml"))]
        raise HeddleError(
            f"{folder} is no run folder.",
            "A run folder holds the job.toml that it was started with.",
            f"Runs near it: {', '.join(others)}." if others else "Train one with `heddle train JOB.toml`.",
        )
    return run
