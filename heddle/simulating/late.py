"""Pipelines that do not drain, for their updates come late or are checked late: what a step takes in the long run, and
holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from heddle.cost.memory import MASTER, MOMENTS, MemoryBreakdown
from heddle.errors import HeddleError
from heddle.schedule import Schedule
from heddle.schedule.late import LateSchedule, UpdateRule
from heddle.simulating.replay import replay, step_time
from heddle.spec.job import PlannedJob
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.trace.trace import Trace

MOST = 4_000_000  # actions that are simulated: some twenty seconds


def late_schedule(job: PlannedJob) -> LateSchedule | None:
    """The endless order of a plan's work; None where every step ends with its update."""
    plan = job.plan
    if plan.late is None:
        return None
    return LateSchedule(plan.late, plan.pipeline, plan.microbatches(job.train.global_batch))


def enough_steps(late: LateSchedule) -> int:
    """Steps after which every one is like the one before; refuses orders of more actions than can be simulated."""
    if (actions := _simulated(late)) > MOST:
        counts = range(2, late.pipeline)
        most = bisect_right(counts, MOST, key=lambda p: _simulated(LateSchedule(late.rule, p, late.microbatches)))
        raise HeddleError(
            f"A pipeline of {late.pipeline} with {late.microbatches} microbatches takes {actions:,} actions.",
            f"One that never drains is simulated until its steps are alike, with at most {MOST:,} actions.",
            f"Use pipeline = {counts[most - 1]}." if most else "Use fewer microbatches.",
        )
    return _steps(late)


def _steps(late: LateSchedule) -> int:
    return 2 * max(late.delays) + 2


def _simulated(late: LateSchedule) -> int:
    """Forwards and backwards of twice as many steps: what comes after the first half is one step's, so many times."""
    return 4 * _steps(late) * late.microbatches * late.chunks


def steady_seconds(late: LateSchedule, duration: Callable[[Schedule], float]) -> float:
    """What one more step takes, once the pipeline is full."""
    steps = enough_steps(late)
    once, twice = (duration(late.unrolled(count)) for count in (steps, 2 * steps))
    return (twice - once) / steps


def pipeline_seconds(
    job: PlannedJob, schedule: Schedule, forward: list[float], backward: list[float], weight: list[float]
) -> float:
    """Seconds of a pipeline whose ranks each have a device for themselves, in the long run."""
    late = late_schedule(job)
    if late is not None:
        return steady_seconds(late, lambda each: step_time(each, forward, backward, weight=weight))
    if job.plan.check_step == "after":
        return step_seconds(job.plan, replay(schedule, forward, backward, weight=weight))
    return step_time(schedule, forward, backward, weight=weight)


def with_replays(rule: UpdateRule, forward: Sequence[float], backward: Sequence[float]) -> list[float]:
    """Seconds of each chunk's backward, the forward that it repeats included."""
    again = [rule.replays and rule.delay(chunk, len(forward)) > 0 for chunk in range(len(forward))]
    return [back + on * repeats for on, back, repeats in zip(forward, backward, again, strict=True)]


def weight_versions(late: LateSchedule, chunk: int) -> int:
    """Copies of a chunk's weights beside those that updates are written to: one for each step that meets its own."""
    delay = late.delays[chunk]
    return 0 if late.rule.replays or not delay else delay + 1


def with_versions(
    breakdowns: Sequence[MemoryBreakdown], late: LateSchedule, model: ModelSpec, plan: Plan
) -> tuple[MemoryBreakdown, ...]:
    """What each stage holds, its old weights included."""
    found = []
    for rank, breakdown in enumerate(breakdowns):
        own = {chunk: _parameters(model, plan, chunk) for chunk in plan.chunks_of(rank)}
        copies = sum(weight_versions(late, chunk) * size for chunk, size in own.items()) / sum(own.values())
        more = copies * breakdown.weights
        slack = breakdown.slack * (breakdown.total + more) / breakdown.total
        found.append(breakdown._replace(weights=breakdown.weights + more, slack=slack))
    return tuple(found)


def _parameters(model: ModelSpec, plan: Plan, chunk: int) -> int:
    """Of a chunk; only how chunks of one rank relate matters."""
    layers = sum(model.layer(layer).parameters for layer in plan.layers_of(chunk, model.layers))
    ends = (chunk == 0) + (chunk == plan.chunks - 1 and not model.tied)
    return layers + ends * model.vocab * model.hidden


def step_seconds(plan: Plan, trace: Trace) -> float:
    """Of a pipeline's step that is followed by others: all of it, or the longest that a stage has work in.

    Where steps follow each other without a barrier, a late start is that of every step, and costs nothing.
    """
    return trace.period if plan.check_step == "after" else trace.duration


def with_undo(breakdowns: Sequence[MemoryBreakdown], plan: Plan, element: int) -> tuple[MemoryBreakdown, ...]:
    """What each stage holds, with what its update can be undone from: masters and moments once more."""
    if plan.check_step != "after":
        return tuple(breakdowns)
    share = (MASTER + MOMENTS) / (MOMENTS + (MASTER if element < 4 else 0))  # of what the optimizer has
    found = []
    for breakdown in breakdowns:
        more = share * breakdown.optimizer
        slack = breakdown.slack * (breakdown.total + more) / breakdown.total
        found.append(breakdown._replace(optimizer=breakdown.optimizer + more, slack=slack))
    return tuple(found)
