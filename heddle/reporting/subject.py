"""What a page is about: a run that was measured, a plan that is predicted, or a job that has no plan yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from heddle.cost.measured.local_machine import machine_for, measured_machine, to_be_measured
from heddle.errors import HeddleError
from heddle.planning.best import with_best_plan
from heddle.planning.search.search import Search, search
from heddle.runs.decision import Decision, read_decision
from heddle.runs.experts import EXPERTS, ExpertUses, read_uses
from heddle.runs.folder import Run, open_run
from heddle.runs.machine import above_peak, read_machine
from heddle.runs.metrics import median, of_step, read_metrics, typical_step
from heddle.simulating.simulation import Simulation, simulate
from heddle.spec.job import Job, PlannedJob, load_job
from heddle.spec.plan import Plan
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
    experts: tuple[ExpertUses, ...] = ()  # tokens of each expert, where the model has some

    @property
    def step_seconds(self) -> float | None:
        """The median, without the first step, which is slow for reasons of its own: as `heddle train` states it."""
        return self.median("seconds")

    def median(self, key: str) -> float | None:
        """The median of a column, without the first step."""
        return median(self.steps, key)

    def most(self, key: str) -> float | None:
        """The largest value of a column."""
        return max((row[key] for row in self.steps if row.get(key) is not None), default=None)

    def of_step(self, key: str) -> float | None:
        """A number of the traced step."""
        return of_step(self.steps, self.traced, key)


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
    return job_subject(load_job(path), str(path), step)


def job_subject(job: Job, name: str, step: int | None = None) -> Subject:
    """A job with a plan or without: what is predicted of it."""
    if step is not None:
        raise HeddleError(
            f"{name} has no step {step}.",
            "Only runs have steps; a job has a prediction only.",
            "Leave --step out.",
        )
    notices: list[HeddleError] = []
    job, found = with_best_plan(on_its_machine(job))
    if found is not None:
        # over a network, plans are searched by their links: there is no space of plans to show
        return Subject(name, found.best.job, found.best, found if isinstance(found, Search) else None, None)
    prediction = simulate(job)
    if job.network is not None:
        return Subject(name, prediction.job, prediction, None, None)
    return Subject(name, prediction.job, prediction, _try(notices, lambda: search(job)), None, tuple(notices))


def _read_run(folder: Path, step: int | None) -> Subject:
    run = open_run(folder)
    notices: list[HeddleError] = []
    given = load_job(run.job_file).planned
    job = on_its_machine(given, run)
    if to_be_measured(given.cluster) and not run.machine.is_file():
        notices.append(
            HeddleError(
                f"{folder} does not say how fast its machine was: the prediction is for this one, as it is now.",
                "An earlier Heddle trained it, without keeping that.",
                "Compare measured numbers only, or train it again.",
            )
        )
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
    if trace is not None and not trace.is_of(job.plan.world, job.plan.chunks):
        most = 1 + max((span.chunk for span in trace.spans), default=0)
        notices.append(
            HeddleError(
                f"Step {traced} was traced on {trace.ranks} ranks with {most} chunks, but the run's plan has "
                f"{job.plan.world} and {job.plan.chunks}.",
                "The run was resumed under another plan; the trace belongs to the earlier one.",
                f"Resume it with --trace, or look at the trace alone: heddle trace {folder} --step {traced}",
            )
        )
        trace = None
    validation = [row for row in rows if "validation_loss" in row]
    watched = _watched(run.traces, job.plan) if trace is not None else None
    experts = tuple(read_uses(folder / EXPERTS))
    measured = MeasuredRun(steps, validation, trace, traced if trace is not None else None, watched, experts)
    prediction = _try(notices, lambda: simulate(job))
    mfu = measured.median("mfu")
    if mfu is not None and mfu > 1 and prediction is not None:
        notices.append(above_peak(mfu, prediction.peak / job.plan.world, given, prediction.cluster))
    found = _try(notices, lambda: search(job)) if job.network is None else None
    decision = _try(notices, lambda: read_decision(run.adapted, job.plan))
    return Subject(str(folder), job, prediction, found, measured, tuple(notices), decision)


def _watched(traces: Path, plan: Plan) -> Trace | None:
    """The second step, whose spans carry the bytes that lived; None where it was not watched."""
    found = traced_steps(traces)[1:2]
    if not found:
        return None
    trace = _try([], lambda: read_step(traces, found[0]))
    return trace if trace is not None and trace.is_of(plan.world, plan.chunks) else None


def on_its_machine(job: AnyJob, run: Run | None = None) -> AnyJob:
    """The job with a cluster: its own, or that of its run, or this machine; the same as `heddle simulate` predicts for.

    A run keeps what it found out about its machine, so that its page tells what its log told.
    """
    kept = read_machine(run) if run is not None and to_be_measured(job.cluster) else None
    if kept is not None:
        return replace(job, cluster=kept)
    if job.plan is not None:
        return replace(job, cluster=machine_for(job.cluster, job.plan.world))
    return replace(job, cluster=measured_machine(job.cluster))


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
