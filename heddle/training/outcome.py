"""How a run is going and how it ended: the best evaluation so far, when to stop, and whom to tell."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from heddle.durable import replace_text
from heddle.errors import HeddleError
from heddle.runtime.environment import launched_place
from heddle.runtime.together import Together
from heddle.spec.job import Job, Train
from heddle.spec.tables import read_json

Ended = TypeVar("Ended")

BEST = "best.json"
PATIENCE = 60  # seconds that a command may take


class Best:
    """The lowest validation loss so far; every rank has the same numbers, and so decides the same."""

    def __init__(self, folder: Path, train: Train, step: int, together: Together | None = None) -> None:
        self.path, self.patience, self.keep = folder / BEST, train.patience, train.keep_best
        self.loss, self.at, self.worse = float("inf"), None, 0  # the loss, its step, evaluations since
        known = read_json(self.path, "the best evaluation of a run") if self.path.is_file() else {}
        if together is not None:  # nodes need not share the folder
            known = together.gather("the best evaluation", known)[0]
        if known and known["step"] <= step:
            self.loss, self.at, self.worse = known["validation_loss"], known["step"], known["worse"]

    @property
    def step(self) -> int | None:
        """Whose checkpoint is to stay."""
        return self.at if self.keep else None

    def over(self) -> bool:
        """Whether nothing has become better for too long."""
        return self.patience > 0 and self.worse >= self.patience

    @property
    def in_words(self) -> str:
        """Why a run stops."""
        return (
            f"Stopping: {self.worse} evaluations in a row were no better than {self.loss:.4f}, that of step {self.at}."
        )

    def better(self, step: int, loss: float, writes: bool) -> bool:
        """Learn of an evaluation; whether it is the best. One rank writes that down."""
        better = loss < self.loss
        if better:
            self.loss, self.at, self.worse = loss, step, 0
        else:
            self.worse += 1
        if writes:
            about = {"step": self.at, "validation_loss": self.loss, "worse": self.worse}
            replace_text(self.path, json.dumps(about) + "\n")
        return better


def notify(command: str, folder: Path, result: Any, warn: Callable[[str], None]) -> None:
    """Run a command of the user's when a run has ended, well or not."""
    about = {
        "HEDDLE_RUN": str(folder),
        "HEDDLE_STATUS": "failed" if result is None else "done" if result.step >= result.steps else "stopped",
        "HEDDLE_STEP": "" if result is None else str(result.step),
        "HEDDLE_LOSS": "" if result is None else f"{result.loss:.6g}",
    }
    try:
        subprocess.run(command, shell=True, check=True, timeout=PATIENCE, env=os.environ | about)  # noqa: S602
    except (OSError, subprocess.SubprocessError) as error:
        warn(f"train.notify failed: {error}.")


class RunEnding:
    """Runs `train.notify` when a run has ended, however it did; only the first rank of a launcher does."""

    def __init__(self, job: Job, warn: Callable[[str], None]) -> None:
        self.job, self.warn = job, warn
        self.result: Any = None

    def with_(self, result: Ended) -> Ended:
        """What it ended with."""
        self.result = result
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        place, command = launched_place(), self.job.train.notify
        if command is not None and (place is None or place.rank == 0):
            notify(command, self.job.run_folder, self.result, self.warn)


def check_sendable(functions: object) -> None:
    """Refuse functions that cannot be sent to the process that calls them."""
    try:
        pickle.dumps(functions)
    except Exception as error:
        raise HeddleError(
            "on_step or on_evaluation cannot be sent to another process.",
            f"The plan has several, and the first of them calls it. {error}",
            "Define the function at the top of a module, rather than in another function.",
        ) from None
