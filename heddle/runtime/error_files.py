"""What the processes of a run tell the one that started them: errors, as notes in a folder that both know."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from heddle.errors import HeddleError
from heddle.runtime.environment import number

RESTARTS = "TORCHELASTIC_RESTART_COUNT"
UNTOLD, UNGUARDED = 74, 75  # exit codes of processes that cannot leave a note, and that a script started by mistake
FOLDER = "HEDDLE_NOTES"  # the variable that names the folder; where another launcher started us, there is none


@dataclass(frozen=True)
class Note:
    """An error of one rank; after a final one, starting again would not help."""

    error: HeddleError
    trace: str
    final: bool


def write_error(rank: int, error: HeddleError, trace: str = "", final: bool = True) -> None:
    """Leave a note, if somebody reads it."""
    if folder := os.environ.get(FOLDER):
        note = {"parts": [error.what, error.why, error.hint], "trace": trace, "final": final}
        partial = Path(folder) / f".{rank}"
        partial.write_text(json.dumps(note))
        partial.rename(Path(folder) / f"{rank}.json")


def read_error(folder: Path, rank: int) -> Note | None:
    """The note of one rank."""
    path = folder / f"{rank}.json"
    if not path.exists():
        return None
    note = json.loads(path.read_text())
    return Note(HeddleError(*note["parts"]), note["trace"], note["final"])


def final_error(folder: Path) -> HeddleError | None:
    """The error that ends the run, if any rank told of one."""
    ranks = sorted(int(path.stem) for path in folder.glob("[0-9]*.json"))
    notes = [note for rank in ranks if (note := read_error(folder, rank)) is not None and note.final]
    return notes[0].error if notes else None


def restart_count() -> int:
    """How often the launcher has started this run's processes again."""
    return number(RESTARTS, default=0)


def set_restart_count(count: int) -> None:
    """What all processes of the run have found it to be, where the launcher told them different things."""
    os.environ[RESTARTS] = str(count)
