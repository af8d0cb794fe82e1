"""Pictures for notebooks and papers, drawn by matplotlib where that is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heddle.cost.breakdown import ITEMS
from heddle.errors import HeddleError, how_to_install
from heddle.format import GIB
from heddle.trace.kinds import COLORS, kind_of
from heddle.trace.spans import Drawable

MOST_SPANS = 20_000  # more are not told apart, and take long to draw


def axes_for(axes: Any, count: int = 1, height: float = 3.0) -> Any:
    """The axes that are given, or so many new ones below each other."""
    if axes is not None:
        return axes
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise HeddleError(
            "matplotlib is not installed.", "It draws what `plot()` shows.", f"Install it: {how_to_install('plot')}"
        ) from None
    try:
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=(9, height * count), layout="constrained")
    except ImportError:  # no window system: a figure that can be saved will do
        figure = Figure(figsize=(9, height * count), layout="constrained")
    found = [figure.add_subplot(count, 1, number + 1) for number in range(count)]
    return found[0] if count == 1 else found


def plot_timeline(trace: Drawable, axes: Any = None, names: Sequence[str] | None = None) -> Any:
    """Spans over time, a row for each rank, in the colors of the report."""
    if len(trace.spans) > MOST_SPANS:
        raise HeddleError(
            f"The trace has {len(trace.spans):,} spans.",
            f"matplotlib draws up to {MOST_SPANS:,} in reasonable time.",
            "Use `heddle report`, or `heddle trace -o FILE.svg`.",
        )
    axes = axes_for(axes, height=1.2 + 0.35 * trace.ranks)
    start = min((span.start for span in trace.spans), default=0.0)
    lanes = sorted({(span.rank, span.lane) for span in trace.spans}, key=lambda each: (each[0], each[1] != "compute"))
    rows = {lane: number for number, lane in enumerate(lanes)}
    drawn: dict[str, list[tuple[float, float, int]]] = {}
    for span in trace.spans:
        place = (span.start - start, span.end - span.start, rows[span.rank, span.lane])
        drawn.setdefault(kind_of(span), []).append(place)
    for kind, spans in drawn.items():
        lefts, widths, heights = zip(*spans, strict=True)
        axes.barh(heights, widths, left=lefts, height=0.8, color=COLORS[kind], label=kind, linewidth=0)
    firsts = {rank: number for (rank, _), number in reversed(rows.items())}
    axes.set_yticks(list(firsts.values()), [names[rank] if names else f"rank {rank}" for rank in firsts])
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=5, frameon=False)
    return axes


def plot_memory(stages: Sequence[Mapping[str, float]], limit: float, axes: Any = None) -> Any:
    """What each stage holds, item by item, with what a device has as a line."""
    axes = axes_for(axes, height=1.2 + 0.35 * len(stages))
    left = [0.0] * len(stages)
    for name in stages[0]:
        widths = [items[name] / GIB for items in stages]
        axes.barh(range(len(stages)), widths, left=left, color=ITEMS[name].color, label=name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.axvline(limit / GIB, color="black", linewidth=1.5)
    axes.set_yticks(range(len(stages)), [f"stage {number}" for number in range(len(stages))])
    axes.invert_yaxis()
    axes.set_xlabel("GiB of one device; the line is what it has")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=5, frameon=False)
    return axes


def plot_plans(points: Sequence[tuple[float, float]], chosen: tuple[float, float], axes: Any = None) -> Any:
    """Plans in memory and time, both in their logarithm, with one marked."""
    axes = axes_for(axes, height=4.0)
    axes.loglog(*zip(*points, strict=True), "o", color=COLORS["forward"])
    axes.loglog(*chosen, "o", markersize=14, fillstyle="none", color="#d55e00")
    axes.set_xlabel("GiB of the fullest stage")
    axes.set_ylabel("seconds per step")
    return axes


def plot_columns(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], axes: Any = None) -> Any:
    """Columns of metrics over steps, one below the other."""
    known = [name for name in columns if any(row.get(name) is not None for row in rows)]
    several = axes_for(axes, len(known), 2.2)
    for name, each in zip(known, [several] if len(known) == 1 else several, strict=True):
        found = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        each.plot(*zip(*found, strict=True), color=COLORS["forward"])
        each.set_ylabel(name.replace("_", " "))
        each.set_xlabel("step")
    return several
