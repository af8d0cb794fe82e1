"""What a notebook shows: pictures and tables without a script, and DataFrames where pandas is."""

import re
from xml.etree import ElementTree as ET

import pytest

import heddle
from heddle.errors import HeddleError
from heddle.trace.frames import frame
from heddle.trace.notebook import MOST_SPANS, timeline_html
from heddle.trace.trace import Span, Trace


@pytest.fixture(scope="module")
def found():
    job = heddle.job("gpt2-xl", cluster="dgx-a100-80gb", nodes=1, global_batch=32)
    return heddle.plan(job, top=3, fixed={"pipeline": 4})


def test_a_search_a_prediction_and_a_trace_show_themselves(found):
    for shown in (found, found.best):
        html = shown._repr_html_()
        assert "<script" not in html
        assert "<svg" in html
    assert found._repr_html_().count("<tr>") == 1 + len(found.plans)
    assert f"{found.best.mfu:.1%}" in found._repr_html_()
    bars = re.findall(r"width:([\d.]+)%", found.best._repr_html_())
    assert len(bars) >= 4 * 3
    ET.fromstring(re.search(r"<svg.*</svg>", timeline_html(found.best.trace), re.DOTALL)[0])


def test_a_trace_that_is_too_large_is_named_instead():
    spans = [Span(0, "compute", "forward", float(i), i + 1.0) for i in range(MOST_SPANS + 1)]
    assert "spans of 1 ranks" in timeline_html(Trace(1, spans))
    assert "0 spans" in timeline_html(Trace(1))


def test_frames_have_the_numbers_of_the_commands(found):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    plans = found.to_frame()
    assert isinstance(plans, pandas.DataFrame)
    assert plans["step_seconds"][0] == found.best.step_seconds
    assert list(plans["pipeline"]) == [4] * len(found.plans)
    assert len(found.best.to_frame()) == 4
    assert list(found.best.trace.to_frame().columns) == list(Span._fields)


def test_without_pandas_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(HeddleError, match="pip install pandas"):
        frame([{"a": 1}])
