"""TensorBoard, where it is installed: a second telling of metrics.jsonl, which ends no run whatever happens to it."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Board:
    """Writes scalars for TensorBoard until the disk refuses one; that is told once, and the run goes on without."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
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
