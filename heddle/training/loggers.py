"""Where a run's numbers go beside metrics.jsonl: TensorBoard, Weights & Biases, MLflow, functions of one's own.

Each is a `Logger`, on the first rank alone. One that fails is told once and left out; it ends no run.
"""

from __future__ import annotations

import importlib.util
import json
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from heddle.durable import replace_text
from heddle.errors import HeddleError, how_to_install
from heddle.spec.job import Job
from heddle.spec.tables import read_json, to_table

Warn = Callable[[str], None]
Numbers = dict[str, Any]  # of a step or an evaluation, by name; `step` is one of them


class Logger(Protocol):
    """Is given every row of metrics.jsonl."""

    def add(self, row: Numbers) -> None:
        """Record the numbers of a step or of an evaluation."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


class Careful:
    """A logger that may fail: whatever it raises is told once, and the run goes on without it."""

    def __init__(self, name: str, make: Callable[[], Logger], warn: Warn) -> None:
        self.name, self.warn = name, warn
        self.logger: Logger | None = None
        self._try(self._make, make)

    def add(self, row: Numbers) -> None:
        """Hand the numbers on."""
        if self.logger is not None:
            self._try(self.logger.add, row)

    def close(self) -> None:
        """Hand that on, too."""
        if self.logger is not None:
            self._try(self.logger.close)

    def _make(self, make: Callable[[], Logger]) -> None:
        self.logger = make()

    def _try(self, do: Callable[..., Any], *arguments: Any) -> None:
        try:
            do(*arguments)
        except Exception as error:  # it is somebody else's code
            self.logger = None
            self.warn(
                f"{self.name} failed: {type(error).__name__}: {error}. The run continues without it; all numbers are "
                "in metrics.jsonl."
            )


class WeightsAndBiases:
    """Weights & Biases; its own environment variables say which project, and whether it is offline."""

    def __init__(self, folder: Path, job: Job) -> None:
        import wandb

        self.run = wandb.init(
            id=_run_id(folder),
            resume="allow",  # a run that goes on is one run there, too
            name=job.train.name,
            dir=str(folder),
            config=described(job),
        )

    def add(self, row: Numbers) -> None:
        """Numbers of the same step are one row there."""
        self.run.log({key: value for key, value in row.items() if key != "step"}, step=row["step"])

    def close(self) -> None:
        """Send or write what is left."""
        self.run.finish()


class MLflow:
    """MLflow; its own environment variables say where it is, by default a folder beside the runs."""

    def __init__(self, folder: Path, job: Job) -> None:
        import mlflow

        self.flow, path = mlflow, folder / "mlflow.json"
        known = read_json(path, "the run's name in MLflow")["id"] if path.is_file() else None
        mlflow.set_experiment(job.model.name or "heddle")
        self.run = mlflow.start_run(run_id=known, run_name=job.train.name)
        replace_text(path, json.dumps({"id": self.run.info.run_id}) + "\n")
        if known is None:
            mlflow.log_params({f"train.{key}": value for key, value in to_table(job.train).items()})

    def add(self, row: Numbers) -> None:
        """Numbers of a step."""
        self.flow.log_metrics({key: float(value) for key, value in row.items() if key != "step"}, step=row["step"])

    def close(self) -> None:
        """End the run there."""
        self.flow.end_run()


class Functions:
    """Functions of one's own, called with the numbers of every step and every evaluation."""

    def __init__(self, on_step: Callable[[Numbers], object] | None, on_evaluation: Callable[[Numbers], object] | None):
        self.on_step, self.on_evaluation = on_step, on_evaluation

    def add(self, row: Numbers) -> None:
        """Call the one that the row is for."""
        wanted = self.on_evaluation if "validation_loss" in row else self.on_step
        if wanted is not None:
            wanted(dict(row))

    def close(self) -> None:
        """There is nothing to close."""


NAMED: dict[str, tuple[str, Callable[[Path, Job], Logger]]] = {
    "wandb": ("wandb", WeightsAndBiases),
    "mlflow": ("mlflow", MLflow),
}
NAMES = ("tensorboard", *NAMED)


def check_loggers(names: Sequence[str]) -> None:
    """Refuse a logger whose library is not there, before anything is made."""
    for name in names:
        library = NAMED[name][0] if name in NAMED else name
        if importlib.util.find_spec(library) is None:
            raise HeddleError(
                f"train.log names '{name}', and the library '{library}' is not installed.",
                "Its numbers would go nowhere.",
                f"Install it: {how_to_install(library)}. metrics.jsonl in the run's folder has all numbers without it.",
            )


def loggers_of(job: Job, folder: Path, warn: Warn, functions: Functions | None = None) -> list[Logger]:
    """Those that a job names, TensorBoard where it is installed and nothing else was asked for, and functions."""
    names = job.train.log
    found: list[Logger] = [] if names and "tensorboard" not in names else [Board(folder, warn)]
    for name in names:
        if name in NAMED:
            label, make = NAMED[name]
            found.append(Careful(label, lambda make=make: make(folder, job), warn))  # type: ignore[misc]
    if functions is not None:
        found.append(Careful("A function given to heddle.train", lambda: functions, warn))
    return found


def described(job: Job) -> dict[str, Any]:
    """A job as loggers keep it."""
    parts = {"model": job.model, "train": job.train, "data": job.data, "plan": job.plan, "tune": job.tune}
    parts["preference"] = job.preference
    return {name: to_table(part) for name, part in parts.items() if part is not None}


def _run_id(folder: Path) -> str:
    """What the run is called at Weights & Biases: the same whenever it goes on."""
    path = folder / "wandb.json"
    if not path.is_file():
        replace_text(path, json.dumps({"id": uuid.uuid4().hex[:8]}) + "\n")
    return str(read_json(path, "the run's name at Weights & Biases")["id"])


class Board:
    """Writes scalars for TensorBoard until the disk refuses one; that is told once, and the run goes on without."""

    def __init__(self, folder: Path, warn: Warn) -> None:
        self.folder, self.warn = folder / "tensorboard", warn
        self.writer: Any = None
        self.hook = threading.excepthook
        if importlib.util.find_spec("tensorboard") is not None:
            threading.excepthook = self._quiet
            self._try(self._open)

    def add(self, row: dict[str, Any]) -> None:
        """Record the numbers of a step."""
        for key, value in row.items():
            if key != "step" and self.writer is not None:
                self._try(self.writer.add_scalar, key, value, row["step"])

    def close(self) -> None:
        """Write what is left."""
        if self.writer is not None:
            self._try(self.writer.close)
        threading.excepthook = self.hook

    def _open(self) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self.writer = SummaryWriter(str(self.folder))

    def _try(self, write: Callable[..., Any], *arguments: Any) -> None:
        try:
            write(*arguments)
        except OSError as error:
            self.writer = None
            self.warn(
                f"TensorBoard's file in {self.folder} cannot be written: {error.strerror or error}. "
                "The run continues without it; all numbers are in metrics.jsonl."
            )

    def _quiet(self, failed: threading.ExceptHookArgs) -> None:
        """Its thread hands an error on to us, and would print a traceback as well."""
        if not (isinstance(failed.exc_value, OSError) and type(failed.thread).__module__.startswith("tensorboard.")):
            self.hook(failed)
