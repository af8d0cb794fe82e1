"""A trace as a PNG picture, for slides and messages, painted by Pillow: `heddle-train[png]`."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence

from heddle.errors import HeddleError, how_to_install
from heddle.trace.picture import SIZE, PictureBox, PictureLayout, lay_out
from heddle.trace.trace import Trace

DENSITY = 2  # pixels of the picture for one of the layout: sharp on screens that have them
FINE = 4  # parts of a pixel, sideways: a span that is narrower than a pixel colors its share of it
EDGE = 0.5  # pixels of the layout between neighbors


def to_png(trace: Trace, width: int = 1000, names: Sequence[str] | None = None) -> bytes:
    """The picture that `to_svg` draws, with two pixels for each of its.

    Args:
        trace: what happened, or would happen.
        width: of the picture, in pixels of the SVG.
        names: what the rows are called; "rank 0", … if left out.
    """
    if importlib.util.find_spec("PIL") is None:
        raise HeddleError(
            "A PNG needs Pillow, which this environment lacks.",
            "It paints the picture; SVG and Perfetto files need nothing.",
            f"Install it: {how_to_install('png')}. Or name the file .svg.",
        )
    return _paint(lay_out(trace, width, names))


def _paint(layout: PictureLayout) -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (DENSITY * layout.width, DENSITY * layout.height), "white")
    # Line by line of the layout, so that a picture of a thousand ranks needs the memory of one of them.
    lines: dict[tuple[float, float], list[PictureBox]] = {}
    for box in layout.boxes:
        lines.setdefault((box.y, box.height), []).append(box)
    for (top, tall), boxes in lines.items():
        line = Image.new("RGB", (FINE * picture.width, 1), "white")
        line.paste(picture.crop((0, int(DENSITY * top), picture.width, int(DENSITY * top) + 1)).resize(line.size, 0))
        for box in boxes:
            gap = min(EDGE, box.width / 8) if box.title else 0.0
            left, right = (round(FINE * DENSITY * x) for x in (box.x + gap / 2, box.x + box.width - gap / 2))
            line.paste(box.color, (left, 0, max(right, left + 1), 1))
        line = line.resize((picture.width, 1), Image.Resampling.BOX)
        picture.paste(line.resize((picture.width, int(DENSITY * tall)), 0), (0, int(DENSITY * top)))
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(DENSITY * SIZE)
    for word in layout.words:
        anchor = "ms" if word.anchor == "middle" else "ls"
        draw.text((DENSITY * word.x, DENSITY * word.y), word.text, word.color, font, anchor)
    written = io.BytesIO()
    picture.save(written, "PNG", optimize=True)
    return written.getvalue()
