"""The page about a call on CPU cores: which core ran which operator's tiles when, and where the time went."""

from __future__ import annotations

from collections import defaultdict
from html import escape

from heddle.reporting.html import percent, seconds, still_page, table
from heddle.trace.svg import to_svg
from heddle.trace.trace import Trace

LONGEST = 20  # operators in the table


def render_cores(title: str, trace: Trace) -> str:
    """One HTML file that asks nobody for anything. A rank of the trace is a core, a span is a tile."""
    names = [f"core {rank}" for rank in range(trace.ranks)]
    cores = [
        (names[rank], f"{sum(span.rank == rank for span in trace.spans):,}", seconds(trace.busy(rank)),
         percent(trace.busy(rank) / trace.duration if trace.duration else 0.0))
        for rank in range(trace.ranks)
    ]  # fmt: skip
    main = f"""<p>{len(trace.spans):,} tiles on {trace.ranks} cores in {seconds(trace.duration)}.</p>
<section id="timeline"><h2>Timeline</h2>{to_svg(trace, names=names)}</section>
<section id="cores"><h2>Cores</h2>{table(("core", "tiles", "busy", "share"), cores)}</section>
<section id="operators"><h2>Slowest operators</h2>{_operators(trace)}</section>"""
    return still_page(title, main, "heddle tiles trace")


def _operators(trace: Trace) -> str:
    taken: dict[str, list[float]] = defaultdict(list)
    for span in trace.spans:
        taken[span.name].append(span.end - span.start)
    whole = sum(map(sum, taken.values())) or 1.0
    ranked = sorted(taken.items(), key=lambda item: -sum(item[1]))[:LONGEST]
    rows = [
        (escape(name), f"{len(each):,}", seconds(sum(each)), seconds(max(each)), percent(sum(each) / whole))
        for name, each in ranked
    ]
    return table(("operator", "tiles", "all of them", "the longest", "share"), rows)
