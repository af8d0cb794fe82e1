"""A trace as an SVG picture, for papers: it stays sharp, and every span can be edited."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from heddle.trace.picture import SIZE, TEXT, PictureBox, Word, lay_out
from heddle.trace.spans import Drawable


def to_svg(trace: Drawable, width: int = 1000, names: Sequence[str] | None = None) -> str:
    """A row per rank: its work, and below it in a narrow strip what goes on beside.

    Args:
        trace: what happened, or would happen.
        width: of the picture, in pixels.
        names: what the rows are called; "rank 0", … if left out.
    """
    layout = lay_out(trace, width, names)
    parts = [*map(_rect, layout.boxes), *map(_text, layout.words)]
    size = f'viewBox="0 0 {layout.width} {layout.height}" width="{layout.width}" height="{layout.height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="{SIZE}" '
        f'fill="{TEXT}">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _rect(box: PictureBox) -> str:
    place = f'x="{box.x:.2f}" y="{box.y}" width="{box.width:.2f}" height="{box.height}" fill="{box.color}"'
    if not box.title:
        return f"<rect {place}/>"
    edge = f'stroke="#fff" stroke-width="{min(0.5, box.width / 8):.2f}"'  # tells neighbors apart
    return f"<rect {place} {edge}><title>{escape(box.title)}</title></rect>"


def _text(word: Word) -> str:
    anchor = f' text-anchor="{word.anchor}"' if word.anchor != "start" else ""
    color = f' fill="{word.color}"' if word.color != TEXT else ""
    return f'<text x="{word.x:.2f}" y="{word.y}"{anchor}{color}>{escape(word.text)}</text>'
