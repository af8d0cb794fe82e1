"""The traces of a run: a file per step and rank, and the whole of a step."""

from __future__ import annotations

import re
from pathlib import Path

from heddle.errors import HeddleError, listing
from heddle.trace.trace import Trace


def write_rank(folder: Path, step: int, rank: int, trace: Trace) -> None:
    """Keep what one rank did in a step; `trace` knows of how many ranks."""
    folder.mkdir(exist_ok=True)
    trace.write(_path(folder, step, rank))


def traced_steps(folder: Path) -> list[int]:
    """The steps that a folder has traces of."""
    found = (re.fullmatch(r"step-(\d+)-rank-0+\.jsonl", path.name) for path in folder.glob("step-*"))
    return sorted(int(match[1]) for match in found if match)


def read_step(folder: Path, step: int) -> Trace:
    """What all ranks did in one step, on one clock."""
    steps = traced_steps(folder)
    if step not in steps:
        raise HeddleError(
            f"There is no trace of step {step} in {folder}.",
            "The first steps of a run are traced if it was started with --trace.",
            f"Traced steps: {listing(steps)}." if steps else "Train with: heddle train JOB.toml --trace",
        )
    first = Trace.read(_path(folder, step, 0))
    # Files of more ranks may be there, of a larger plan that did this step before the run was resumed.
    parts = [first, *(Trace.read(_path(folder, step, rank)) for rank in range(1, first.ranks))]
    spans = [span for part in parts for span in part.spans]
    return Trace(first.ranks, spans, tuple(words for part in parts for words in part.skipped))


def _path(folder: Path, step: int, rank: int) -> Path:
    return folder / f"step-{step:08}-rank-{rank:05}.jsonl"
