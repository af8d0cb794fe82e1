"""The picture for papers: well-formed, every span in it, rows in their place."""

from xml.etree import ElementTree

import pytest

from heddle.errors import HeddleError
from heddle.schedule import build
from heddle.simulating.replay import replay
from heddle.trace import Span, Trace, to_svg
from heddle.trace.kinds import COLORS

SVG = "{http://www.w3.org/2000/svg}"


def rects(svg):
    """The spans of a picture: rectangles that have a title."""
    return [each for each in ElementTree.fromstring(svg).iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]


def test_every_span_is_there_to_scale():
    trace = replay(build("1f1b", 4, 8))
    trace.spans.append(Span(2, "data", "all-reduce", 33.0, 34.0))
    found = rects(to_svg(trace, width=1000))
    assert len(found) == len(trace.spans)
    scale = (1000 - 60 - 10) / trace.duration
    widths = sorted(float(each.get("width")) for each in found)
    assert widths == pytest.approx(sorted((s.end - s.start) * scale for s in trace.spans), abs=0.01)
    assert {each.get("fill") for each in found} == {COLORS[k] for k in ("forward", "backward", "communication")}
    assert len({each.get("y") for each in found}) == 5  # four ranks, and one strip beside
    assert "backward 7" in {each.find(f"{SVG}title").text for each in found}


def test_names_are_escaped_and_nothing_is_refused():
    svg = to_svg(Trace(1, [Span(0, "compute", "<b>&", 0.0, 1.0)]), names=["<first>"])
    assert rects(svg)[0].find(f"{SVG}title").text == "<b>&"
    with pytest.raises(HeddleError, match="nothing to draw"):
        to_svg(Trace(1, []))
