"""Strategies chosen once more, by what the first steps of a run took and held: same split, same budget.

What was measured corrects the prediction in three places. Tiers have the speed that they were measured at; all else
takes as many times longer than predicted as the rest of a step did; and the budget shrinks by what stages hold more
than predicted, or grows by what they hold less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from heddle.cost.offload import tier_speed
from heddle.format import GIB, seconds_in_words, size
from heddle.planning.layer_memory.explain import layers_in_words, memory_in_words
from heddle.planning.layer_memory.solve import best_strategies
from heddle.simulating.simulation import Simulation, simulate
from heddle.spec.cluster import Cluster
from heddle.spec.layer_memory import LayerMemory
from heddle.spec.plan import Plan, Predicted

OFF = 0.1  # of what was predicted: by how much a measurement may differ before strategies are chosen once more
GAIN = 0.02  # of a step that other strategies must be worth: changing them takes a checkpoint


@dataclass(frozen=True)
class FirstSteps:
    """What was measured."""

    seconds: float  # of a step
    bytes: tuple[float, ...]  # of the fullest device of each stage, without what an allocator cannot use
    tier_gbs: Mapping[str, float]  # GB/s to and from each tier that was looked at


@dataclass(frozen=True)
class Adapted:
    """What came of it: the plan to go on with, which may be the same, what is expected of it, and why."""

    plan: Plan
    predicted: Predicted
    words: str


def adapted(predicted: Simulation, first: FirstSteps) -> Adapted:
    """The strategies to go on with after the first steps of a job."""
    job, budget, seen = predicted.job, budget_of(predicted), _Seen(predicted, first)
    within = f"within {size(budget)}"

    def stays(why: str) -> Adapted:
        return Adapted(job.plan, job.predicted or predicted.predicted, f"{seen}{why}: the strategies stay.")

    over = max(first.bytes) * (1 + predicted.cluster.efficiency.slack) > budget
    if not over and max(abs(seen.longer - 1), abs(seen.fuller - 1)) <= OFF:
        return stays(f", less than {OFF:.0%} off")
    cluster, pace = seen.corrected(budget)
    found, now = best_strategies(replace(job, cluster=cluster)), simulate(replace(job, cluster=cluster))
    if found is None:
        return stays(f". None are {within} by that")
    changes = list(_changes(job.plan, found.plan, job.model.layers))
    if not changes or (now.fits and found.step_seconds > (1 - GAIN) * now.step_seconds):
        return stays(f". None are faster {within}")
    held = found.worst * budget / (cluster.device.memory_gib * GIB)
    expected = replace(
        found.predicted,
        step_seconds=pace * found.step_seconds,
        tokens_per_second=found.tokens_per_second / pace,
        mfu=found.mfu / pace,
        worst_stage_gib=held / GIB,
        budget_gib=budget / GIB,
    )
    now_expected = f"{seconds_in_words(expected.step_seconds)} per step and {size(held)}"
    return Adapted(found.plan, expected, f"{seen}. {'; '.join(changes)}. Expected from here on: {now_expected}.")


def budget_of(predicted: Simulation) -> float:
    """Bytes of a device that a plan may take: those that it was planned for."""
    stated = predicted.job.predicted
    return min(predicted.limit, (stated.budget_gib or math.inf) * GIB) if stated is not None else predicted.limit


class _Seen:
    """What was measured beside what was predicted."""

    def __init__(self, predicted: Simulation, first: FirstSteps) -> None:
        self.predicted, self.first = predicted, first
        self.expected = [float(breakdown.total - breakdown.slack) for breakdown in predicted.memory]
        self.longer = first.seconds / predicted.step_seconds
        self.fuller = max(now / then for now, then in zip(first.bytes, self.expected, strict=True))

    def __str__(self) -> str:
        stage = max(range(len(self.expected)), key=lambda each: self.first.bytes[each] / self.expected[each])
        held, then = (size(each[stage]) for each in (self.first.bytes, self.expected))
        where = f"stage {stage} holds" if len(self.expected) > 1 else "its tensors hold"
        return (
            f"A step takes {seconds_in_words(self.first.seconds)}, predicted "
            f"{seconds_in_words(self.predicted.step_seconds)}; {where} {held}, predicted {then}"
        )

    def corrected(self, budget: float) -> tuple[Cluster, float]:
        """The cluster as it was seen, by a clock of its own, and how many real seconds pass in one of that clock's.

        By it all but copies takes what was predicted, so only the tiers' speeds change; what is best stays the best.
        """
        predicted, first = self.predicted, self.first
        gbs = {tier: tier_speed(predicted.cluster, tier) / 1e9 for tier in ("host", "disk")} | dict(first.tier_gbs)
        here = simulate(replace(predicted.job, cluster=_with_tiers(predicted.cluster, gbs)))
        moved = float(here.breakdown.offload)
        # a step that took less than its copies alone says that tiers are quicker than they were when looked at
        pace = max(first.seconds / here.step_seconds, (first.seconds - moved) / (here.step_seconds - moved))
        # More than predicted counts as a share of whatever is held, less only as so many bytes: both are careful.
        slack = 1 + predicted.cluster.efficiency.slack
        spare = min(then - now for now, then in zip(first.bytes, self.expected, strict=True)) * slack
        room = budget / self.fuller if self.fuller > 1 else budget + spare
        cluster = _with_tiers(predicted.cluster, {tier: pace * speed for tier, speed in gbs.items()})
        return replace(cluster, device=replace(cluster.device, memory_gib=room / GIB)), pace


def _with_tiers(cluster: Cluster, gbs: Mapping[str, float]) -> Cluster:
    device = cluster.device
    speeds = replace(device, host_gbs=gbs["host"] * device.host_sharing, disk_gbs=gbs["disk"])
    return replace(cluster, device=speeds)


def _changes(before: Plan, after: Plan, layers: int) -> Iterator[str]:
    """Which layers do what they did not do before."""
    moves: dict[tuple[LayerMemory, LayerMemory], list[int]] = {}
    for layer in range(layers):
        was, now = before.memory_of(layer), after.memory_of(layer)
        if was != now:
            moves.setdefault((was, now), []).append(layer)
    for (was, now), some in moves.items():
        old, new = (memory_in_words(each, before.data, every_level=was.zero != now.zero) for each in (was, now))
        yield f"{layers_in_words(some).capitalize()}: {new} (before: {old})"
