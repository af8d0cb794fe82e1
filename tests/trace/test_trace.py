"""Traces: their sums, and the files that carry them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.schedule import build
from heddle.simulating.replay import replay
from heddle.trace import Span, Trace, to_perfetto

EXAMPLE = Trace(
    ranks=2,
    spans=[
        Span(0, "compute", "forward", 10.0, 11.0, chunk=0, microbatch=0),
        Span(0, "send", "activation", 11.0, 11.5, bytes=4096, chunk=0, microbatch=0),
        Span(1, "compute", "forward", 11.5, 14.5, chunk=1, microbatch=0),
        Span(1, "optimizer", "step", 14.5, 16.0),
    ],
)


def test_sums():
    assert EXAMPLE.duration == 6.0
    assert EXAMPLE.busy(0) == 1.0
    assert EXAMPLE.busy(1) == 3.0
    assert EXAMPLE.busy(0, "send") == 0.5
    # A rank's own work lasts 4.5 on each of 2 ranks, 4.5 of these 9 are work; the optimizer's time is not a bubble.
    assert EXAMPLE.bubble == (9 - 4.5) / 4.5


def test_an_empty_trace():
    assert Trace(1).duration == 0
    with pytest.raises(HeddleError, match="no bubble"):
        _ = Trace(1).bubble


names = st.text(max_size=8)
numbers = st.integers(-1, 2**31 - 1)
times = st.floats(0, 1e6)


@given(st.lists(st.tuples(st.integers(0, 4), names, names, times, times, numbers, numbers, numbers), max_size=8))
def test_a_file_gives_back_the_same_trace(tmp_path_factory, rows):
    spans = [Span(r, lane, name, min(s, e), max(s, e), *rest) for r, lane, name, s, e, *rest in rows]
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    Trace(5, spans).write(path)
    assert Trace.read(path) == Trace(5, spans)


def written(path: Path, *lines: str) -> Path:
    EXAMPLE.write(path)
    header = path.read_text().splitlines()[0]
    path.write_text("\n".join([header, *lines]))
    return path


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"[1, 2]", b'{"traceEvents": []}', b"\xff\xfe\x00", b'{"format": "other"}']
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(HeddleError, match="is not a Heddle trace"):
        Trace.read(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(HeddleError, match="There is no file"):
        Trace.read(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize("change", [{"version": 2}, {"columns": ["rank"]}, {"ranks": 0}, {"ranks": None}])
def test_other_versions_are_refused(tmp_path, change):
    path = tmp_path / "trace.jsonl"
    EXAMPLE.write(path)
    header = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps(header | change))
    with pytest.raises(HeddleError, match="a trace that this version of Heddle cannot read"):
        Trace.read(path)


@pytest.mark.parametrize(
    "line",
    [
        '[0, "compute", "forw',  # cut off in the middle of a write
        "[0, 1]",
        '["0", "compute", "forward", 0, 1, 0, 0, 0]',
        '[2, "compute", "forward", 0, 1, 0, 0, 0]',
        '[0, "compute", "forward", 1, 0, 0, 0, 0]',
        '[0, "compute", "forward", 0, 1, 0, 2147483648, 0]',
        '[0, "compute", "forward", 0, 1, 9007199254740992, 0, 0]',
        '[0, "compute", "forward", NaN, 1, 0, 0, 0]',
        '[0, "compute", "forward", 0, 1e999, 0, 0, 0]',
        '[true, "compute", "forward", 0, 1, 0, 0, 0]',
        "[" * 100_000,
        "9" * 5000,
    ],
    ids=range(12),
)
def test_a_broken_line_is_named_and_the_others_are_read(tmp_path, line):
    whole = '[0, "compute", "forward", 0, 1, 0, 0, 0]'
    trace = Trace.read(written(tmp_path / "trace.jsonl", whole, line, whole))
    assert len(trace.spans) == 2
    (words,) = trace.skipped
    assert "1 of the 3 lines" in words
    assert "the first is line 3" in words
    with pytest.raises(HeddleError, match="has no complete span"):
        Trace.read(written(tmp_path / "trace.jsonl", line))


def test_perfetto():
    events = json.loads(json.dumps(to_perfetto(EXAMPLE)))["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {0: "rank 0", 1: "rank 1"}
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    assert [threads[event["tid"]] for event in spans] == ["compute", "send", "compute", "optimizer"]
    assert spans[1] == {
        "ph": "X",
        "name": "activation 0",
        "cat": "activation",
        "pid": 0,
        "tid": spans[1]["tid"],
        "ts": 11e6,
        "dur": 0.5e6,
        "args": {"chunk": 0, "microbatch": 0, "bytes": 4096},
    }
    assert spans[3]["name"] == "step"
    assert spans[3]["args"] == {"bytes": 0}


def test_a_replay_survives_the_file(tmp_path):
    trace = replay(build("interleaved", 2, 4, 2), forward=0.1, backward=0.3, transfer=0.01)
    trace.write(tmp_path / "trace.jsonl")
    again = Trace.read(tmp_path / "trace.jsonl")
    assert again == trace
    assert again.bubble == trace.bubble


def test_perfetto_shows_memory_as_a_counter_of_each_rank():
    curves = [[(0.0, 2**30), (1.0, 3 * 2**30)], [(0.5, 2**29)]]
    events = [event for event in to_perfetto(EXAMPLE, curves)["traceEvents"] if event["ph"] == "C"]
    assert [(event["pid"], event["ts"], event["args"]) for event in events] == [
        (0, 0.0, {"GiB": 1.0}),
        (0, 1e6, {"GiB": 3.0}),
        (1, 5e5, {"GiB": 0.5}),
    ]


def test_a_trace_of_another_plan_is_told_apart():
    assert EXAMPLE.is_of(EXAMPLE.ranks, 1 + max(span.chunk for span in EXAMPLE.spans))
    assert not EXAMPLE.is_of(EXAMPLE.ranks + 1, 99)
    assert not Trace(1, [Span(0, "compute", "forward", 0.0, 1.0, chunk=4)]).is_of(1, 4)
