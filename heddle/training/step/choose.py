"""The trainer that a plan asks for, with the steps that go around its own."""

from __future__ import annotations

from heddle.data import Trained
from heddle.parallel.mesh import Mesh
from heddle.runtime.recorder import NoRecorder
from heddle.spec.job import Job
from heddle.training.step.checked import CheckedSteps
from heddle.training.step.late import LateSteps
from heddle.training.step.optimizer import Optimizer
from heddle.training.step.trainer import Trainer


def make_trainer(
    job: Job,
    tokens: Trained,
    mesh: Mesh | None = None,
    recorder: NoRecorder | None = None,
    optimizer: type[Optimizer] = Optimizer,
) -> Trainer:
    """The trainer of one rank."""
    trainer = Trainer(job, tokens, mesh, recorder, optimizer)
    if trainer.plan.check_step == "after":
        trainer.steps = CheckedSteps(trainer, trainer.steps)
    if trainer.plan.late is not None:
        trainer.steps = LateSteps(trainer, trainer.steps)
    return trainer
