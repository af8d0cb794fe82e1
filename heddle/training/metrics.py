"""What a run tells about itself: a live line, metrics.jsonl, and whatever else logs it."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from heddle.durable import replace_text
from heddle.errors import HeddleError
from heddle.format import length_in_words, seconds_in_words, short
from heddle.runs.experts import ExpertUses, dead_in_words
from heddle.runs.metrics import StepMetrics, read_metrics
from heddle.training.loggers import Logger

FIRST = 4  # steps after which a prediction is corrected
OFF = 1.25  # by what factor it has to be wrong for that to be said
BAR = 60  # columns of the bar that shows how far a run has come


class Metrics:
    """Writes every step to the run folder and shows some of them to a person."""

    def __init__(
        self,
        folder: Path,
        steps: int,
        log_every: int,
        console: Console,
        start: int = 0,
        predicted: float | None = None,  # seconds per step
        above_peak: Callable[[float], HeddleError] | None = None,  # what to say of an MFU above 100 %
        loggers: Sequence[Logger] = (),
    ) -> None:
        self.steps, self.log_every, self.console = steps, log_every, console
        self.predicted, self.times = predicted, list[float]()
        self.above_peak = above_peak
        self.path = folder / "metrics.jsonl"
        self._keep_up_to(start)
        self.file = self.path.open("a")
        self.loggers = loggers
        self.live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self.smoothed_seconds = 0.0
        self.shown_at = 0.0
        self.balance: float | None = None  # tokens of the most used expert over the mean's
        self.dead: dict[int, list[int]] = {}  # experts without any token, as they were last named

    def __enter__(self) -> Metrics:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()
        self.file.close()
        for logger in self.loggers:
            logger.close()

    def step(self, metrics: StepMetrics, link: str | None = None) -> None:
        """Record one step; show it live on a terminal, and every so often for good. `link` is waited for most."""
        self._write(asdict(metrics))
        # A slow first step (allocation, compilation) should not rule the estimate for long.
        blend = 0.9 if self.smoothed_seconds else 0.0
        self.smoothed_seconds = blend * self.smoothed_seconds + (1 - blend) * metrics.seconds
        self._correct(metrics.seconds)
        if metrics.mfu > 1 and self.above_peak is not None:  # said once
            said, self.above_peak = self.above_peak(metrics.mfu), None
            self._warn(f"{said.what} {said.why} {said.hint}")
        line = self._line(metrics, link)
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
            self.console.print(
                f"A step was predicted to take {seconds_in_words(self.predicted)}. The first {FIRST} take "
                f"{seconds_in_words(measured)}, {length_in_words(measured, self.predicted)}: the ETA is based on the "
                "measured time.",
                style="yellow",
                soft_wrap=True,
                highlight=False,
            )

    def evaluation(self, step: int, loss: float) -> None:
        """Record a loss on the validation split."""
        self._write({"step": step, "validation_loss": loss})
        self.console.print(f"step {step:>6}  validation loss {loss:.4f}", highlight=False)

    def experts(self, uses: ExpertUses) -> None:
        """Record how evenly experts were used; those that nobody uses are named when they change."""
        self.balance = uses.balance
        self._write({"step": uses.step, "expert_balance": uses.balance})
        if uses.dead != self.dead:
            self.dead = uses.dead
            said = f"no token went to these experts since the line before: {dead_in_words(self.dead)}"
            self._warn(f"step {uses.step:>6}  {said if self.dead else 'every expert has tokens again'}")

    def _write(self, row: dict[str, Any]) -> None:
        row = {key: value for key, value in row.items() if value is not None}
        # JSON has no NaN: the norm of a step that overflowed under fp16 is null.
        finite = {key: value if math.isfinite(value) else None for key, value in row.items()}
        self.file.write(json.dumps(finite, allow_nan=False) + "\n")
        self.file.flush()
        for logger in self.loggers:
            logger.add(row)

    def _keep_up_to(self, step: int) -> None:
        """What stays of an earlier metrics file when a run goes on from `step`; one that is damaged is kept beside."""
        skipped: list[int] = []
        rows = read_metrics(self.path, skipped.append)
        if skipped:
            kept = self.path.with_suffix(".damaged.jsonl")
            shutil.copyfile(self.path, kept)
            lines = f"Line {skipped[0]}" if len(skipped) == 1 else f"{len(skipped)} lines, the first {skipped[0]},"
            self._warn(f"{lines} of {self.path} cannot be read and is left out; the original is kept as {kept.name}.")
        replace_text(self.path, "".join(json.dumps(row) + "\n" for row in rows if row["step"] <= step))

    def _warn(self, words: str) -> None:
        self.console.print(words, style="yellow", soft_wrap=True, markup=False)

    def _line(self, m: StepMetrics, link: str | None) -> Text:
        remaining = round((self.steps - m.step) * self.smoothed_seconds)
        parts = [
            (f"step {m.step:>6}/{self.steps}", "bold"),
            (f"loss {m.loss:.4f}", "green"),
            (f"lr {m.learning_rate:.2e}", ""),
            (f"norm {m.gradient_norm:.2f}", ""),
            (f"{short(m.tokens_per_second, 3)} tok/s", "cyan"),
            (f"mfu {100 * m.mfu:.1f}%", ""),
            (f"mem {m.memory_gib:.2f} GiB", ""),
            (f"eta {remaining // 3600}:{remaining // 60 % 60:02}:{remaining % 60:02}", "dim"),
        ]
        if m.useful_tokens_per_second is not None:
            parts.insert(5, (f"{short(m.useful_tokens_per_second, 3)} useful", "cyan"))
        if m.reward_margin is not None and m.reward_accuracy is not None:
            parts.insert(2, (f"margin {m.reward_margin:.3f}  right {100 * m.reward_accuracy:.0f}%", "green"))
        if m.bubble is not None:
            parts.insert(-1, (f"bubble {100 * m.bubble:.1f}%", ""))
        if self.balance is not None:
            parts.insert(-1, (f"experts {self.balance:.2f}x", ""))
        if link is not None and m.link_seconds is not None:
            share = 100 * m.link_seconds / m.seconds
            parts.insert(-1, (f"slowest link {link} {m.link_seconds:.2g} s ({share:.0f}%)", ""))
        return Text("  ").join(Text(words, style=style) for words, style in parts)
