"""What a run tells about itself: a live line, metrics.jsonl, and TensorBoard where it is installed."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from heddle.files import parse_json, read_lines
from heddle.runs.durable import replace_text
from heddle.train.board import Board

FIRST = 4  # steps after which a prediction is corrected
OFF = 1.25  # by what factor it has to be wrong for that to be said
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


LARGEST = 1 << 30  # bytes of a file: a million steps are a quarter of it


class Metrics:
    """Writes every step to the run folder and shows some of them to a person."""

    def __init__(
        self,
        folder: Path,
        steps: int,
        log_every: int,
        console: Console,
        start: int = 0,
        predicted: float | None = None,  # seconds a step
    ) -> None:
        self.steps, self.log_every, self.console = steps, log_every, console
        self.predicted, self.times = predicted, list[float]()
        self.path = folder / "metrics.jsonl"
        self._keep_up_to(start)
        self.file = self.path.open("a")
        self.board = Board(folder, self._warn)
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
        self.board.close()

    def step(self, metrics: StepMetrics) -> None:
        """Record one step; show it live on a terminal, and every so often for good."""
        self._write(asdict(metrics))
        # A slow first step (allocation, compilation) should not rule the estimate for long.
        blend = 0.9 if self.smoothed_seconds else 0.0
        self.smoothed_seconds = blend * self.smoothed_seconds + (1 - blend) * metrics.seconds
        self._correct(metrics.seconds)
        line = self._line(metrics)
        if metrics.step % self.log_every == 0 or metrics.step in (1, self.steps):
            self.console.print(line, soft_wrap=True)
        elif self.live and time.monotonic() - self.shown_at > 0.1:
            line.no_wrap, line.overflow = True, "ellipsis"  # a line that is drawn over has to stay one
            self.live.update(Group(line, ProgressBar(self.steps, metrics.step, width=BAR)), refresh=True)
            self.shown_at = time.monotonic()

    def _correct(self, seconds: float) -> None:
        """Once some steps are measured, say what a step takes if that is not what was predicted."""
        if self.predicted is None or len(self.times) == FIRST:
            return
        self.times.append(seconds)
        if len(self.times) < FIRST:
            return
        measured = statistics.median(self.times[1:])  # the first step allocates and compiles
        self.smoothed_seconds = measured
        off = max(measured / self.predicted, self.predicted / measured)
        if off > OFF:
            than = "longer" if measured > self.predicted else "shorter"
            self.console.print(
                f"A step was predicted to take {self.predicted:.3g} s. The first {FIRST} take {measured:.3g} s, "
                f"{off:.3g} times {than}: the time left is from what was measured.",
                style="yellow",
                soft_wrap=True,
                highlight=False,
            )

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
        self.board.add(row)

    def _keep_up_to(self, step: int) -> None:
        """What stays of an earlier metrics file when a run goes on from `step`; one that is damaged is kept beside."""
        skipped: list[int] = []
        rows = read_metrics(self.path, skipped.append)
        if skipped:
            kept = self.path.with_suffix(".damaged.jsonl")
            shutil.copyfile(self.path, kept)
            lines = f"Line {skipped[0]}" if len(skipped) == 1 else f"{len(skipped)} lines, the first {skipped[0]},"
            self._warn(f"{lines} of {self.path} cannot be read and is left out; all of it is kept as {kept.name}.")
        replace_text(self.path, "".join(json.dumps(row) + "\n" for row in rows if row["step"] <= step))

    def _warn(self, words: str) -> None:
        self.console.print(words, style="yellow", soft_wrap=True, markup=False)

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


def read_metrics(path: Path, skipped: Callable[[int], None] = lambda _: None) -> list[dict[str, Any]]:
    """The rows of a metrics file that are whole; the numbers of other lines are told, but for a last one cut short."""
    if not path.exists():
        return []
    lines = read_lines(path, "what a run wrote after each of its steps", LARGEST)
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        row = _row(line)
        if row is not None:
            rows.append(row)
        elif number < len(lines):  # a crash leaves its last line without an end
            skipped(number)
    return rows


def _row(line: str) -> dict[str, Any] | None:
    """A step's: numbers by name, or null where there was none; JSON has no NaN, though Python writes it."""
    try:
        row = parse_json(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or type(row.get("step")) is not int or row["step"] < 0:
        return None
    if any(value is not None and type(value) not in (int, float) for value in row.values()):
        return None
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }


def _short(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"
