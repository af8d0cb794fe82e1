"""Where a step's time went, predicted beside measured, and which stage and kind of work make the difference.

Items add up to the step, predicted and measured, so their differences add up to the difference of the steps. The time
of forwards and backwards is taken apart further, by stage and direction, and these parts add up to that item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from heddle.cost.breakdown import MEASURED, STEP, exchanged
from heddle.format import length_in_words, seconds_in_words, signed_seconds
from heddle.reporting.subject import MeasuredRun, Subject
from heddle.schedule import Kind
from heddle.simulating.simulation import Simulation
from heddle.spec.job import PlannedJob
from heddle.spec.ranks import places
from heddle.trace.lanes import Collective, Lane, Phase
from heddle.trace.trace import COMPUTE, Span, Trace

FORWARDS = {kind for kind in Kind if kind.direction > 0}  # all other computing counts as backward
UNDONE = 0.1  # share of a difference that parts which differ the other way may undo
SMALL = 0.01  # share of the step below which a difference is not worth a word

Intervals = list[tuple[float, float]]
T = TypeVar("T")


@dataclass(frozen=True)
class StageTimes:
    """Seconds of a stage in a step, predicted and measured, as a mean over its ranks."""

    stage: int
    forward: tuple[float, float]
    backward: tuple[float, float]  # with what is recomputed


def words(job: PlannedJob) -> dict[str, str]:
    """The items that a step of a job can have, and what they are called there: only exchanges that its plan makes.

    Measured backwards hold their recomputing, so one item holds both.
    """
    plan, data = job.plan, exchange(job)
    there = {"tensor": plan.tensor > 1, "pipeline": plan.pipeline > 1, "data": bool(data), "recompute": False}
    there |= {"context": plan.context > 1, "expert": plan.expert > 1}
    named = {name: item.explained for name, item in (STEP | MEASURED).items() if there.get(name, True)}
    return named | {"compute": "forward and backward"} | data


def exchange(job: PlannedJob) -> dict[str, str]:
    """What the item `data` of a job is called, if it has one."""
    found = exchanged(job.plan.replicas, job.plan.tied_stages if job.model.tied else 1)
    return {} if found is None else {"data": found}


# Where a plan has no such exchange, what little time is measured for it is part of this.
INSTEAD = {
    **dict.fromkeys(("tensor", "context", "expert", "recompute"), "compute"),
    "pipeline": "bubble",
    "data": "optimizer",
}


def _folded(items: dict[str, float], job: PlannedJob) -> dict[str, float]:
    """Seconds by the names that `words` has, in its order."""
    known = words(job)
    folded = dict.fromkeys(known, 0.0)
    for name, seconds in items.items():
        folded[name if name in known else INSTEAD[name]] += seconds
    return {name: seconds for name, seconds in folded.items() if name in items}


def predicted_items(prediction: Simulation) -> dict[str, float]:
    """Seconds of each item; they add up to the step."""
    return _folded({name: float(value) for name, value in prediction.breakdown._asdict().items()}, prediction.job)


def measured_items(measured: MeasuredRun, job: PlannedJob) -> dict[str, float] | None:
    """Seconds of each item as a mean over ranks; they add up to the traced step. None without a trace.

    Every moment of a rank counts once: as a tensor-parallel collective or an exchange of keys and values that nothing
    runs beside, else as compute, else as the exchange of gradients, the update, or a message; what is left is bubble.
    """
    if measured.trace is None:
        return None
    totals = _partition(measured.trace)
    whole = measured.of_step("seconds")
    if whole is None:
        return _folded(totals, job)
    spare = whole - measured.trace.duration
    if spare >= 0:
        return _folded(totals | {"outside": spare}, job)
    # Ranks begin a step at different moments, some while others are still at the one before: a trace of all of them
    # is longer than the step by that. It is idle time of those that began early, as far as it goes.
    totals["bubble"] = max(0.0, totals["bubble"] + spare)
    scale = whole / sum(totals.values())
    return _folded({name: scale * seconds for name, seconds in totals.items()}, job)


def _waits_for_keys(span: Span) -> bool:
    """Whether attention waits for an exchange; the turns of a ring go on beside it."""
    return span.lane == Lane.CONTEXT and span.name != Collective.TURN


def _partition(trace: Trace) -> dict[str, float]:
    rules: dict[str, Callable[[Span], bool]] = {
        "tensor": lambda span: span.lane == Lane.TENSOR,
        "context": _waits_for_keys,
        "expert": lambda span: span.lane == Lane.EXPERT,
        "compute": lambda span: span.lane == Lane.COMPUTE,
        "data": lambda span: span.lane in (Lane.DATA, Lane.EMBEDDING) or span.name == Phase.GRADIENTS,
        "optimizer": lambda span: span.lane == Lane.OPTIMIZER,
        "pipeline": lambda span: span.lane == Lane.SEND,
    }
    totals = dict.fromkeys(rules, 0.0)
    for spans in _of_rank(trace):
        for name, seconds in _counted_once(spans, rules).items():
            totals[name] += seconds / trace.ranks
    return totals | {"bubble": trace.duration - sum(totals.values())}


def _of_rank(trace: Trace) -> list[list[Span]]:
    spans: list[list[Span]] = [[] for _ in range(trace.ranks)]
    for span in trace.spans:
        spans[span.rank].append(span)
    return spans


def _counted_once(spans: list[Span], rules: Mapping[T, Callable[[Span], bool]]) -> dict[T, float]:
    """Seconds of a rank by rule; a moment counts for the first rule that it falls under."""
    seen: Intervals = []
    counted, found = 0.0, dict[T, float]()
    for name, rule in rules.items():
        seen = _union([*seen, *((span.start, span.end) for span in spans if rule(span))])
        length = sum(end - start for start, end in seen)
        found[name], counted = length - counted, length
    return found


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
    drawn = _by_stage(prediction.trace, range(plan.pipeline))  # one rank stands for a stage
    predicted = [(forward / prediction.steps_drawn, back / prediction.steps_drawn) for forward, back in drawn]
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


def compute_parts(job: PlannedJob, trace: Trace, whole: float) -> dict[tuple[int, str], float]:
    """The item `compute` by stage and direction; they add up to `whole`, which is what the step's items say it is."""
    stages = range(job.plan.pipeline) if trace.ranks == job.plan.pipeline else [at.pipeline for at in places(job.plan)]
    others: dict[str, Callable[[Span], bool]] = {}
    if job.plan.tensor > 1:
        others["tensor"] = lambda span: span.lane == Lane.TENSOR
    if job.plan.context > 1:
        others["context"] = _waits_for_keys
    if job.plan.expert > 1:
        others["expert"] = lambda span: span.lane == Lane.EXPERT
    rules: dict[str, Callable[[Span], bool]] = others | {
        "forwards": lambda span: span.lane == COMPUTE and span.name in FORWARDS,
        "backwards": lambda span: span.lane == COMPUTE,
    }
    parts = {(stage, word): 0.0 for stage in range(job.plan.pipeline) for word in ("forwards", "backwards")}
    for rank, spans in enumerate(_of_rank(trace)):
        for word, seconds in _counted_once(spans, rules).items():
            if word not in others:
                parts[stages[rank], word] += seconds
    total = sum(parts.values())
    return {part: seconds * (whole / total if total else 0.0) for part, seconds in parts.items()}


def in_words(subject: Subject) -> Iterator[str]:
    """What differs, how much of the difference each item is, and on which stage."""
    prediction, measured = subject.prediction, subject.measured
    if prediction is None or measured is None:
        return
    there, here = predicted_items(prediction), measured_items(measured, subject.job)
    if here is None or measured.trace is None:
        seconds = measured.step_seconds
        if seconds is not None:
            yield f"{_compared(prediction.step_seconds, seconds)} Only a trace can say where."
        return
    took, expected = sum(here.values()), sum(there.values())
    yield f"Step {measured.traced}: " + _compared(expected, took)
    called = words(subject.job)
    changes = {name: here.get(name, 0.0) - there.get(name, 0.0) for name in called}
    telling = [name for name in changes if abs(changes[name]) >= SMALL * expected]
    for name in sorted(telling, key=lambda name: -abs(changes[name])):
        where = _where(prediction, measured.trace, there[name], here[name]) if name == "compute" else ""
        yield f"{signed_seconds(changes[name])}: {called[name]}{where}."
    if not telling:
        yield f"No item differs by more than {SMALL:.0%} of the step."


def _compared(expected: float, took: float) -> str:
    """How far apart they are."""
    shown = f"{seconds_in_words(took)} measured, {seconds_in_words(expected)} predicted"
    if abs(took / expected - 1) < SMALL:
        return f"{shown}: the same within {SMALL:.0%}."
    return f"{shown}: {length_in_words(took, expected)}."


def _where(prediction: Simulation, trace: Trace, expected: float, took: float) -> str:
    """Which part of `compute` makes most of its difference; nothing where parts differ both ways."""
    job = prediction.job
    before, after = compute_parts(job, prediction.trace, expected), compute_parts(job, trace, took)
    found = main_part({part: after[part] - before[part] for part in before})
    if found is None:
        return ""
    (stage, word), share = found
    longer = f", {after[stage, word] / before[stage, word] - 1:+.0%}" if before[stage, word] > 0 else ""
    return f", {share:.0%} of it in the {word} of stage {stage}{longer}"


def main_part(changes: Mapping[T, float]) -> tuple[T, float] | None:
    """The largest part of a change, and its share of it, which is at most all of it.

    None where other parts undo so much of it that a share says nothing, and where no part stands out.
    """
    whole = sum(changes.values())
    part = max(changes, key=lambda each: abs(changes[each]))
    against = sum(abs(change) for change in changes.values() if change * whole < 0)
    if not whole or changes[part] * whole <= 0 or against > UNDONE * abs(whole):
        return None
    share = min(1.0, changes[part] / whole)
    return (part, share) if share >= 1.5 / len(changes) else None
