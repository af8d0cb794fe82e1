"""What a notebook shows of a trace, a prediction or a search: HTML that needs no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from heddle.cost.breakdown import MEMORY
from heddle.trace.spans import Drawable
from heddle.trace.svg import to_svg

MOST_SPANS = 4000  # a notebook keeps what it shows; a larger picture is for `heddle report`


def timeline_html(trace: Drawable, names: Sequence[str] | None = None) -> str:
    """The trace as a picture, or what it is where that would be too large."""
    if trace.duration <= 0 or len(trace.spans) > MOST_SPANS:
        return f"<p>{escape(repr(trace))}</p>"
    return f'<div style="overflow-x:auto">{to_svg(trace, names=names)}</div>'


def table_html(rows: Sequence[Mapping[str, Any]], title: str = "") -> str:
    """Rows with the same keys."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row.values()) + "</tr>" for row in rows)
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def memory_html(stages: Sequence[Mapping[str, float]], limit: float) -> str:
    """A bar for each stage, items in their colors, up to what a device has."""
    most = max([limit, *(sum(items.values()) for items in stages)])
    bars = []
    for number, items in enumerate(stages):
        parts = "".join(
            f'<span title="{name}" style="display:inline-block;height:14px;width:{100 * value / most:.2f}%;'
            f'background:{MEMORY[name].color}"></span>'
            for name, value in items.items()
            if value > 0
        )
        bars.append(
            f'<div style="display:flex;align-items:center;gap:8px"><code>stage {number}</code>'
            f'<div style="flex:1;background:#f1f2f3;line-height:0">{parts}</div></div>'
        )
    return "".join(bars)
