"""A trace as rows of text, a rank a row: readable without color, better with."""

from __future__ import annotations

import math
from itertools import groupby
from typing import NamedTuple, TypeAlias

from rich.text import Text

from heddle.errors import HeddleError
from heddle.trace.kinds import kind_of
from heddle.trace.trace import COMPUTE, Span, Trace

_IDLE, _OTHER, _MIXED, _RECOMPUTE, _SENT, _WEIGHTS = ".", "#", "*", "%", "~", "="
# forward and backward: the way the work travels, down or up the ranks
_FILLS = {
    "forward": ">",
    "backward": "<",
    "weight-gradient": _WEIGHTS,  # which travels nowhere
    "recompute": _RECOMPUTE,
    "communication": _SENT,
}
# The paper's colors (PTD-P Figure 4): forwards blue, backwards green, a second shade for every other chunk.
_STYLES = {
    ">": ("white on blue", "black on bright_cyan"),
    "<": ("white on green", "black on bright_green"),
    _WEIGHTS: ("black on yellow3", "black on light_goldenrod1"),
    _MIXED: ("white on dark_cyan", "white on dark_cyan"),
    _RECOMPUTE: ("black on yellow", "black on bright_yellow"),
    _SENT: ("white on magenta", "white on magenta"),
    _OTHER: ("white on red", "white on red"),
    _IDLE: ("dim", "dim"),
}
_MOST_RANKS = 64  # rows
_MOST_SPANS = 200_000  # of a picture: about two seconds
_MOST_BANDS = 4  # a picture in more pieces than this is no longer read as one

_Column: TypeAlias = tuple[str, str]  # a character and its style


class _Cell(NamedTuple):
    """A span as the picture sees it: when, the text it starts with, what fills it, its color, and whether it is seen
    only where its rank does not compute.
    """

    start: float
    end: float
    label: str
    fill: str
    style: str
    below: bool = False


def ranks_drawn(ranks: int, spans: int) -> list[int]:
    """The ranks that a picture of so many spans shows: the first and the last ones where there are too many."""
    shown = min(ranks, _MOST_RANKS, ranks * _MOST_SPANS // max(1, spans))
    return [*range(shown - shown // 2), *range(ranks - shown // 2, ranks)]


def draw(trace: Trace, width: int = 80) -> Text:
    """Draw what every rank does, `width` columns wide; `.plain` of the result is pure ASCII.

    Communication and the optimizer are seen where a rank does not compute; waiting for a message is idle time.

    Each cell starts with its microbatch number. A picture wider than `width` is cut into bands, one below the
    other; one that would need too many is scaled down instead, and each column then shows what the rank
    mostly did in that time. Of very many ranks the first and the last are shown.
    """
    drawn = sorted({span.rank for span in trace.spans})
    shown = drawn if len(drawn) < trace.ranks else ranks_drawn(trace.ranks, len(trace.spans))
    if trace.spans and not shown:
        return Text(f"(Too long to draw: more than {_MOST_SPANS:,} spans.)\n")
    cells = _cells(trace, frozenset(shown))
    rows = [cells[rank] for rank in shown]
    names = [f"rank {rank:>{len(str(trace.ranks - 1))}}  " for rank in shown]
    room = max(1, width - len(names[0]))
    duration = max(cell.end for row in rows for cell in row)
    scale = _readable_scale(rows)
    columns = math.ceil(duration * scale - 1e-9)
    scaled_down = columns > _MOST_BANDS * room
    if scaled_down:
        columns = room
        painted = [_paint_mostly(row, room / duration, room) for row in rows]
    else:
        painted = [_paint(row, scale, columns) for row in rows]

    picture = Text(no_wrap=True, overflow="ignore")
    for left in range(0, columns, room):
        if left:
            picture.append("\n")
        for rank, name, row in zip(shown, names, painted, strict=True):
            if rank and rank - 1 not in shown:
                picture.append(f"… {trace.ranks - len(shown)} more ranks\n")
            picture.append(name)
            for style, run in groupby(row[left : left + room], key=lambda column: column[1]):
                picture.append("".join(character for character, _ in run), style)
            picture.append("\n")
    return picture.append("\n" + _legend(rows, scaled_down))


def _cells(trace: Trace, ranks: frozenset[int]) -> list[list[_Cell]]:
    spans = trace.spans if len(ranks) == trace.ranks else [span for span in trace.spans if span.rank in ranks]
    seen = sorted((span for span in spans if kind_of(span) != "waiting"), key=lambda span: span.start)
    lane = [span for span in seen if span.lane == COMPUTE]
    if not any(span.end > span.start for span in lane):
        raise HeddleError(
            "There is nothing to draw in this trace.",
            f"No span on the lane '{COMPUTE}' takes any time.",
            "Trace at least one forward or backward.",
        )
    digits = len(str(max(span.microbatch for span in lane)))
    chunks: list[set[int]] = [set() for _ in range(trace.ranks)]
    for span in lane:
        if span.chunk >= 0:
            chunks[span.rank].add(span.chunk)
    turns = [{chunk: turn for turn, chunk in enumerate(sorted(of_rank))} for of_rank in chunks]
    rows: list[list[_Cell]] = [[] for _ in range(trace.ranks)]
    for span in seen:
        rows[span.rank].append(_cell(span, turns[span.rank], digits, seen[0].start))
    for row in rows:
        row.sort(key=lambda cell: not cell.below)  # what is painted later lies above
    return rows


def _cell(span: Span, turns: dict[int, int], digits: int, origin: float) -> _Cell:
    mark = fill = _FILLS.get(kind_of(span), _OTHER)
    turn = turns.get(span.chunk, 0)
    start, end, style = span.start - origin, span.end - origin, _STYLES[fill][turn % 2]
    if span.lane != COMPUTE or fill == _RECOMPUTE:
        return _Cell(start, end, "", fill, style, below=span.lane != COMPUTE)
    if len(turns) > 1 and fill not in (_OTHER, _WEIGHTS):
        # A letter says the chunk, its case the direction, so that a cell two columns wide still says it all.
        mark = chr(ord("a") + turn % 26)
        mark = mark if span.name == "forward" else mark.upper()
    label = f"{span.microbatch}{mark}".ljust(digits + 1, fill) if span.microbatch >= 0 else fill
    return _Cell(start, end, label, fill, style)


def _readable_scale(rows: list[list[_Cell]]) -> float:
    """Columns a second at which nine cells in ten have room for their label.

    Not all of them: in a measured trace a single very short span would stretch the whole picture.
    """
    cells = [cell for row in rows for cell in row if cell.end > cell.start and cell.label]
    needs = sorted(len(cell.label) / (cell.end - cell.start) for cell in cells)
    return needs[math.ceil(0.9 * len(needs)) - 1]


def _paint(row: list[_Cell], scale: float, columns: int) -> list[_Column]:
    painted = [(_IDLE, _STYLES[_IDLE][0])] * columns
    for cell in row:
        left, right = round(cell.start * scale), round(cell.end * scale)
        # A cell too narrow for its whole number shows none: half a number would be another number.
        label = cell.label if len(cell.label) <= right - left else ""
        text = label.ljust(right - left, cell.fill)
        painted[left:right] = [(character, cell.style) for character in text]
    return painted


def _paint_mostly(row: list[_Cell], scale: float, columns: int) -> list[_Column]:
    """Many cells in a column: show what filled most of it, or that two kinds of work shared it."""
    shares: list[dict[str, float]] = [{} for _ in range(columns)]
    for cell in reversed(row):  # what lies below takes the room that is left
        start, end = cell.start * scale, cell.end * scale
        for column in range(int(start), min(math.ceil(end), columns)):
            covered = min(end, column + 1) - max(start, column)
            if cell.below:
                covered = min(covered, 1 - sum(shares[column].values()))
            shares[column][cell.fill] = shares[column].get(cell.fill, 0.0) + covered
    painted = []
    for share in shares:
        work = sum(share.values())
        look = max(share, key=lambda fill: share[fill], default=_IDLE)
        if work < 0.5:
            look = _IDLE
        elif share[look] < 0.8 * work:
            look = _MIXED
        painted.append((look, _STYLES[look][0]))
    return painted


def _legend(rows: list[list[_Cell]], scaled_down: bool) -> str:
    cells = [cell for row in rows for cell in row]
    letters = sorted({character.lower() for cell in cells for character in cell.label if character.isalpha()})
    if scaled_down:
        legend = "> forward, < backward, * both, . idle; too wide to show every microbatch"
    elif letters:
        legend = f"0a forward, 0A backward of microbatch 0; {' '.join(letters)}: the chunks of a rank; . idle"
    else:
        legend = "0> forward, 0< backward of microbatch 0; . idle"
    found = {cell.fill for cell in cells}
    if len(found) > 2:
        legend = legend.replace("* both", "* mixed")
    if _WEIGHTS in found:
        weights = "= its weight gradients" if scaled_down else "0= its weight gradients"
        legend = legend.replace("of microbatch 0", f"and {weights}, of microbatch 0").replace(
            "* mixed", f"{weights}, * mixed"
        )
    legend += "; % recomputing" * (_RECOMPUTE in found) + "; ~ communication" * (_SENT in found)
    others = [cell for cell in cells if cell.fill == _OTHER]
    return legend + (("; # optimizer" if all(cell.below for cell in others) else "; # other") if others else "")
