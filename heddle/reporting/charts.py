"""The parts of the page that are drawn: the timeline, the curves of a run, and the plans in time and memory."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from heddle.format import GIB
from heddle.planning.search.describe import in_words
from heddle.planning.search.search import Search, summary
from heddle.reporting import html as text
from heddle.reporting.pack import pack
from heddle.reporting.subject import MeasuredRun, Subject
from heddle.spec.plan import Plan
from heddle.spec.ranks import coordinates, stage_of
from heddle.spec.tables import to_table, to_toml
from heddle.trace.kinds import KINDS, kind_of
from heddle.trace.trace import Trace

CURVES = {
    "loss": "loss, nats per token",
    "tokens_per_second": "tokens/s",
    "mfu": "MFU, %",
}
# where a run has them
SOME_CURVES = {
    "useful_tokens_per_second": "tokens/s without padding",
    "reward_margin": "margin of rewards",
    "reward_accuracy": "share of pairs that are right",
}
MOST_POINTS = 4000  # of a curve: more than a screen has columns
MOST_ROWS = 40  # of the table beside a curve
MODES = {"both": "predicted over measured", "predicted": "predicted", "measured": "measured"}


def timeline_data(subject: Subject) -> dict[str, Any]:
    """The spans, and what the rows are called."""
    plan = subject.job.plan
    data: dict[str, Any] = {}
    if subject.prediction is not None:
        rows = [{"label": f"stage {stage}", "stage": stage} for stage in range(plan.pipeline)]
        data["predicted"] = pack(subject.prediction.trace) | {"rows": rows}
    if subject.measured is not None and subject.measured.trace is not None:
        rows = [
            {"label": f"rank {rank}", "about": place(plan, rank), "stage": stage_of(plan, rank)}
            for rank in range(plan.world)
        ]
        data["measured"] = pack(subject.measured.trace) | {"rows": rows}
    return data


def place(plan: Plan, rank: int) -> str:
    """Where a rank stands."""
    if plan.world == 1:
        return "the only one"
    at = coordinates(plan, rank)
    return f"stage {at.pipeline}, replica {at.data}, tensor {at.tensor}"


def timeline(subject: Subject, number: int) -> str:
    """Where the timeline is drawn, its buttons, and a table for those who do not see it."""
    traces = {}
    if subject.prediction is not None:
        traces["predicted"] = subject.prediction.trace
    if subject.measured is not None and subject.measured.trace is not None:
        traces["measured"] = subject.measured.trace
    if not traces:
        return "<p>Neither a prediction nor a trace.</p>"
    modes = list(MODES) if len(traces) == 2 else list(traces)
    choices = "".join(
        f'<label><input type="radio" name="mode-{number}" value="{mode}"{" checked" * (mode == modes[0])}> '
        f"{MODES[mode]}</label>"
        for mode in modes
    )
    buttons = "".join(
        f'<button type="button" data-do="{do}" aria-label="{label}" title="{label}">{sign}</button>'
        for do, sign, label in (
            ("in", "+", "zoom in"),
            ("out", "−", "zoom out"),
            ("left", "←", "earlier"),
            ("right", "→", "later"),
            ("whole", "whole step", "show the whole step"),
            ("save", "save PNG", "save PNG: the picture as a file"),
        )
    )
    alone = " hidden" * (len(modes) == 1)  # nothing to choose
    found = {kind_of(span) for trace in traces.values() for span in trace.spans}
    legend = "".join(
        f'<li><i class="swatch k-{kind}" aria-hidden="true"></i>{kind}</li>' for kind in KINDS if kind in found
    )
    spans = sum(len(trace.spans) for trace in traces.values())
    count = f"{spans:,} spans"
    if subject.prediction is not None and (drawn := subject.prediction.steps_drawn) > 1:
        count += f"; predicted are {drawn} steps, for the pipeline does not drain between them"
    if subject.measured is not None and subject.measured.traced is not None:
        count += f"; measured is step {subject.measured.traced}"
    tables = "".join(text.details(f"As a table, {name}", _ranks_table(trace)) for name, trace in traces.items())
    return f"""<div class="timeline" data-timeline="{number}">
<div class="tools"><fieldset{alone}><legend class="hidden">what to show</legend>{choices}</fieldset>
<div class="buttons" role="group" aria-label="zoom">{buttons}</div></div>
<ul class="legend">{legend}</ul>
<div class="scroll"><div class="spacer"><canvas tabindex="0" role="application" aria-roledescription="timeline"
 aria-label="timeline of {escape(subject.name)}" aria-describedby="keys"></canvas></div></div>
<p class="status" role="status" aria-live="polite">{count}</p>{tables}</div>"""


def _ranks_table(trace: Trace) -> str:
    """How long each rank did what."""
    sums: list[dict[str, float]] = [dict.fromkeys(KINDS, 0.0) for _ in range(trace.ranks)]
    for span in trace.spans:
        sums[span.rank][kind_of(span)] += span.end - span.start
    kinds = [kind for kind in KINDS if any(row[kind] for row in sums)]
    rows = [(str(rank), *(text.seconds(row[kind]) for kind in kinds)) for rank, row in enumerate(sums)]
    return text.table(["rank", *kinds], rows, "Seconds per rank by kind; communication may overlap the rest")


def learning_data(measured: MeasuredRun | None) -> dict[str, Any] | None:
    """The curves of a run, thinned out where there are more points than a screen has columns."""
    if measured is None or not measured.steps:
        return None
    every = math.ceil(len(measured.steps) / MOST_POINTS)
    rows = measured.steps[::every]
    curves = {name: [_short(row.get(name)) for row in rows] for name in _curves(measured)}
    curves["mfu"] = [None if value is None else _short(100 * value) for value in curves["mfu"]]
    return {
        "steps": [row["step"] for row in rows],
        "curves": curves,
        "validation": {
            "steps": [row["step"] for row in measured.validation],
            "loss": [_short(row["validation_loss"]) for row in measured.validation],
        },
    }


def _curves(measured: MeasuredRun) -> dict[str, str]:
    """The titles of what is drawn, by name."""
    return CURVES | {name: title for name, title in SOME_CURVES.items() if name in measured.steps[-1]}


def _short(value: Any) -> float | None:
    return float(f"{value:.5g}") if isinstance(value, int | float) and math.isfinite(value) else None


def learning(subject: Subject, number: int) -> str:
    """Where the curves are drawn, and their numbers."""
    measured = subject.measured
    if measured is None or not measured.steps:
        return ""
    expected = {}
    if subject.prediction is not None:
        expected = {"tokens_per_second": subject.prediction.tokens_per_second, "mfu": 100 * subject.prediction.mfu}
    charts = "".join(
        f'<figure><figcaption>{title}</figcaption><canvas class="curve" data-run="{number}" data-curve="{name}" '
        f'data-expected="{expected.get(name, "")}" tabindex="0" role="img" '
        f'aria-label="{title} over {len(measured.steps)} steps"></canvas>'
        f'<p class="status" role="status" aria-live="polite"></p></figure>'
        for name, title in _curves(measured).items()
    )
    every = math.ceil(len(measured.steps) / MOST_ROWS)
    rows = [
        (
            str(row["step"]),
            "–" if _short(row.get("loss")) is None else f"{row['loss']:.4f}",
            text.number(_short(row.get("tokens_per_second"))),
            text.percent(_short(row.get("mfu"))),
        )
        for row in measured.steps[::every]
    ]
    shown = text.table(["step", "loss", "tokens/s", "MFU"], rows)
    return f'<div class="curves">{charts}</div>' + text.details("As a table", shown)


def plans_toml(subject: Subject) -> list[str]:
    """The TOML of every plan that can be copied: those of the front, then the ranked ones."""
    if subject.search is None:
        return []
    plans = [*(point.plan for point in subject.search.front), *(found.plan for found in subject.search.plans)]
    return [to_toml({"plan": to_table(plan)}) for plan in plans]


def plans(subject: Subject, number: int) -> str:
    """The plans that no other beats in both time and memory as points, and the best as a table."""
    found = subject.search
    if found is None:
        return "<p>No plans were searched.</p>"
    return plans_front(subject, number, "copy its TOML") + _plans_table(found, number)


def plans_front(subject: Subject, number: int, click: str) -> str:
    """The plans that no other beats in both as points; `click` says what happens to one that is clicked."""
    found = subject.search
    if found is None:
        return "<p>No plans were searched.</p>"
    front = found.front
    own = None
    if subject.prediction is not None:
        worst = subject.prediction.worst / GIB
        own = (worst, subject.prediction.step_seconds)
    xs = [point.memory_gib for point in front] + ([own[0]] if own else [])
    ys = [point.step_seconds for point in front] + ([own[1]] if own else [])
    across, along = _Axis(xs), _Axis(ys)
    points = "".join(
        f'<button type="button" class="point" tabindex="{-1 if i else 0}" data-run="{number}" data-plan="{i}" '
        f'style="left:{across.at(point.memory_gib):.2f}%;bottom:{along.at(point.step_seconds):.2f}%" '
        f'aria-label="{escape(_point_words(point.plan, point.step_seconds, point.memory_gib))}; {click}">'
        f"</button>"
        for i, point in enumerate(front)
    )
    if own:
        points += (
            f'<i class="own" style="left:{across.at(own[0]):.2f}%;bottom:{along.at(own[1]):.2f}%" '
            f'title="this plan" aria-hidden="true"></i>'
        )
    marks = "".join(f'<i class="x" style="left:{across.at(v):.2f}%">{v:g}</i>' for v in across.ticks)
    marks += "".join(f'<i class="y" style="bottom:{along.at(v):.2f}%">{text.seconds(v)}</i>' for v in along.ticks)
    ring = " The ring marks this plan." if own else ""
    return f"""<p>{len(front)} plans that none beats in both time and memory, each simulated action by action.
 Point at one to read it, click it to {click}; arrow keys go from one to the next.{ring}</p>
<div class="front" role="group" aria-label="plans: seconds per step over GiB of the fullest stage">
<div class="area">{marks}{points}</div><b class="xname">GiB of the fullest stage</b></div>
<p class="status" role="status" aria-live="polite">seconds per step over GiB of the fullest stage</p>"""


def _plans_table(found: Search, number: int) -> str:
    rows = []
    for i, each in enumerate(found.plans):
        facts = summary(each)
        rows.append(
            (
                f"{found.rank(each.plan) or i + 1:,}",
                escape(in_words(each.plan)),
                text.seconds(each.step_seconds),
                text.number(each.tokens_per_second),
                text.percent(each.mfu),
                text.gib(facts["worst_stage_gib"]),
                text.gib(facts["headroom_gib"]),
                _copy_button(number, len(found.front) + i, i + 1),
            )
        )
    head = ["#", "plan", "a step", "tokens/s", "MFU", "GiB", "free", "TOML"]
    title = "The best plan of each split and microbatch, with its place among all, simulated action by action"
    return text.table(head, rows, title, words=2)


def _copy_button(run: int, plan: int, place: int) -> str:
    return (
        f'<button type="button" class="copy" data-run="{run}" data-plan="{plan}" '
        f'aria-label="copy the TOML of plan {place}">copy</button>'
    )


def _point_words(plan: Plan, seconds: float, gib: float) -> str:
    return f"{in_words(plan)}: {text.seconds(seconds)} per step, {text.memory(gib * GIB)}"


class _Axis:
    """Where values lie between 0 and 100: by their logarithm where they span more than a decade."""

    def __init__(self, values: list[float]) -> None:
        low, high = min(values), max(values)
        self.log = high > 10 * low
        margin = (high / low) ** 0.06 if self.log else 0.06 * (high - low) or 0.1 * high
        self.low, self.high = (low / margin, high * margin) if self.log else (max(0.0, low - margin), high + margin)
        self.ticks = text.ticks(self.low, self.high, self.log)

    def at(self, value: float) -> float:
        if self.log:
            return 100 * math.log(value / self.low) / math.log(self.high / self.low)
        return 100 * (value - self.low) / (self.high - self.low)
