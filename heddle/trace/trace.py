"""Who did what, when: the one record that the simulator predicts and the runtime measures."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from heddle.errors import HeddleError
from heddle.files import parse_json, read_lines, shown
from heddle.trace.lanes import Lane
from heddle.trace.spans import COMPUTE as COMPUTE
from heddle.trace.spans import Span as Span

FORMAT, VERSION = "heddle-trace", 1
LARGEST = 1 << 30  # bytes of a file
MOST_RANKS = 1 << 20
LATEST = 1e18  # seconds
MOST_ACTIONS = 1 << 31  # chunks or microbatches: what a page holds of them
MOST_BYTES = 1 << 53

WORK = (Lane.COMPUTE, Lane.SEND)  # what a rank does itself; the rest goes on beside it, or after it


def bubble_of(ranks: int, elapsed: float, work: float) -> float:
    """Idle over busy time of a pipeline whose ranks are at work for `work` seconds together: see `Trace.bubble`."""
    return (ranks * elapsed - work) / work


@dataclass
class Trace:
    """Spans of `ranks` ranks. A runtime appends to `spans` directly; all else is computed when asked for."""

    ranks: int
    spans: list[Span] = field(default_factory=list)
    skipped: tuple[str, ...] = ()  # what a file held besides spans, in words

    def __repr__(self) -> str:
        return f"<Trace: {len(self.spans):,} spans of {self.ranks} ranks, {self.duration:.4g} s>"

    def _repr_html_(self) -> str:
        from heddle.trace.notebook import timeline_html

        return timeline_html(self)

    def plot(self, axes: Any = None) -> Any:
        """Draw the spans over time, a row for each lane; needs matplotlib."""
        from heddle.trace.plots import plot_timeline

        return plot_timeline(self, axes)

    def to_frame(self) -> Any:
        """The spans as a pandas DataFrame."""
        from heddle.trace.frames import frame

        return frame([span._asdict() for span in self.spans])

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
        """Idle time over ideal time of a rank's own work: (elapsed - busy) / busy, busy averaged over ranks.

        This is t_pb / t_id of PTD-P §2.2.1, where t_id = m·(t_f + t_b) is what a rank would need if it never
        waited. The paper has equal stages, so each rank's busy time is t_id; with unequal ones the mean keeps
        the meaning: ranks × elapsed is paid for, ranks × busy is used. The idle share of the elapsed time,
        which others call the bubble, is x / (1 + x). A message that a rank sends is work, waiting for one is not.
        """
        spans = [span for span in self.spans if span.lane in WORK]
        work = math.fsum(span.end - span.start for span in spans)
        if work <= 0:
            raise HeddleError(
                "This trace has no bubble.",
                f"A bubble is idle time relative to work, and no span is on the lane '{COMPUTE}'.",
                "Trace at least one forward or backward.",
            )
        # Only the pipeline's own time counts: an optimizer step on another lane is not a bubble.
        return bubble_of(self.ranks, max(span.end for span in spans) - min(span.start for span in spans), work)

    def is_of(self, ranks: int, chunks: int) -> bool:
        """Whether it can be of a plan with so many ranks and chunks: files may be of another one."""
        return self.ranks == ranks and all(span.chunk < chunks for span in self.spans)

    @property
    def period(self) -> float:
        """How long a step takes where each rank begins the next one as soon as its own part is done.

        Then a late start costs nothing, for it is that of every step: what counts is the longest time that a rank has
        work in, from its first to its last.
        """
        first: dict[int, float] = {}
        last: dict[int, float] = {}
        for span in self.spans:
            if span.lane == COMPUTE:
                first[span.rank] = min(span.start, first.get(span.rank, math.inf))
                last[span.rank] = max(span.end, last.get(span.rank, 0.0))
        return max((last[rank] - first[rank] for rank in last), default=0.0)

    def write(self, path: Path | str) -> None:
        """Write JSON lines: a header, then a span per line, so that a long trace can be read as a stream."""
        with Path(path).open("w", encoding="utf-8") as file:
            header = {"format": FORMAT, "version": VERSION, "ranks": self.ranks, "columns": Span._fields}
            file.write(json.dumps(header) + "\n")
            file.writelines(json.dumps(span) + "\n" for span in self.spans)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read what `write` wrote; anything else is refused."""
        lines = [line for line in read_lines(Path(path), "a trace that Heddle wrote", LARGEST) if line]
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
                f"'{path}' is a trace that this version of Heddle cannot read (version {header.get('version')}).",
                f"It reads version {VERSION}, 1 to {MOST_RANKS:,} ranks, and the columns {', '.join(Span._fields)}.",
                "Write it again with this Heddle, or read it with the one that wrote it.",
            )
        ranks = header["ranks"]
        spans = [_span(line, ranks) for line in lines[1:]]
        whole = [span for span in spans if span is not None]
        if spans and not whole:
            raise HeddleError(
                f"'{path}' has no complete span.",
                f"A span is [{', '.join(Span._fields)}], its rank below {ranks}, its end not before its start.",
                "Trace the run again, or use the trace of another step.",
            )
        return cls(ranks, whole, _skipped(Path(path), spans, ranks))


def _parse(line: str) -> Any:
    try:
        return parse_json(line)
    except ValueError:
        return None


def _count(value: object) -> bool:
    return type(value) is int and 0 < value <= MOST_RANKS


KINDS: tuple[tuple[type, ...], ...] = ((int,), (str,), (str,), (int, float), (int, float), (int,), (int,), (int,))


def _span(line: str, ranks: int) -> Span | None:
    """The span of a line; None where the line is none."""
    values = _parse(line)
    if not isinstance(values, list) or len(values) != len(KINDS):
        return None
    if not all(type(value) in kinds for value, kinds in zip(values, KINDS, strict=True)):
        return None
    span = Span(*values)
    # Seconds of a clock: what is later than the universe is old would only overflow.
    sound = (
        0 <= span.rank < ranks
        and -LATEST < span.start <= span.end < LATEST
        and min(span.bytes, span.chunk, span.microbatch) >= -1
        and max(span.chunk, span.microbatch) < MOST_ACTIONS
        and span.bytes < MOST_BYTES
    )
    return span if sound else None


def _skipped(path: Path, spans: list[Span | None], ranks: int) -> tuple[str, ...]:
    """What was left out. A run that is killed, or still writes, leaves half a line."""
    odd = [number for number, span in enumerate(spans, 2) if span is None]
    if not odd:
        return ()
    count = f"{len(odd)} of the {len(spans)} lines of {shown(path)} are not spans and are skipped"
    rule = f"A span is [{', '.join(Span._fields)}], its rank below {ranks}, its end not before its start."
    return (f"{count}: the first is line {odd[0]}. {rule}",)
