"""From Python: look at runs, plans and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from heddle.api.given import path_of

if TYPE_CHECKING:
    from heddle.checkpoint.contents import Contents
    from heddle.reporting.subject import Subject
    from heddle.spec.job import Job
    from heddle.trace.trace import Trace
    from heddle.training.compare import RunComparison


def report(
    subject: Job | str | Path,
    other: Job | str | Path | None = None,
    *,
    output: str | Path = "report.html",
    step: int | None = None,
) -> Path:
    """Write one HTML page about a run or a plan: timeline, time, memory, loss, and the other plans.

    Args:
        subject: a job, a job file, or a run's folder.
        other: another one, to show side by side.
        output: the file to write.
        step: which traced step to show; a typical one if not given.

    Returns:
        Where the page is.
    """
    from heddle.files import write_output
    from heddle.reporting.page import render

    found = [_subject(each, step) for each in (subject, other) if each is not None]
    write_output(Path(output), render(found))
    return Path(output)


def _subject(given: Job | str | Path, step: int | None) -> Subject:
    from heddle.reporting.subject import job_subject, read_subject
    from heddle.spec.job import Job

    if isinstance(given, Job):
        return job_subject(given, given.train.name, step)
    return read_subject(path_of(given, "a job file or a run's folder"), step)


def compare(
    first: str | Path,
    second: str | Path,
    *,
    seeds: int = 3,
    loss: float | None = None,
    name: str = "compare",
    output: str | Path = "compare.html",
    changes: Iterable[str] = (),
) -> RunComparison | None:
    """Train two jobs on the same data, and plot their loss over tokens and time; or plot two runs.

    In a script that starts several processes, call it under `if __name__ == "__main__":`.

    Args:
        first: a job file, or a run's folder.
        second: the other one, of the same kind.
        seeds: how often to train each, with different seeds.
        loss: the loss to reach; the lowest that all runs reach, if left out.
        name: the runs go to RUNS/NAME.
        output: the page to write.
        changes: keys to change in both, as `--set` does.

    Returns:
        Both settings and the loss. None if it was asked to stop; the same call then continues.
    """
    from heddle.files import write_output
    from heddle.reporting.losses import losses_page
    from heddle.training.compare import compare_files

    jobs = [path_of(each, "a job file or a run's folder") for each in (first, second)]
    found = compare_files(jobs[0], jobs[1], seeds, loss, name, changes)
    if found is not None:
        write_output(Path(output), losses_page(found.settings, found.loss, found.in_words()))
    return found


def read_trace(run: str | Path, step: int | None = None) -> Trace:
    """What every rank did in a step of a run that was traced.

    Args:
        run: the run's folder.
        step: which; the last traced one if left out.
    """
    from heddle.runs.folder import open_run
    from heddle.trace.steps import read_step, traced_steps

    folder = open_run(path_of(run, "a run's folder")).traces
    return read_step(folder, step if step is not None else max(traced_steps(folder), default=1))


def inspect(folder: str | Path, *, verify: bool = False) -> Contents:
    """What a checkpoint holds.

    Args:
        folder: a run, a checkpoint or a Hugging Face folder.
        verify: read everything and compare checksums; a checkpoint that is damaged is a `HeddleError`.
    """
    from heddle.checkpoint.contents import contents_of
    from heddle.checkpoint.contents import verify as compare_checksums
    from heddle.errors import HeddleError

    contents = contents_of(path_of(folder, "a run, a checkpoint or a Hugging Face folder"))
    if verify and (problems := compare_checksums(contents).problems):
        raise HeddleError(f"{contents.folder} is damaged.", " ".join(problems[:3]), "Copy it again, or use another.")
    return contents
