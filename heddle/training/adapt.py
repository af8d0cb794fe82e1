"""`[plan] adapt = true`: a run measures its first steps, and may change what its layers do to need less memory, once.

The split stays, and so do the processes: a checkpoint is written, the same ranks build their part of the model anew
under the new strategies, and take it up. Strategies change memory and time, never numbers.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from heddle.durable import replace_text
from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.planning.layer_memory.adapt import FirstSteps, adapted
from heddle.runs.folder import Run
from heddle.runtime.device import forget_peak, memory_gib, on_gpu
from heddle.runtime.together import Together
from heddle.simulating.simulation import simulate
from heddle.spec.cluster import Cluster
from heddle.spec.job import PlannedJob
from heddle.spec.plan import Plan, Predicted
from heddle.spec.ranks import places
from heddle.spec.tables import build, read_json, to_table
from heddle.training.dry_run.living import Living
from heddle.training.flight import Flight
from heddle.training.profile.clock import SharedClock
from heddle.training.profile.tiers import tiers

WATCHED = 2  # steps whose memory is counted, which makes them slow on a CPU; the second has all that later ones have
TIMED = 5  # steps after them whose time counts, as their median
LOOK = 0.2  # seconds that are spent on the speed of each tier


class Adapter:
    """The job as it goes on, and whether it is still to be decided how."""

    def __init__(
        self, job: PlannedJob, together: Together, device: torch.device, machine: Cluster | None = None
    ) -> None:
        """A run that decided before goes on as it did then; before anything else, what cannot be predicted is told."""
        self.together, self.device, self.run = together, device, Run(job.run_folder)
        self.job, decided = _as_decided(job, self.run) if job.plan.adapt else (job, True)
        self.open = not decided
        self.changed = False  # and the trainer is to be built anew
        self.living = None if on_gpu(device) else Living()
        self.watched = 0
        if self.open and self.living is not None and job.train.compile:
            raise HeddleError(
                "adapt = true cannot be combined with train.compile on a CPU.",
                "Live tensors are counted at each operator there, and a compiled layer has no operators to see.",
                "Use train.compile = false, or adapt = false.",
            )
        on = self.job if machine is None else replace(self.job, cluster=machine)
        self.predicted = simulate(on) if self.open and together.mesh.rank == 0 else None

    def making(self) -> AbstractContextManager[object]:
        """While the trainer is made, or takes up a checkpoint: what lives from then on counts."""
        return self.living if self.open and self.living is not None else nullcontext()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """During a step: the most bytes of tensors that live at once, in the first steps. GPUs count by themselves."""
        if not self.open or self.watched == WATCHED:
            yield
            return
        self.watched += 1
        if self.living is None:
            forget_peak(self.device)
            yield
            return
        self.living.most = self.living.now
        with self.living:
            yield

    def due(self, flight: Flight) -> bool:
        """Whether enough steps are measured, and there are more to come."""
        more = flight.trainer.step < self.job.train.steps and not flight.stopped
        return self.open and more and len(flight.times) >= WATCHED + TIMED

    def look(self, flight: Flight, console: Console) -> None:
        """Decide, all ranks alike."""
        flight.land()
        trainer = flight.trainer
        folder = self.job.train.offload_folder
        clock = SharedClock(trainer.mesh, self.device, LOOK)
        speeds = {
            time.tier: time.bytes / time.seconds / 1e9
            for time in tiers(clock, self.device, None if folder is None else Path(folder))
        }
        peak = memory_gib(self.device) * GIB if self.living is None else self.living.most
        peaks = self.together.gather("what they hold", peak)
        decided = self._decided(flight, peaks, speeds) if self.predicted is not None else None
        record = self.together.gather("the strategies to go on with", decided)[0]
        console.print(f"After step {record['step']}: {record['why']}", soft_wrap=True, markup=False, highlight=False)
        self.open, self.changed, self.living = False, record["changed"], None
        self.job = _with(self.job, record)

    def _decided(self, flight: Flight, peaks: list[float], speeds: dict[str, float]) -> dict[str, Any]:
        """What rank 0 finds, in its record: whoever resumes the run goes on with it."""
        assert self.predicted is not None
        plan = self.job.plan
        stages = [place.pipeline for place in places(plan)]
        fullest = [max(peak for peak, of in zip(peaks, stages, strict=True) if of == s) for s in range(plan.pipeline)]
        first = FirstSteps(statistics.median(flight.times[WATCHED:]), tuple(fullest), speeds)
        found = adapted(self.predicted, first)
        record = {
            "step": flight.trainer.step,
            "changed": found.plan != plan,
            "why": found.words,
            "measured": asdict(first),
            "given": plan.hash,
            "plan": to_table(found.plan),
            "predicted": to_table(found.predicted),
        }
        replace_text(self.run.adapted, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        return record


def _as_decided(job: PlannedJob, run: Run) -> tuple[PlannedJob, bool]:
    """A job under the plan that its run decided for, and whether it did; a plan that was changed since is another."""
    if not run.adapted.exists():
        return job, False
    record = read_json(run.adapted, "what a run measured in its first steps, and what it decided")
    try:
        known = _with(job, record)
    except (KeyError, TypeError, AttributeError):
        return job, False
    return (known, True) if job.plan.hash in (record.get("given"), known.plan.hash) else (job, False)


def _with(job: PlannedJob, record: dict[str, Any]) -> PlannedJob:
    plan, predicted = build(Plan, record["plan"], "plan"), build(Predicted, record["predicted"], "predicted")
    return replace(job, plan=plan, predicted=predicted).planned
