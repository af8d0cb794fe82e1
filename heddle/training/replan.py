"""A run that goes on with as many devices as there are: under its own plan where that is all, else under another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heddle.console import plain_console
from heddle.errors import HeddleError
from heddle.planning.replan import in_words_for, replanned
from heddle.runs.folder import Run
from heddle.runtime.error_files import restart_count
from heddle.runtime.healthy import GpusHere
from heddle.spec.job import Job, PlannedJob
from heddle.spec.plan import Plan, Predicted
from heddle.spec.ranks import world_in_words
from heddle.spec.tables import build, to_table
from heddle.training.opening import RunOptions


class Replanner:
    """Finds the plan for what is there. Whoever starts a run for the first time gets the plan that was asked for."""

    def __init__(self, job: Job, options: RunOptions) -> None:
        self.job, self.options = job.planned, options
        self.tied = job.model.tied or bool(job.model.own)  # whose ends may share any parameter
        self.now, self.words = self.job, ""  # the job as it is run, and why not as it was given
        self.devices = GpusHere()
        self.store: Any = None  # through which processes of another launcher agreed
        self.returning = False  # whether all ranks were asked to stop because devices are back

    # ------------------------------------------------------------------------------- processes of another launcher

    def may(self) -> bool:
        """A run that has begun: a node that joins it late knows that by the run's folder alone."""
        return self.job.train.replan and (self._goes_on or Run(self.job.run_folder).job_file.exists())

    @property
    def _goes_on(self) -> bool:
        begun = self.options.auto_resume and Run(self.job.run_folder).job_file.exists()
        return self.options.resume or restart_count() > 0 or begun

    def decide(self, world: int) -> dict[str, Any]:
        """What the first rank finds for the processes that have met."""
        if not self._goes_on:
            raise HeddleError(
                f"{world} processes started, but the plan needs {world_in_words(self.job.plan)}.",
                "Every process takes one position in the mesh.",
                f"Start {self.job.plan.world} of them, or resume the run with --resume under a plan for {world}.",
            )
        return self._found(world)

    def take(self, decided: dict[str, Any]) -> Plan:
        """Go on under what the first rank found."""
        plan = build(Plan, decided["plan"], "plan")
        predicted = build(Predicted, decided["predicted"], "predicted")
        self.now, self.words = replace(self.job.with_plan(plan), predicted=predicted), decided["words"]
        return self.now.plan

    def given(self) -> tuple[PlannedJob, RunOptions]:
        """The job and options for a rank."""
        if self.now is self.job:
            return self.job, self.options
        return self.now, replace(self.options, machine=None, replanned=self.words, planned=self.job)

    # ------------------------------------------------------------------------------------- processes of our own

    def here(self, restart: int) -> tuple[PlannedJob, RunOptions]:
        """The job for this start, by the devices that this machine has left."""
        self.now, self.words = self.job, ""
        self.devices.choose_all()
        goes_on = restart > 0 or self.options.resume or self.options.auto_resume
        count = self.devices.count() if goes_on and self.job.train.replan else None
        if count and count < self.job.plan.world:
            self.take(self._found(count))
            self.devices.choose()
        job, options = self.given()
        returned, self.returning = self.returning, False
        return job, replace(options, returned=returned)

    def _found(self, count: int) -> dict[str, Any]:
        now = replanned(self.job, count)
        words = in_words_for(self.job, now, count)
        return {"plan": to_table(now.plan), "predicted": to_table(now.predicted), "words": words}

    def back(self) -> bool:
        """Whether a run that goes on with fewer devices could have all of them again."""
        count = self.devices.count()
        return self.now is not self.job and count is not None and count >= self.job.plan.world

    def goes_on(self, result: Any) -> bool:
        """Whether ranks that ended well did so only because they were asked to make room for all devices."""
        if not self.returning or result.step >= result.steps:
            return False
        words = f"All {self.job.plan.world} devices are back: the run returns to its own plan."
        plain_console().print(words, style="yellow", highlight=False, soft_wrap=True)
        return True
