"""Memory in the report: what stages hold over a step, predicted and measured; what layers do; what a GiB is worth."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from heddle.format import GIB, memory_unit, seconds_in_words
from heddle.planning.layer_memory.explain import price_of_memory, strips
from heddle.reporting import html as text
from heddle.reporting.subject import Subject
from heddle.simulating.memory_curve import Curve
from heddle.simulating.simulation import Simulation
from heddle.spec.ranks import coordinates
from heddle.trace.trace import COMPUTE, Trace

STAGES = 8  # that are drawn at most: the first ones and the last
WIDE, TALL = 640, 90
BUDGETS = 8
# Beyond these prices are not looked for, so that a page is made in seconds: stages × layers, and layers × (how many of
# them differ)². Each price is a choice for every layer of every stage, and layers that differ choose apart.
LARGE = 1 << 14
DIFFERENT = 1 << 9


def curves(subject: Subject) -> str:
    """What microbatches leave on each stage over the step: predicted, and over it what was measured."""
    prediction = subject.prediction
    if prediction is None:
        return ""
    measured = _measured(subject)
    always = [breakdown.weights + breakdown.gradients + breakdown.optimizer for breakdown in prediction.memory]
    expected = [
        [(second, held - float(base)) for second, held in curve]
        for curve, base in zip(prediction.memory_curves, always, strict=True)
    ]
    stages: Sequence[int] = range(len(expected))
    if len(stages) > STAGES:
        stages = sorted({*range(STAGES - 1), len(expected) - 1})
    figures = "".join(_figure(stage, expected[stage], measured.get(stage)) for stage in stages)
    over = "; the line is measured, at the end of each action of step 2" if measured else ""
    return text.details("Over the step", f"<p>What microbatches keep on one device of each stage{over}.</p>{figures}")


def _measured(subject: Subject) -> dict[int, Curve]:
    """Of the first rank of each stage, where the run was watched."""
    trace = subject.measured.watched if subject.measured is not None else None
    if trace is None:
        return {}
    plan = subject.job.plan
    first: dict[int, int] = {}
    for rank in range(plan.world):
        first.setdefault(coordinates(plan, rank).pipeline, rank)
    return {stage: curve for stage, rank in first.items() if (curve := measured_curve(trace, rank))}


def measured_curve(trace: Trace, rank: int) -> Curve:
    """Bytes that lived at the end of each action, from when the step began."""
    spans = [span for span in trace.spans if span.rank == rank and span.lane == COMPUTE]
    if not any(span.bytes for span in spans):
        return []
    began = min(span.start for span in spans)
    return [(0.0, 0.0)] + [(span.end - began, float(span.bytes)) for span in sorted(spans, key=lambda each: each.end)]


def _figure(stage: int, expected: Curve, measured: Curve | None) -> str:
    """Both over the same share of their own step: seconds differ, and are compared elsewhere."""
    most = max([held for _, held in expected] + [held for _, held in measured or []]) or 1.0
    unit, size = memory_unit(most)
    area = _path(expected, most, steps=True)
    line = f'<path d="{_path(measured, most, steps=True)}" fill="none" stroke="currentColor"/>' if measured else ""
    peaks = f"predicted {text.gib(max(held for _, held in expected) / size)}"
    if measured:
        peaks += f", measured {text.gib(max(held for _, held in measured) / size)}"
    words = f"stage {stage}, at most {peaks} {unit}"
    return (
        f'<figure><figcaption>{words}</figcaption><svg viewBox="0 0 {WIDE} {TALL}" role="img" '
        f'aria-label="memory of {words}" preserveAspectRatio="none" style="width:100%;height:{TALL}px">'
        f'<path d="{area}V{TALL}H0Z" fill="#7aa6d8" fill-opacity="0.5"/>{line}</svg></figure>'
    )


def _path(curve: Sequence[tuple[float, float]], most: float, steps: bool) -> str:
    end = max(second for second, _ in curve) or 1.0
    points = [(WIDE * second / end, TALL * (1 - 0.95 * max(held, 0.0) / most)) for second, held in curve]
    words = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for x, y in points[1:]:
        words.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}")
    return "".join(words)


def layers(prediction: Simulation) -> str:
    """What each layer does, stage by stage, where they differ."""
    if not prediction.plan.by_layer:
        return ""
    return f"<h3>What each layer does</h3><pre>{escape(chr(10).join(strips(prediction)))}</pre>"


def prices(subject: Subject) -> str:
    """Seconds per step over the memory of a device, for this split: what more would buy, and the least that fits."""
    prediction = subject.prediction
    model = subject.job.model
    if prediction is None or prediction.plan.pipeline * model.layers > LARGE:
        return ""
    if model.layers * len(model.shapes) ** 2 > DIFFERENT:
        kinds = f" of {len(model.shapes)} kinds" * (len(model.shapes) > 1)
        return f"<p>What memory is worth is not looked for: {model.layers:,} layers{kinds} would take minutes.</p>"
    if prediction.plan.update != "synchronous":
        return ""
    found = price_of_memory(prediction, BUDGETS)
    if len(found) < 2:
        return ""
    least, (unit, bytes_each) = found[0], memory_unit(found[-1].gib * GIB)
    size = bytes_each / GIB  # of the unit, in GiB
    rows = []
    for here, before in zip(found, [None, *found], strict=False):
        saved = "–" if before is None else seconds_in_words(before.seconds - here.seconds)
        rows.append((text.gib(here.gib / size), text.seconds(here.seconds), saved))
    most = max(point.seconds for point in found)
    wide = found[-1].gib - least.gib or 1.0
    curve = [((point.gib - least.gib) / wide, point.seconds) for point in found]
    drawn = (
        f'<svg viewBox="0 0 {WIDE} {TALL}" role="img" aria-label="seconds per step over {unit} per device" '
        f'preserveAspectRatio="none" style="width:100%;height:{TALL}px">'
        f'<path d="{_path(curve, most, steps=False)}" fill="none" stroke="currentColor"/></svg>'
    )
    # the seconds of a GiB would be extrapolated where the whole range is a small part of one
    head = [f"{unit} per device", "a step", "saved against the row above"]
    words = f"With this split, the least memory that fits is {text.gib(least.gib / size)} {unit} per device."
    return text.details("What memory is worth", f"<p>{words}</p>{drawn}{text.table(head, rows)}")
