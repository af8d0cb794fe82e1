"""What a page is about: a run that was measured, a plan that is predicted, or a job that has no plan yet."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from heddle.cost.local_machine import measured_machine, sharing_cores
from heddle.errors import HeddleError
from heddle.plan.regions.network_search import search_network
from heddle.plan.search.search import Search, search
from heddle.runs.decision import Decision, read_decision
from heddle.runs.folder import open_run
from heddle.runs.metrics import read_metrics
from heddle.simulate.simulation import Simulation, simulate
from heddle.spec.job import Job, PlannedJob, load_job
from heddle.trace.steps import read_step, traced_steps
from heddle.trace.trace import Trace

T = TypeVar("T")

AnyJob = TypeVar("AnyJob", bound=Job)


@dataclass(frozen=True)
class MeasuredRun:
    """What a run wrote down."""

    steps: list[dict[str, Any]]  # rows of metrics.jsonl
    validation: list[dict[str, Any]]
    trace: Trace | None
    traced: int | None  # the step that the trace is of
    watched: Trace | None = None  # the step whose spans carry the bytes that lived

    @property
    def step_seconds(self) -> float | None:
        """The median, without the first step, which is slow for reasons of its own: as `heddle train` states it."""
        return self.median("seconds")

    def median(self, key: str) -> float | None:
        """The median of a column, without the first step."""
        values = [row[key] for row in self.steps if _is_number(row.get(key))]
        return statistics.median(values[1:] or values) if values else None

    def of_step(self, key: str) -> float | None:
        """A number of the traced step."""
        values = [row.get(key) for row in self.steps if row["step"] == self.traced]
        return values[-1] if values and _is_number(values[-1]) else None


@dataclass(frozen=True)
class Subject:
    """All that is known of it. What is missing is in `notices`, each with a way to fix it."""

    name: str
    job: PlannedJob
    prediction: Simulation | None
    search: Search | None
    measured: MeasuredRun | None
    notices: tuple[HeddleError, ...] = ()
    decision: Decision | None = None  # of a run that adapts

    @property
    def was_planned(self) -> bool:
        """Whether the plan is the search's own, because the file has none."""
        return self.search is not None and self.measured is None and self.search.best is self.prediction


def read_subject(path: Path, step: int | None = None) -> Subject:
    """Read a run's folder, or a job file with a plan or without."""
    if path.suffix in (".json", ".jsonl") and path.is_file():
        raise HeddleError(
            f"{path} is neither a run nor a job.",
            "A report is about a run folder, which holds traces and metrics, or about a job file.",
            "Give the run's folder, such as runs/NAME, or the .toml file.",
        )
    if path.suffix != ".toml" or path.is_dir():
        return _read_run(path, step)
    if step is not None:
        raise HeddleError(
            f"{path} has no step {step}.",
            "Only runs have steps; a job file has a prediction only.",
            "Leave --step out.",
        )
    notices: list[HeddleError] = []
    job = on_its_machine(load_job(path))
    if job.network is not None:  # where plans are searched by their links
        prediction = simulate(job) if job.plan is not None else search_network(job).best
        return Subject(str(path), prediction.job, prediction, None, None)
    if job.plan is None:
        found = search(job)
        return Subject(str(path), found.best.job, found.best, found, None)
    prediction = simulate(job)
    return Subject(str(path), prediction.job, prediction, _try(notices, lambda: search(job)), None, tuple(notices))


def _read_run(folder: Path, step: int | None) -> Subject:
    run = open_run(folder)
    notices: list[HeddleError] = []
    job = on_its_machine(load_job(run.job_file).planned)
    rows = _read_rows(folder / "metrics.jsonl", notices)
    steps = [row for row in rows if "loss" in row]
    traced = step if step is not None else typical_step(traced_steps(run.traces), steps)
    trace = None
    if step is not None:
        trace = read_step(run.traces, step)
    elif traced is None:
        notices.append(
            HeddleError(
                f"{folder} has no trace: its timeline is predicted only.",
                "What every rank does is recorded only on request.",
                "Train with: heddle train JOB.toml --trace",
            )
        )
    else:
        trace = _try(notices, lambda: read_step(run.traces, traced))
    if trace is not None:
        notices += [
            HeddleError(words, "A run that is killed may leave half a line.", "The page shows the complete lines.")
            for words in trace.skipped
        ]
    if trace is not None and trace.ranks != job.plan.world:
        notices.append(
            HeddleError(
                f"Step {traced} was traced on {trace.ranks} ranks, but the run's plan has {job.plan.world}.",
                "The run was resumed under another plan; the trace belongs to the earlier one.",
                f"Resume it with --trace, or look at the trace alone: heddle trace {folder} --step {traced}",
            )
        )
        trace = None
    validation = [row for row in rows if "validation_loss" in row]
    watched = _watched(run.traces, job.plan.world) if trace is not None else None
    measured = MeasuredRun(steps, validation, trace, traced if trace is not None else None, watched)
    prediction = _try(notices, lambda: simulate(job))
    found = _try(notices, lambda: search(job)) if job.network is None else None
    decision = _try(notices, lambda: read_decision(run.adapted, job.plan))
    return Subject(str(folder), job, prediction, found, measured, tuple(notices), decision)


def _watched(traces: Path, world: int) -> Trace | None:
    """The second step, whose spans carry the bytes that lived; None where it was not watched."""
    found = traced_steps(traces)[1:2]
    if not found:
        return None
    trace = _try([], lambda: read_step(traces, found[0]))
    return trace if trace is not None and trace.ranks == world else None


def on_its_machine(job: AnyJob) -> AnyJob:
    """The job with a cluster: its own, or this machine, looked at once; the same as `heddle simulate` predicts for."""
    cluster = _machine(job.cluster)
    if job.cluster is None and job.plan is not None:
        cluster = sharing_cores(cluster, job.plan.world)
    return replace(job, cluster=cluster)


_machine = lru_cache(measured_machine)  # looked at once: two subjects are predicted for the same machine


def typical_step(traced: list[int], steps: list[dict[str, Any]]) -> int | None:
    """Of the traced steps the one that took the median time; the first counts only where it is the only one."""
    times = {row["step"]: row["seconds"] for row in steps if _is_number(row.get("seconds"))}
    timed = sorted((times[step], step) for step in traced[1:] if step in times)
    return timed[len(timed) // 2][1] if timed else max(traced, default=None)


def _read_rows(path: Path, notices: list[HeddleError]) -> list[dict[str, Any]]:
    """The rows that are whole, and a word where there are more."""
    try:
        skipped: list[int] = []
        rows = read_metrics(path, skipped.append)
    except HeddleError as error:
        notices.append(HeddleError(error.what, error.why, "The page is written without its numbers."))
        return []
    if not rows:
        notices.append(
            HeddleError(
                f"{path} has no steps yet.", "A run writes a line after each of its steps.", "Let it take a few steps."
            )
        )
    elif odd := len(skipped):
        notices.append(
            HeddleError(
                f"{path} has {len(rows)} complete rows; {odd} of its {len(rows) + odd} lines are incomplete.",
                "A run that was killed, or is still writing, may leave half a line.",
                "The page shows the complete rows; --resume repairs the file.",
            )
        )
    return rows


def _try(notices: list[HeddleError], part: Callable[[], T]) -> T | None:
    """A part of the page that may be missing: then the page says why."""
    try:
        return part()
    except HeddleError as error:
        notices.append(error)
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
