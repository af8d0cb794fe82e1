"""Which trainer a plan asks for."""

from __future__ import annotations

from typing import Any

from heddle.spec.job import Job
from heddle.train.step.checked import CheckedTrainer
from heddle.train.step.delayed import DelayedTrainer
from heddle.train.step.trainer import Trainer


def make_trainer(job: Job, *arguments: Any) -> Trainer:
    """The trainer that a job's plan asks for."""
    plan = job.planned.plan
    if plan.delayed is not None:
        return DelayedTrainer(job, *arguments)
    return (CheckedTrainer if plan.check_step == "after" else Trainer)(job, *arguments)
