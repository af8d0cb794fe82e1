"""What a run tells about itself: a live line, metrics.jsonl, and TensorBoard where it is installed."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from heddle.files import parse_json, read_lines
from heddle.train.files import replace_text

BAR = 60  # columns of the bar that shows how far a run has come


@dataclass(frozen=True)
class StepMetrics:
    """One optimizer step, as it stands in metrics.jsonl."""

    step: int  # steps done, so the first is 1
    loss: float
    learning_rate: float
    gradient_norm: float
    seconds: float
    tokens_per_second: float
    mfu: float
    memory_gib: float
    loss_scale: float | None = None
    bubble: float | None = None  # idle over busy time of all ranks, where the run is traced


NUMBERS = {field.name for field in fields(StepMetrics)} | {"validation_loss"}
LARGEST = 1 << 30  # bytes of a file: a million steps are a quarter of it


class Metrics:
    """Writes every step to the run folder and shows some of them to a person."""

    def __init__(self, folder: Path, steps: int, log_every: int, console: Console, start: int = 0) -> None:
        self.steps, self.log_every, self.console = steps, log_every, console
        self.path = folder / "metrics.jsonl"
        replace_text(self.path, "".join(line + "\n" for line in _lines_up_to(self.path, start)))
        self.file = self.path.open("a")
        self.board = _tensorboard(folder)
        self.live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self.smoothed_seconds = 0.0
        self.shown_at = 0.0

    def __enter__(self) -> Metrics:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()
        self.file.close()
        if self.board is not None:
            self.board.close()

    def step(self, metrics: StepMetrics) -> None:
        """Record one step; show it live on a terminal, and every so often for good."""
        self._write(asdict(metrics))
        # A slow first step (allocation, compilation) should not rule the estimate for long.
        blend = 0.9 if self.smoothed_seconds else 0.0
        self.smoothed_seconds = blend * self.smoothed_seconds + (1 - blend) * metrics.seconds
        line = self._line(metrics)
        if metrics.step % self.log_every == 0 or metrics.step in (1, self.steps):
            self.console.print(line, soft_wrap=True)
        elif self.live and time.monotonic() - self.shown_at > 0.1:
            line.no_wrap, line.overflow = True, "ellipsis"  # a line that is drawn over has to stay one
            self.live.update(Group(line, ProgressBar(self.steps, metrics.step, width=BAR)), refresh=True)
            self.shown_at = time.monotonic()

    def evaluation(self, step: int, loss: float) -> None:
        """Record a loss on the validation split."""
        self._write({"step": step, "validation_loss": loss})
        self.console.print(f"step {step:>6}  validation loss {loss:.4f}", highlight=False)

    def _write(self, row: dict[str, Any]) -> None:
        row = {key: value for key, value in row.items() if value is not None}
        # JSON has no NaN: the norm of a step that overflowed under fp16 is null.
        finite = {key: value if math.isfinite(value) else None for key, value in row.items()}
        self.file.write(json.dumps(finite, allow_nan=False) + "\n")
        self.file.flush()
        if self.board is not None:
            for key, value in row.items():
                if key != "step":
                    self.board.add_scalar(key, value, row["step"])

    def _line(self, m: StepMetrics) -> Text:
        remaining = round((self.steps - m.step) * self.smoothed_seconds)
        parts = [
            (f"step {m.step:>6}/{self.steps}", "bold"),
            (f"loss {m.loss:.4f}", "green"),
            (f"lr {m.learning_rate:.2e}", ""),
            (f"norm {m.gradient_norm:.2f}", ""),
            (f"{_short(m.tokens_per_second)} tok/s", "cyan"),
            (f"mfu {100 * m.mfu:.1f}%", ""),
            (f"mem {m.memory_gib:.2f} GiB", ""),
            (f"eta {remaining // 3600}:{remaining // 60 % 60:02}:{remaining % 60:02}", "dim"),
        ]
        if m.bubble is not None:
            parts.insert(-1, (f"bubble {100 * m.bubble:.1f}%", ""))
        return Text("  ").join(Text(words, style=style) for words, style in parts)


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of a metrics file, and how many of its lines are none: a crash may leave half a line, an editor any."""
    if not path.exists():
        return [], 0
    lines = [line for line in read_lines(path, "what a run wrote after each of its steps", LARGEST) if line]
    rows = [row for line in lines if (row := _row(line)) is not None]
    return rows, len(lines) - len(rows)


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = parse_json(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or type(row.get("step")) is not int or row["step"] < 0:
        return None
    for name in NUMBERS & row.keys():
        if row[name] is not None and type(row[name]) not in (int, float):
            return None
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }


def _lines_up_to(path: Path, step: int) -> list[str]:
    """What stays of an earlier metrics file when a run goes on from `step`."""
    return [json.dumps(row) for row in read_metrics(path)[0] if row["step"] <= step]


def _tensorboard(folder: Path) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard.writer import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))


def _short(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"
