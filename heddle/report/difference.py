"""Where a step's time went, predicted beside measured, and which stage and kind of work make the difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from heddle.cost.breakdown import MEASURED, STEP
from heddle.format import seconds_in_words, signed_seconds
from heddle.report.subject import MeasuredRun, Subject
from heddle.schedule import Kind
from heddle.simulate.simulation import Simulation
from heddle.spec.ranks import places
from heddle.trace.lanes import Lane, Phase
from heddle.trace.trace import COMPUTE, Span, Trace

# MeasuredRun backwards hold their recomputing, so one item holds both.
WORDS = {name: item.explained for name, item in (STEP | MEASURED).items() if name != "recompute"} | {
    "compute": "forward and backward"
}
FORWARDS = {kind for kind in Kind if kind.direction > 0}  # all other computing counts as backward
SMALL = 0.01  # share of the step below which a difference is not worth a word

Intervals = list[tuple[float, float]]


@dataclass(frozen=True)
class StageTimes:
    """Seconds of a stage in a step, predicted and measured, as a mean over its ranks."""

    stage: int
    forward: tuple[float, float]
    backward: tuple[float, float]  # with what is recomputed


def predicted_items(prediction: Simulation) -> dict[str, float]:
    """Seconds of each item; they add up to the step."""
    seconds = {name: float(value) for name, value in prediction.breakdown._asdict().items()}
    return {"compute": seconds["compute"] + seconds["recompute"]} | {
        name: seconds[name] for name in WORDS if name in seconds and name != "compute"
    }


def measured_items(measured: MeasuredRun) -> dict[str, float] | None:
    """Seconds of each item as a mean over ranks; they add up to the traced step. None without a trace.

    Every moment of a rank counts once: as a tensor-parallel collective, else as compute, else as the exchange of
    gradients, the update, or a message; what is left is bubble.
    """
    if measured.trace is None:
        return None
    totals = _partition(measured.trace)
    whole = measured.of_step("seconds")
    if whole is not None:
        totals["outside"] = max(0.0, whole - measured.trace.duration)
    return totals


def _partition(trace: Trace) -> dict[str, float]:
    rules: dict[str, Callable[[Span], bool]] = {
        "tensor": lambda span: span.lane == Lane.TENSOR,
        "compute": lambda span: span.lane == Lane.COMPUTE,
        "data": lambda span: span.lane in (Lane.DATA, Lane.EMBEDDING) or span.name == Phase.GRADIENTS,
        "optimizer": lambda span: span.lane == Lane.OPTIMIZER,
        "pipeline": lambda span: span.lane == Lane.SEND,
    }
    of_rank: list[list[Span]] = [[] for _ in range(trace.ranks)]
    for span in trace.spans:
        of_rank[span.rank].append(span)
    totals = dict.fromkeys(rules, 0.0)
    for spans in of_rank:
        seen: Intervals = []
        counted = 0.0
        for name, rule in rules.items():
            seen = _union([*seen, *((span.start, span.end) for span in spans if rule(span))])
            length = sum(end - start for start, end in seen)
            totals[name] += (length - counted) / trace.ranks
            counted = length
    return totals | {"bubble": trace.duration - sum(totals.values())}


def _union(intervals: Intervals) -> Intervals:
    merged: Intervals = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def stage_times(prediction: Simulation, trace: Trace) -> list[StageTimes]:
    """What the forwards and backwards of each stage take in a step."""
    plan = prediction.plan
    predicted = _by_stage(prediction.trace, range(plan.pipeline))  # one rank stands for a stage
    measured = _by_stage(trace, [place.pipeline for place in places(plan)])
    return [
        StageTimes(stage, (there[0], here[0]), (there[1], here[1]))
        for stage, (there, here) in enumerate(zip(predicted, measured, strict=True))
    ]


def _by_stage(trace: Trace, stage_of: Sequence[int]) -> list[tuple[float, float]]:
    """Forward's and backward's seconds of each stage, given the stage of each rank."""
    stages = max(stage_of) + 1
    ranks = len(stage_of) // stages
    sums = [[0.0, 0.0] for _ in range(stages)]
    for span in trace.spans:
        if span.lane == COMPUTE:
            sums[stage_of[span.rank]][span.name not in FORWARDS] += (span.end - span.start) / ranks
    return [(forward, backward) for forward, backward in sums]


def in_words(subject: Subject) -> Iterator[str]:
    """What differs, how much of the difference each item is, and on which stage."""
    prediction, measured = subject.prediction, subject.measured
    if prediction is None or measured is None:
        return
    there, here = predicted_items(prediction), measured_items(measured)
    if here is None or measured.trace is None:
        seconds = measured.step_seconds
        if seconds is not None:
            yield f"{_compared(prediction.step_seconds, seconds)} Only a trace can say where."
        return
    took, expected = sum(here.values()), sum(there.values())
    yield f"Step {measured.traced}: " + _compared(expected, took)
    changes = {name: here.get(name, 0.0) - there.get(name, 0.0) for name in WORDS}
    telling = [name for name in changes if abs(changes[name]) >= SMALL * expected]
    for name in sorted(telling, key=lambda name: -abs(changes[name])):
        where = _where(prediction, measured.trace) if name == "compute" else ""
        yield f"{signed_seconds(changes[name])}: {WORDS[name]}{where}."
    if not telling:
        yield f"No item differs by more than {SMALL:.0%} of the step."


def _compared(expected: float, took: float) -> str:
    """How far apart they are."""
    shown = f"{seconds_in_words(took)} measured, {seconds_in_words(expected)} predicted"
    difference = took / expected - 1
    if abs(difference) < SMALL:
        return f"{shown}: the same within {SMALL:.0%}."
    return f"{shown}: {abs(difference):.0%} {'longer' if difference > 0 else 'shorter'}."


def _where(prediction: Simulation, trace: Trace) -> str:
    """The stage and direction that differ most."""
    stages = stage_times(prediction, trace)
    found = [
        (measured - predicted, predicted, stage.stage, word)
        for stage in stages
        for word, (predicted, measured) in (("forwards", stage.forward), ("backwards", stage.backward))
    ]
    change, predicted, stage, word = max(found, key=lambda item: abs(item[0]))
    share = f", {change / predicted:+.0%}" if predicted > 0 else ""
    return f", most of it in the {word} of stage {stage} ({signed_seconds(change)}{share})"
