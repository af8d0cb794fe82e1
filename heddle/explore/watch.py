"""A run as it goes on: its metrics as events, read from its folder alone, with what should worry its owner."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError
from heddle.explore.signs import RECENT, alarms, all_alarms, folder_alarms
from heddle.runs.folder import Run, open_run
from heddle.runs.metrics import LARGEST, median, parse_row
from heddle.spec.job import load_job

PAUSE = 0.5  # seconds between two looks at the file
HEARTBEAT = 15.0  # seconds after which a reader that is gone is noticed
MOST_POINTS = 2000  # of a curve: more than a screen has columns
STILL = 20  # usual steps without a line
COLUMNS = (
    *("loss", "tokens_per_second", "mfu", "memory_gib", "seconds", "gradient_norm", "bubble", "link_seconds"),
    *("useful_tokens_per_second", "reward_margin", "reward_accuracy"),
)
BESIDE = ("validation_loss", "expert_balance")  # in rows of their own
TOLD = 60  # looks at the metrics between two at what else the folder tells


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
        self.end = 0  # of the last whole line that was read
        self.last = b""  # that line: if it is still there, so is everything before it
        self.rows: list[dict[str, Any]] = []

    def look(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether everything is to be drawn anew, and the rows that are new."""
        if not self.path.is_file():  # nothing yet, or a pipe, which would not answer
            return False, []
        try:
            with self.path.open("rb") as file:
                file.seek(self.end - len(self.last))
                anew = file.read(len(self.last)) != self.last
                if anew:
                    file.seek(0)
                    self.end, self.last, self.rows = 0, b"", []
                added = file.read(LARGEST)
        except OSError:
            return False, []
        whole = added[: added.rfind(b"\n") + 1]
        if not whole:
            return anew, []
        lines = whole.splitlines(keepends=True)
        self.end, self.last = self.end + len(whole), lines[-1]
        rows = [parse_row(line.decode("utf-8", "replace")) for line in lines]
        fresh = [row for row in rows if row is not None]
        self.rows += fresh
        return anew, fresh


def follow(folders: Sequence[Path], say: Callable[[str, Any], None], clock: Callable[[], float] = time.time) -> None:
    """Tell of several runs until nobody listens: `begin` with what there is, then `rows`, `alarms` and `state`."""
    followers = [Follower(folder) for folder in folders]
    said: list[Any] = [None] * len(folders)
    told: list[Any] = [None] * len(folders)
    looks = 0
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
            if looks % TOLD == 0 and (signs := folder_alarms(folders[number])) != told[number]:
                told[number] = signs
                say("signs", {"run": number, "alarms": signs})
        first, looks = False, looks + 1
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
    names = ("step", *BESIDE, *COLUMNS)
    return {name: row[name] for name in names if name in row}


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
    pace = {} if usual is None else {"usual": usual}
    if done >= last:
        return {"done": done, "steps": last, "state": "done"} | pace
    if usual is None:
        return {"done": done, "steps": last, "state": "has not begun"}
    if now - changed > max(30.0, STILL * usual):
        return {"done": done, "steps": last, "state": "stands still, or has stopped"} | pace
    return {"done": done, "steps": last, "state": "goes on", "ends_in": round(usual * (last - done))} | pace
