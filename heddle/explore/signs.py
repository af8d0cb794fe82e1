"""What should worry the owner of a run: steps that stand out, ranks and links that hold up others, files that tell."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError
from heddle.runs.folder import Run
from heddle.spec.job import load_job
from heddle.spec.ranks import stage_of
from heddle.trace.steps import read_step, traced_steps

RECENT = 50  # steps that a new one is held against
FEWEST = 10  # of them, to say what is usual
SPIKE = 6.0  # times the usual spread above the usual loss
SLOW = 2.0  # times the usual step, or the usual wait for a link
BEHIND = 1.2  # times as long as its peers, at which a rank is slow
UNEVEN = 4.0  # tokens of the most used expert over the mean's
MOST_RANKS = 256  # whose traces are read

Row = dict[str, Any]


def alarms(rows: Sequence[Row], row: Row) -> list[Row]:
    """What is wrong with one step, held against those before it."""
    step = row["step"]
    found = []
    if (balance := row.get("expert_balance")) is not None and balance > UNEVEN:
        found.append({"step": step, "what": f"The most used expert gets {balance:.1f} times the mean's tokens."})
    if "loss" not in row:
        return found
    before = [each for each in rows if "loss" in each and each["step"] < step][-RECENT:]
    if row["loss"] is None:
        found.append({"step": step, "what": "The loss is not a number."})
    losses = [each["loss"] for each in before if each["loss"] is not None]
    if row["loss"] is not None and len(losses) >= FEWEST:
        usual = statistics.median(losses)
        spread = statistics.median(abs(loss - usual) for loss in losses)
        if row["loss"] > usual + max(SPIKE * spread, 0.05 * abs(usual)):
            found.append({"step": step, "what": f"The loss jumped to {row['loss']:.3f} from about {usual:.3f}."})
    for name, words in (("seconds", "The step took"), ("link_seconds", "Ranks waited for a link")):
        usual = _usual(before, name)
        if usual and row.get(name) and row[name] > SLOW * usual:
            found.append({"step": step, "what": f"{words} {row[name]:.3g} s, usually {usual:.3g} s."})
    return found


def _usual(before: Sequence[Row], name: str) -> float | None:
    values = [each[name] for each in before if each.get(name)]
    return statistics.median(values) if len(values) >= FEWEST else None


def all_alarms(rows: Sequence[Row]) -> list[Row]:
    """Of a run so far; only its last thousand rows are held against those before them."""
    first = max(0, len(rows) - 1000)
    return [each for at in range(first, len(rows)) for each in alarms(rows[max(0, at - 2 * RECENT) : at], rows[at])]


def folder_alarms(folder: Path) -> list[Row]:
    """What files in a run's folder tell: that it hung, that links have changed, which rank is slow."""
    run = Run(folder)
    found = []
    if (run.hang / "report.txt").is_file():
        found.append({"step": None, "what": f"The run hung: see {run.hang / 'report.txt'}."})
    if (folder / "links-now.toml").is_file():
        found.append({"step": None, "what": "Links are not what the network says: see links-now.toml."})
    return found + slow_ranks(folder)


def slow_ranks(folder: Path) -> list[Row]:
    """Ranks that computed much longer than those that did the same, in the last step that was traced."""
    run = Run(folder)
    steps = traced_steps(run.traces) if run.traces.is_dir() else []
    try:
        plan = load_job(run.job_file).planned.plan
        if not steps or plan.world > MOST_RANKS:
            return []
        trace = read_step(run.traces, steps[-1])
    except (HeddleError, OSError):  # it is being written, or of another plan
        return []
    if trace.ranks != plan.world:
        return []
    busy = {rank: trace.busy(rank) for rank in range(trace.ranks)}
    stages: dict[int, list[int]] = {}
    for rank in busy:
        stages.setdefault(stage_of(plan, rank), []).append(rank)
    found = []
    for stage, ranks in stages.items():
        usual = statistics.median(busy[rank] for rank in ranks)
        for rank in ranks:
            if usual > 0 and busy[rank] > BEHIND * usual:
                words = f"Rank {rank} computed {busy[rank] / usual:.2f} times as long as others of stage {stage}."
                found.append({"step": steps[-1], "what": words})
    return found
