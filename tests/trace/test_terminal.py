"""The drawing, against pictures that were looked at once and kept."""

from pathlib import Path

import pytest
from rich.console import Console

from heddle.errors import HeddleError
from heddle.schedule import build
from heddle.simulating.replay import replay
from heddle.trace import Span, Trace
from heddle.trace.terminal import draw, ranks_drawn

GOLDEN = Path(__file__).parent / "golden"


def with_recomputing(trace, shares):
    """The same with each backward cut in two, its recomputing first: so large a share of it, for each chunk."""
    spans = []
    for span in trace.spans:
        share = shares[span.chunk] if span.name == "backward" else 0.0
        middle = span.start + share * (span.end - span.start)
        spans += [span._replace(name="recompute", end=middle)] * (share > 0) + [span._replace(start=middle)]
    return Trace(trace.ranks, spans)


@pytest.mark.parametrize(
    ("golden", "schedule", "width"),
    [
        ("1f1b_4x8.txt", ("1f1b", 4, 8), 80),
        ("interleaved_4x8x2.txt", ("interleaved", 4, 8, 2), 128),
        ("interleaved_4x8x2_narrow.txt", ("interleaved", 4, 8, 2), 80),
        ("1f1b_8x64.txt", ("1f1b", 8, 64), 80),
    ],
)
def test_golden(golden, schedule, width):
    assert draw(replay(build(*schedule)), width).plain + "\n" == (GOLDEN / golden).read_text()


@pytest.mark.parametrize(
    ("golden", "schedule", "width"),
    [
        ("1f1b_4x8_all_kinds.txt", ("1f1b", 4, 8), 128),
        ("interleaved_4x8x2_all_kinds.txt", ("interleaved", 4, 8, 2), 200),
        ("1f1b_8x64_all_kinds.txt", ("1f1b", 8, 64), 80),
    ],
)
def test_golden_with_recomputing_messages_exchange_and_update(golden, schedule, width):
    order = build(*schedule)
    trace = with_recomputing(replay(order, 1.0, 3.0, transfer=0.5), [1 / 3] * order.chunks)
    end = trace.duration
    trace.spans += [
        Span(span.rank, "send", "send activation", span.end, span.end + 0.5)
        for span in trace.spans
        if span.name == "forward"
    ]
    for rank in range(order.pipeline):
        trace.spans += [
            Span(rank, "data", "exchange", end, end + 2),
            Span(rank, "optimizer", "update", end + 2, end + 3),
        ]
    assert draw(trace, width).plain + "\n" == (GOLDEN / golden).read_text()


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("size", [("1f1b", 2, 3), ("gpipe", 12, 5), ("interleaved", 4, 12, 3), ("1f1b", 16, 200)])
def test_no_row_is_wider_than_asked_and_all_is_ascii(size, width):
    *rows, _, _legend = draw(replay(build(*size)), width).plain.split("\n")
    assert max(map(len, rows)) <= width
    assert draw(replay(build(*size)), width).plain.isascii()


def test_the_picture_does_not_depend_on_the_unit_or_the_origin_of_time():
    trace = replay(build("1f1b", 4, 8))
    scaled = Trace(4, [s._replace(start=s.start * 1e-3 + 70, end=s.end * 1e-3 + 70) for s in trace.spans])
    assert draw(scaled).plain == draw(trace).plain


def test_communication_and_the_optimizer_show_where_a_rank_does_not_compute():
    trace = replay(build("1f1b", 2, 2))
    waiting = [Span(1, "receive", "receive activation", 0.0, 1.0), Span(1, "optimizer", "gradients", 8.0, 9.0)]
    assert draw(Trace(2, [*trace.spans, *waiting])).plain == draw(trace).plain  # is idle
    busier = [Span(0, "tensor", "all-reduce", 0.0, 1.0), Span(0, "send", "send activation", 1.5, 3.0)]
    busier += [Span(1, "optimizer", "update", 7.0, 9.0)]
    first, second, _, legend = draw(Trace(2, [*trace.spans, *busier])).plain.split("\n")
    assert first == "rank 0  0>1>~~..0<<<..1<<<"
    assert second == "rank 1  ..0>0<<<1>1<<<####"
    assert legend == "0> forward, 0< backward of microbatch 0; . idle; ~ communication; # optimizer"


def test_recomputing_is_the_first_part_of_a_backward():
    trace = with_recomputing(replay(build("1f1b", 2, 2), 1.0, 3.0), [1 / 3, 0.0])
    first, second, _, legend = draw(trace).plain.split("\n")
    assert first == "rank 0  0>1>......%%0<<<..%%1<<<"
    assert second == "rank 1  ..0>0<<<<<1>1<<<<<......"
    assert legend.endswith("; % recomputing")
    assert trace.bubble == pytest.approx(replay(build("1f1b", 2, 2), 1.0, 3.0).bubble)


def test_other_work_and_cells_too_narrow_for_their_number():
    spans = [Span(0, "compute", "forward", i, i + 1, chunk=0, microbatch=i) for i in range(10)]
    spans += [Span(0, "compute", "backward", 10.0, 10.5, chunk=0, microbatch=3)]
    spans += [Span(0, "compute", "update", 11.0, 13.0)]
    row, _, legend = draw(Trace(1, spans)).plain.split("\n")
    assert row == "rank 0  0>1>2>3>4>5>6>7>8>9><.####"
    assert legend.endswith("; # other")


@pytest.mark.parametrize("microbatches", [11, 12])
def test_microbatch_numbers_of_different_length_line_up(microbatches):
    row = draw(replay(build("1f1b", 1, microbatches), 1, 1), width=200).plain.split("\n")[0]
    assert row == "rank 0  " + "".join(f"{i}>>"[:3] + f"{i}<<"[:3] for i in range(microbatches))


def test_color_only_for_a_terminal(monkeypatch):
    for variable in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    picture = draw(replay(build("interleaved", 2, 2, 2)))
    for terminal in (True, False):
        console = Console(force_terminal=terminal, width=80, legacy_windows=False)
        with console.capture() as capture:
            console.print(picture)
        assert ("\x1b[37;44m0a" in capture.get()) is terminal
        assert ("\x1b[30;106m0b" in capture.get()) is terminal  # another shade for the second chunk
        assert ("\x1b" in capture.get()) is terminal


@pytest.mark.parametrize("spans", [[], [Span(0, "send", "x", 0, 1)], [Span(0, "compute", "forward", 1, 1)]])
def test_nothing_to_draw(spans):
    with pytest.raises(HeddleError, match="nothing to draw"):
        draw(Trace(1, spans))


def test_of_very_many_ranks_the_first_and_the_last_are_drawn():
    spans = [Span(rank, "compute", "forward", rank, rank + 1.0, 0, rank, 0) for rank in range(200)]
    drawn = draw(Trace(200, spans)).plain
    rows = [line for line in drawn.splitlines() if line.startswith("rank")]
    assert len(rows) == 64
    assert rows[0].startswith("rank   0 ")
    assert rows[-1].startswith("rank 199 ")
    assert "… 136 more ranks" in drawn


def test_a_picture_has_so_many_spans_at_most():
    assert len(ranks_drawn(8, 100_000)) == 8
    assert ranks_drawn(8, 800_000) == [0, 7]
    assert ranks_drawn(1, 10_000_000) == []
    spans = [Span(0, "compute", "forward", at, at + 1.0, 0, 0, at) for at in range(200_001)]
    assert "Too long" in draw(Trace(1, spans)).plain
