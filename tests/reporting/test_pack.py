"""Spans packed for the page hold what the trace holds, in the order that the page relies on."""

from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.reporting.pack import STRIPS, pack, unpack
from heddle.trace import Span, Trace
from heddle.trace.kinds import KINDS, is_beside, kind_of
from tests.helpers.subjects import measured_trace

LANES = {
    "compute": ["forward", "backward", "odd"],
    "receive": ["receive gradient"],
    "optimizer": ["gradients", "update"],
}


@st.composite
def traces(draw):
    ranks = draw(st.integers(1, 4))
    spans = []
    for _ in range(draw(st.integers(0, 30))):
        lane = draw(st.sampled_from(sorted(LANES)))
        start = draw(st.floats(0, 1e6))
        span = Span(draw(st.integers(0, ranks - 1)), lane, draw(st.sampled_from(LANES[lane])), start, start + 1)
        spans.append(span._replace(bytes=draw(st.integers(0, 2**50)), microbatch=draw(st.integers(-1, 10**6))))
    return Trace(ranks, spans)


def rows(trace):
    """Each span as the page should see it, found without `pack`."""
    origin = min((span.start for span in trace.spans), default=0.0)
    return sorted(
        (span.rank, is_beside(span), span.start - origin, kind_of(span), span.name, span.microbatch, span.bytes)
        for span in trace.spans
    )


@given(traces())
def test_nothing_is_lost(trace):
    packed = pack(trace)
    columns, offsets = unpack(packed), packed["offsets"]
    found = []
    for strip in range(trace.ranks * STRIPS):
        part = slice(offsets[strip], offsets[strip + 1])
        assert np.all(np.diff(columns["start"][part]) >= 0)
        for i in range(offsets[strip], offsets[strip + 1]):
            size = int(columns["bytes"][i]) if "bytes" in columns else 0
            name = packed["names"][columns["name"][i]]
            kind = KINDS[columns["kind"][i]]
            found.append(
                (strip // STRIPS, bool(strip % STRIPS), columns["start"][i], kind, name, columns["microbatch"][i], size)
            )
    assert sorted(found) == rows(trace)


def test_a_measured_step():
    trace = measured_trace()
    packed = pack(trace)
    assert packed["offsets"][-1] == len(trace.spans)
    assert unpack(packed)["start"].min() == 0
    assert packed["duration"] == trace.duration


@pytest.mark.parametrize("count", [256, 257, 1 << 16, (1 << 16) + 1])
def test_any_number_of_names_is_told_apart(count):
    packed = pack(Trace(1, [Span(0, "compute", str(n), float(n), n + 1.0) for n in range(count)]))
    names = unpack(packed)["name"]
    assert [packed["names"][names[place]] for place in (0, 255, count - 1)] == ["0", "255", str(count - 1)]
    assert f"{packed['columns']['name']['type']}:" in (files("heddle.reporting") / "assets" / "spans.js").read_text()
