"""Who did what, when: the one record that the simulator predicts and the runtime measures."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from heddle.errors import HeddleError

FORMAT, VERSION = "heddle-trace", 1
COMPUTE = "compute"  # the lane of forwards and backwards


class Span(NamedTuple):
    """One stretch of time on one lane of one rank. Spans of a lane do not overlap.

    Times are seconds on one clock for all ranks. `chunk` and `microbatch` are -1 for work that belongs to
    none, such as the optimizer's: -1 and not None, so that these columns of a trace are plain numbers.
    """

    rank: int
    lane: str
    name: str
    start: float
    end: float
    bytes: int = 0
    chunk: int = -1
    microbatch: int = -1


@dataclass
class Trace:
    """Spans of `ranks` ranks. A runtime appends to `spans` directly; all else is computed when asked for."""

    ranks: int
    spans: list[Span] = field(default_factory=list)

    @property
    def duration(self) -> float:
        """From the first start to the last end, over all ranks and lanes."""
        if not self.spans:
            return 0.0
        return max(span.end for span in self.spans) - min(span.start for span in self.spans)

    def busy(self, rank: int, lane: str = COMPUTE) -> float:
        """Seconds that a lane of a rank was at work."""
        return math.fsum(span.end - span.start for span in self.spans if span.rank == rank and span.lane == lane)

    @property
    def bubble(self) -> float:
        """Idle time over ideal time on the compute lane: (elapsed - busy) / busy, busy averaged over ranks.

        This is t_pb / t_id of PTD-P §2.2.1, where t_id = m·(t_f + t_b) is what a rank would need if it never
        waited. The paper has equal stages, so each rank's busy time is t_id; with unequal ones the mean keeps
        the meaning: ranks × elapsed is paid for, ranks × busy is used. The idle share of the elapsed time,
        which others call the bubble, is x / (1 + x).
        """
        spans = [span for span in self.spans if span.lane == COMPUTE]
        work = math.fsum(span.end - span.start for span in spans)
        if work <= 0:
            raise HeddleError(
                "This trace has no bubble.",
                f"A bubble is idle time relative to work, and no span is on the lane '{COMPUTE}'.",
                "Trace at least one forward or backward.",
            )
        # Only the pipeline's own time counts: an optimizer step on another lane is not a bubble.
        elapsed = max(span.end for span in spans) - min(span.start for span in spans)
        return (self.ranks * elapsed - work) / work

    def write(self, path: Path | str) -> None:
        """Write JSON lines: a header, then a span a line, so that a long trace can be read as a stream."""
        with Path(path).open("w", encoding="utf-8") as file:
            header = {"format": FORMAT, "version": VERSION, "ranks": self.ranks, "columns": Span._fields}
            file.write(json.dumps(header) + "\n")
            file.writelines(json.dumps(span) + "\n" for span in self.spans)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read what `write` wrote; anything else is refused."""
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            lines = []  # a binary file: refused below like any other file without our header
        except OSError as error:
            raise HeddleError(f"Cannot read '{path}'.", f"{error.strerror}.", "Give a trace file.") from error
        header = _parse(lines[0]) if lines else None
        expected = {"format": FORMAT, "version": VERSION, "columns": list(Span._fields)}
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise HeddleError(
                f"'{path}' is not a Heddle trace.",
                f'Its first line is not {{"format": "{FORMAT}", …}}.',
                "Perfetto files are for viewing only; give the .jsonl file they were made from.",
            )
        if {key: header.get(key) for key in expected} != expected or not _count(header.get("ranks")):
            raise HeddleError(
                f"'{path}' is a trace, but not one that this Heddle reads (version {header.get('version')}).",
                f"It reads version {VERSION} of 1 or more ranks, with the columns {', '.join(Span._fields)}.",
                "Write it again with this Heddle, or read it with the one that wrote it.",
            )
        ranks = header["ranks"]
        return cls(ranks, [_span(path, number, line, ranks) for number, line in enumerate(lines[1:], 2)])


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


def _count(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _span(path: Path | str, number: int, line: str, ranks: int) -> Span:
    values = _parse(line)
    kinds: tuple[type | tuple[type, ...], ...] = (int, str, str, (int, float), (int, float), int, int, int)
    if isinstance(values, list) and len(values) == len(kinds) and all(map(isinstance, values, kinds)):
        span = Span(*values)
        if 0 <= span.rank < ranks and span.start <= span.end:
            return span
    raise HeddleError(
        f"Line {number} of '{path}' is not a span.",
        f"A span is [{', '.join(Span._fields)}], its rank below {ranks}, its end not before its start.",
        "The file was cut off or edited; write it again, or delete the line.",
    )
