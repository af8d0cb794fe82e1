"""Where everything of a picture of a trace lies: computed once, then written as SVG or painted as PNG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from heddle.errors import HeddleError
from heddle.trace.kinds import COLORS, is_beside, kind_of
from heddle.trace.spans import Drawable, Span

ROW, BESIDE, GAP, TOP, LEFT, RIGHT, AXIS = 20, 6, 6, 6, 60, 10, 24  # pixels
TEXT, IDLE, NUMBER = "#222222", "#f1f2f3", "#ffffff"
SIZE = 12  # of letters


class PictureBox(NamedTuple):
    """A rectangle; one with a title is a span."""

    x: float
    y: float
    width: float
    height: float
    color: str
    title: str = ""


class Word(NamedTuple):
    """A text on its base line."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle"] = "start"
    color: str = TEXT


@dataclass(frozen=True)
class PictureLayout:
    """A picture as boxes, later ones above earlier ones, and words above them all."""

    width: int
    height: int
    boxes: list[PictureBox]
    words: list[Word]


def lay_out(trace: Drawable, width: int, names: Sequence[str] | None = None) -> PictureLayout:
    """A row per rank: its work, and below it in a narrow strip what goes on beside; then the axis and the legend."""
    if trace.duration <= 0:
        raise HeddleError("There is nothing to draw in this trace.", "All its spans are empty.", "Trace a whole step.")
    names = names or [f"rank {rank}" for rank in range(trace.ranks)]
    beside = BESIDE if any(is_beside(span) for span in trace.spans) else 0
    room = width - LEFT - RIGHT
    origin, scale = min(span.start for span in trace.spans), room / trace.duration
    pitch = ROW + beside + GAP
    tops = [TOP + rank * pitch for rank in range(trace.ranks)]
    bottom = TOP + trace.ranks * pitch
    boxes = [PictureBox(LEFT, top, room, ROW + beside, IDLE) for top in tops]
    words = [Word(4, top + ROW / 2 + 4, name) for top, name in zip(tops, names, strict=True)]
    for span in sorted(trace.spans, key=lambda span: span.start - span.end):  # the longest first, below the others
        below = is_beside(span)
        x, y = LEFT + (span.start - origin) * scale, tops[span.rank] + (ROW if below else 0)
        wide, high = (span.end - span.start) * scale, beside if below else ROW
        boxes.append(PictureBox(x, y, wide, high, COLORS[kind_of(span)], _title(span)))
        if not below and span.microbatch >= 0 and wide > 6 + 7 * len(str(span.microbatch)):
            words.append(Word(x + wide / 2, y + 14, str(span.microbatch), "middle", NUMBER))
    words += _axis(trace.duration, scale, bottom)
    kinds = {kind_of(span) for span in trace.spans}
    for place, kind in enumerate(kind for kind in COLORS if kind in kinds):
        x, y = LEFT + 120 * place, bottom + AXIS
        boxes.append(PictureBox(x, y, 11, 11, COLORS[kind]))
        words.append(Word(x + 16, y + 10, kind))
    return PictureLayout(width, bottom + AXIS + 20, boxes, words)


def _title(span: Span) -> str:
    return span.name if span.microbatch < 0 else f"{span.name} {span.microbatch}"


def _axis(duration: float, scale: float, bottom: float) -> list[Word]:
    """A handful of round times below the rows."""
    rough = duration / 8
    step = 10.0 ** math.floor(math.log10(rough))
    step *= next(size for size in (1, 2, 5, 10) if size * step >= rough)
    unit, factor = ("s", 1.0) if step >= 0.1 else ("ms", 1e3) if step >= 1e-4 else ("µs", 1e6)
    return [
        Word(LEFT + n * step * scale, bottom + 12, f"{n * step * factor:.6g} {unit}", "middle")
        for n in range(int(duration / step) + 1)
    ]
