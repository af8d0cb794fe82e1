"""A run as it goes on: its metrics as events, read from its folder alone, with what should worry its owner."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError
from heddle.runs.folder import Run, open_run
from heddle.runs.metrics import median, read_metrics
from heddle.spec.job import load_job

PAUSE = 0.5  # seconds between two looks at the file
HEARTBEAT = 15.0  # seconds after which a reader that is gone is noticed
MOST_POINTS = 2000  # of a curve: more than a screen has columns
RECENT = 50  # steps that a new one is held against
SPIKE = 6.0  # times the usual spread above the usual loss
SLOW = 2.0  # times the usual step
STILL = 20  # usual steps without a line
COLUMNS = ("loss", "tokens_per_second", "mfu", "memory_gib", "seconds", "gradient_norm", "bubble")


def about(folder: Path) -> dict[str, Any]:
    """What does not change while a run goes on."""
    run = open_run(folder)
    job = load_job(run.job_file)
    predicted = job.predicted
    expected = {}
    if predicted is not None:
        expected = {
            "seconds": predicted.step_seconds,
            "tokens_per_second": predicted.tokens_per_second,
            "mfu": predicted.mfu,
            "memory_gib": predicted.worst_stage_gib,
        }
    return {
        "name": folder.name,
        "model": f"{job.model.name}: {job.model.parameters:,} parameters",
        "plan": "" if job.plan is None else f"{job.plan.world} ranks",
        "steps": job.train.steps,
        "expected": expected,
    }


class Follower:
    """Reads what was added to a run's metrics since it last looked; a run that is resumed may take lines back."""

    def __init__(self, folder: Path) -> None:
        self.path = Run(folder).folder / "metrics.jsonl"
        self.seen: tuple[int, int, int] | None = None  # inode, size and time of the last change
        self.rows: list[dict[str, Any]] = []

    def look(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether everything is to be drawn anew, and the rows that are new."""
        try:
            found = self.path.stat()
        except OSError:
            return False, []
        mark = found.st_ino, found.st_size, found.st_mtime_ns
        if mark == self.seen:
            return False, []
        self.seen = mark
        rows = read_metrics(self.path)
        same = len(self.rows) <= len(rows) and (not self.rows or rows[len(self.rows) - 1] == self.rows[-1])
        fresh = rows[len(self.rows) :] if same else rows
        self.rows = rows
        return not same, fresh


def follow(folders: Sequence[Path], say: Callable[[str, Any], None], clock: Callable[[], float] = time.time) -> None:
    """Tell of several runs until nobody listens: `begin` with what there is, then `rows`, `alarms` and `state`."""
    followers = [Follower(folder) for folder in folders]
    said: list[Any] = [None] * len(folders)
    heard = clock()
    first = True
    while True:
        for number, follower in enumerate(followers):
            anew, rows = follower.look()
            if anew or first:
                say("begin", {"run": number, "rows": thinned(follower.rows), "alarms": all_alarms(follower.rows)})
            elif rows:
                found = [each for row in rows for each in alarms(follower.rows, row)]
                say("rows", {"run": number, "rows": [_short(row) for row in rows], "alarms": found})
            now = state(folders[number], follower.rows, clock())
            if now != said[number] or first:
                said[number] = now
                say("state", {"run": number} | now)
        first = False
        if clock() > heard + HEARTBEAT:
            heard = clock()
            say("alive", {})
        time.sleep(PAUSE)


def thinned(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows of a short run; of a long one those that are seen: of each stretch the extremes of the loss stay."""
    steps = [row for row in rows if "loss" in row]
    others = [row for row in rows if "loss" not in row]
    if len(steps) > MOST_POINTS:
        width = math.ceil(2 * len(steps) / MOST_POINTS)
        kept: list[dict[str, Any]] = []
        for start in range(0, len(steps), width):
            part = steps[start : start + width]
            ends = {id(row): row for row in (min(part, key=_loss), max(part, key=_loss), part[-1])}
            kept += sorted(ends.values(), key=lambda row: int(row["step"]))
        steps = kept
    return [_short(row) for row in sorted([*steps, *others], key=lambda row: int(row["step"]))]


def _loss(row: dict[str, Any]) -> float:
    value = row.get("loss")
    return math.inf if value is None else float(value)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    names = ("step", "validation_loss", *COLUMNS)
    return {name: row[name] for name in names if name in row}


def alarms(rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """What is wrong with one step, held against those before it."""
    if "loss" not in row:
        return []
    step = row["step"]
    found = []
    if row["loss"] is None:
        found.append({"step": step, "what": "The loss is not a number."})
    before = [each for each in rows if "loss" in each and each["step"] < step][-RECENT:]
    losses = [each["loss"] for each in before if each["loss"] is not None]
    if row["loss"] is not None and len(losses) >= 10:
        usual = statistics.median(losses)
        spread = statistics.median(abs(loss - usual) for loss in losses)
        if row["loss"] > usual + max(SPIKE * spread, 0.05 * abs(usual)):
            found.append({"step": step, "what": f"The loss jumped to {row['loss']:.3f} from about {usual:.3f}."})
    times = [each["seconds"] for each in before if each.get("seconds")]
    if len(times) >= 10 and row.get("seconds") and row["seconds"] > SLOW * statistics.median(times):
        usual = statistics.median(times)
        found.append({"step": step, "what": f"The step took {row['seconds']:.3g} s, usually {usual:.3g} s."})
    return found


def all_alarms(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a run so far; only its last thousand steps are held against those before them."""
    steps = [row for row in rows if "loss" in row]
    first = max(0, len(steps) - 1000)
    return [each for at in range(first, len(steps)) for each in alarms(steps[max(0, at - RECENT) : at], steps[at])]


def state(folder: Path, rows: Sequence[dict[str, Any]], now: float) -> dict[str, Any]:
    """Whether it is done, goes on or stands still, and when it should end."""
    steps = [row for row in rows if "loss" in row]
    done = steps[-1]["step"] if steps else 0
    try:
        last = load_job(Run(folder).job_file).train.steps
        changed = (Run(folder).folder / "metrics.jsonl").stat().st_mtime
    except (HeddleError, OSError):
        return {"done": done, "state": "has not begun"}
    usual = median(steps[-RECENT:], "seconds")
    if done >= last:
        return {"done": done, "steps": last, "state": "done"}
    if usual is None:
        return {"done": done, "steps": last, "state": "has not begun"}
    if now - changed > max(30.0, STILL * usual):
        return {"done": done, "steps": last, "state": "stands still, or has stopped"}
    return {"done": done, "steps": last, "state": "goes on", "ends_in": round(usual * (last - done))}
