"""Pipelines that do not drain, for their updates come late or are checked late: what a step takes in the long run, and
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heddle.cost.memory import MASTER, MOMENTS, MemoryBreakdown
from heddle.schedule import Schedule
from heddle.schedule.delayed import DelayedSchedule, UpdateRule
from heddle.simulate.replay import replay, step_time
from heddle.spec.job import PlannedJob
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.trace.trace import Trace


def delayed_schedule(job: PlannedJob) -> DelayedSchedule | None:
    """The endless order of a plan's work; None where every step ends with its update."""
    plan = job.plan
    if plan.delayed is None:
        return None
    return DelayedSchedule(plan.delayed, plan.pipeline, plan.microbatches(job.train.global_batch))


def enough_steps(delayed: DelayedSchedule) -> int:
    """Steps after which every one is like the one before."""
    return 2 * max(delayed.delays) + 2


def steady_seconds(delayed: DelayedSchedule, duration: Callable[[Schedule], float]) -> float:
    """What one more step takes, once the pipeline is full."""
    steps = enough_steps(delayed)
    once, twice = (duration(delayed.unrolled(count)) for count in (steps, 2 * steps))
    return (twice - once) / steps


def pipeline_seconds(
    job: PlannedJob, schedule: Schedule, forward: list[float], backward: list[float], weight: list[float]
) -> float:
    """Seconds of a pipeline whose ranks each have a device for themselves, in the long run."""
    delayed = delayed_schedule(job)
    if delayed is not None:
        return steady_seconds(delayed, lambda each: step_time(each, forward, backward, weight=weight))
    if job.plan.check_step == "after":
        return step_seconds(job.plan, replay(schedule, forward, backward, weight=weight))
    return step_time(schedule, forward, backward, weight=weight)


def with_replays(rule: UpdateRule, forward: Sequence[float], backward: Sequence[float]) -> list[float]:
    """Seconds of each chunk's backward, the forward that it repeats included."""
    again = [rule.replays and rule.delay(chunk, len(forward)) > 0 for chunk in range(len(forward))]
    return [back + on * repeats for on, back, repeats in zip(forward, backward, again, strict=True)]


def weight_versions(delayed: DelayedSchedule, chunk: int) -> int:
    """Copies of a chunk's weights beside those that updates are written to: one for each step that meets its own."""
    delay = delayed.delays[chunk]
    return 0 if delayed.rule.replays or not delay else delay + 1


def with_versions(
    bills: Sequence[MemoryBreakdown], delayed: DelayedSchedule, model: ModelSpec, plan: Plan
) -> tuple[MemoryBreakdown, ...]:
    """What each stage holds, its old weights included."""
    found = []
    for rank, bill in enumerate(bills):
        own = {chunk: _parameters(model, plan, chunk) for chunk in plan.chunks_of(rank)}
        copies = sum(weight_versions(delayed, chunk) * size for chunk, size in own.items()) / sum(own.values())
        more = copies * bill.weights
        found.append(bill._replace(weights=bill.weights + more, slack=bill.slack * (bill.total + more) / bill.total))
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


def with_undo(bills: Sequence[MemoryBreakdown], plan: Plan, element: int) -> tuple[MemoryBreakdown, ...]:
    """What each stage holds, with what its update can be undone from: masters and moments once more."""
    if plan.check_step != "after":
        return tuple(bills)
    share = (MASTER + MOMENTS) / (MOMENTS + (MASTER if element < 4 else 0))  # of what the optimizer has
    found = []
    for bill in bills:
        more = share * bill.optimizer
        slack = bill.slack * (bill.total + more) / bill.total
        found.append(bill._replace(optimizer=bill.optimizer + more, slack=slack))
    return tuple(found)
