"""The metrics of a run: a line after every step, and what can be read of them after a crash."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heddle.files import parse_json, read_lines


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
    link_seconds: float | None = None  # that a rank waited for the slowest link of a network
    bubble: float | None = None  # idle over busy time of all ranks, where the run is traced
    useful_tokens_per_second: float | None = None  # without padding, where samples are made of documents
    # of pairs: how much likelier than to the reference an answer is, times beta, on average, and how often the chosen
    # answer gains more than the rejected one
    reward_chosen: float | None = None
    reward_rejected: float | None = None
    reward_margin: float | None = None
    reward_accuracy: float | None = None


MOST = 1e30  # a loss beyond it is as good as none, and sums of several would be infinite
LARGEST = 1 << 30  # bytes of a file: a million steps are a quarter of it


def read_metrics(path: Path, skipped: Callable[[int], None] = lambda _: None) -> list[dict[str, Any]]:
    """The rows of a metrics file that are whole; the numbers of other lines are told, but for a last one cut short."""
    if not path.exists():
        return []
    lines = read_lines(path, "what a run wrote after each of its steps", LARGEST)
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        row = parse_row(line)
        if row is not None:
            rows.append(row)
        elif number < len(lines):  # a crash leaves its last line without an end
            skipped(number)
    return rows


def parse_row(line: str) -> dict[str, Any] | None:
    """What a line says of a step: numbers by name, null where there was none; JSON has no NaN, but Python writes it."""
    try:
        row = parse_json(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or type(row.get("step")) is not int or not 0 <= row["step"] < MOST:
        return None
    if any(value is not None and type(value) not in (int, float) for value in row.values()):
        return None
    return {name: value if value is not None and abs(value) < MOST else None for name, value in row.items()}


def median(rows: Sequence[dict[str, Any]], key: str) -> float | None:
    """Of a column over a run, without its first step, which is slow for reasons of its own."""
    values = [row[key] for row in rows if _is_number(row.get(key))]
    return statistics.median(values[1:] or values) if values else None


def of_step(rows: Sequence[dict[str, Any]], step: int | None, key: str) -> float | None:
    """A number of one step."""
    values = [row.get(key) for row in rows if row["step"] == step and "loss" in row]
    return values[-1] if values and _is_number(values[-1]) else None


def typical_step(traced: Sequence[int], rows: Sequence[dict[str, Any]]) -> int | None:
    """Of the traced steps the one that took the median time; the first counts only where it is the only one."""
    times = {row["step"]: row["seconds"] for row in rows if _is_number(row.get("seconds"))}
    timed = sorted((times[step], step) for step in traced[1:] if step in times)
    return timed[len(timed) // 2][1] if timed else max(traced, default=None)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
