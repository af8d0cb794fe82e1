"""A trace as an SVG picture, for papers: it stays sharp, and every span can be edited."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from heddle.errors import HeddleError
from heddle.trace.kinds import COLOURS, is_beside, kind_of
from heddle.trace.trace import Span, Trace

ROW, BESIDE, GAP, LEFT, AXIS = 20, 6, 6, 60, 24


def to_svg(trace: Trace, width: int = 1000, names: Sequence[str] | None = None) -> str:
    """A row a rank: its work, and below it in a narrow strip what goes on beside.

    Args:
        trace: what happened, or would happen.
        width: of the picture, in pixels.
        names: what the rows are called; "rank 0", … if left out.
    """
    if trace.duration <= 0:
        raise HeddleError("There is nothing to draw in this trace.", "No span takes any time.", "Trace a whole step.")
    names = names or [f"rank {rank}" for rank in range(trace.ranks)]
    beside = BESIDE if any(is_beside(span) for span in trace.spans) else 0
    origin, scale = min(span.start for span in trace.spans), (width - LEFT - 10) / trace.duration
    pitch = ROW + beside + GAP
    bottom = trace.ranks * pitch
    parts = [
        f'<rect x="{LEFT}" y="{rank * pitch}" width="{width - LEFT - 10}" height="{ROW + beside}" fill="#f1f2f3"/>'
        f'<text x="4" y="{rank * pitch + ROW / 2 + 4}">{escape(name)}</text>'
        for rank, name in enumerate(names)
    ]
    longest_first = sorted(trace.spans, key=lambda span: span.end - span.start, reverse=True)
    parts += [_rect(span, (span.start - origin) * scale, scale, pitch, beside) for span in longest_first]
    parts += _axis(trace.duration, scale, bottom)
    kinds = {kind_of(span) for span in trace.spans}
    for place, kind in enumerate(kind for kind in COLOURS if kind in kinds):
        x, y = LEFT + 120 * place, bottom + AXIS
        parts.append(f'<rect x="{x}" y="{y}" width="11" height="11" fill="{COLOURS[kind]}"/>')
        parts.append(f'<text x="{x + 16}" y="{y + 10}">{kind}</text>')
    height = bottom + AXIS + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="#222">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _rect(span: Span, left: float, scale: float, pitch: int, beside: int) -> str:
    below = is_beside(span)
    wide, high = (span.end - span.start) * scale, beside if below else ROW
    x, y = LEFT + left, span.rank * pitch + (ROW if below else 0)
    label = span.name if span.microbatch < 0 else f"{span.name} {span.microbatch}"
    shown = (
        f'<rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{high}" fill="{COLOURS[kind_of(span)]}" '
        f'stroke="#fff" stroke-width="{min(0.5, wide / 8):.2f}"><title>{escape(label)}</title></rect>'
    )
    if not below and span.microbatch >= 0 and wide > 6 + 7 * len(str(span.microbatch)):
        middle = x + wide / 2
        shown += f'<text x="{middle:.2f}" y="{y + 14}" text-anchor="middle" fill="#fff">{span.microbatch}</text>'
    return shown


def _axis(duration: float, scale: float, bottom: float) -> list[str]:
    """A handful of round times below the rows."""
    rough = duration / 8
    step = 10.0 ** math.floor(math.log10(rough))
    step *= next(size for size in (1, 2, 5, 10) if size * step >= rough)
    unit, factor = ("s", 1.0) if step >= 0.1 else ("ms", 1e3) if step >= 1e-4 else ("µs", 1e6)
    return [
        f'<text x="{LEFT + n * step * scale:.2f}" y="{bottom + 12}" text-anchor="middle">'
        f"{n * step * factor:.6g} {unit}</text>"
        for n in range(int(duration / step) + 1)
    ]
