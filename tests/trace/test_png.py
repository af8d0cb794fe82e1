"""The picture for slides: the same boxes as the SVG's, in the same places and colors."""

import io

import pytest

from heddle.errors import HeddleError
from heddle.schedule import build
from heddle.simulating.replay import replay
from heddle.trace import Span, Trace, to_png
from heddle.trace.kinds import COLORS
from heddle.trace.picture import IDLE, lay_out
from heddle.trace.png import DENSITY

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: the extra heddle-train[png]")


def painted(trace, width=1000):
    picture = Image.open(io.BytesIO(to_png(trace, width)))
    return picture.convert("RGB")


def rgb(color):
    return tuple(int(color[at : at + 2], 16) for at in (1, 3, 5))


def test_every_span_is_painted_where_the_svg_has_it():
    trace = replay(build("1f1b", 4, 8))
    trace.spans.append(Span(2, "data", "all-reduce", 33.0, 34.0))
    layout, picture = lay_out(trace, 1000), painted(trace)
    assert picture.size == (DENSITY * layout.width, DENSITY * layout.height)
    spans = [box for box in layout.boxes if box.title]
    assert len(spans) == len(trace.spans)
    for box in spans:  # just inside its left edge, where no number stands
        at = int(DENSITY * (box.x + 2)), int(DENSITY * (box.y + box.height / 2))
        assert picture.getpixel(at) == rgb(box.color), box


def test_where_nobody_works_is_idle():
    trace = replay(build("1f1b", 4, 8))
    row = lay_out(trace, 1000).boxes[3]  # of the last rank, which begins last
    assert row.color == IDLE
    assert painted(trace).getpixel((int(DENSITY * (row.x + 2)), int(DENSITY * (row.y + 10)))) == rgb(IDLE)


def test_spans_narrower_than_a_pixel_color_their_share():
    """A thousand spans that fill half of a stretch make it half as strong, none is lost and none is too wide."""
    spans = [Span(0, "compute", "forward", n, n + 0.5) for n in range(4000)]
    picture = painted(Trace(1, spans))
    across = [picture.getpixel((x, 20)) for x in range(DENSITY * 100, DENSITY * 900)]
    red = sum(pixel[0] for pixel in across) / len(across)
    strong, weak = rgb(COLORS["forward"])[0], rgb(IDLE)[0]
    assert 0.35 < (weak - red) / (weak - strong) < 0.65


def test_a_missing_pillow_is_told(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(HeddleError, match="needs Pillow") as told:
        to_png(replay(build("gpipe", 2, 2)))
    assert "in your checkout of heddle-train, pip install '.[png]'" in told.value.hint
