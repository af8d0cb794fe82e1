"""Exact replay of a schedule: when every action starts and ends, given what each costs."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from heddle.errors import HeddleError
from heddle.schedule.actions import Kind, Schedule
from heddle.schedule.placement import ChunkPlacement
from heddle.schedule.verify import verify
from heddle.trace.trace import COMPUTE, Span, Trace

Cost: TypeAlias = float | Sequence[float]
Noise: TypeAlias = list[list[float]]  # a factor for each action of each rank

_NEVER = -1.0  # the end of an action that has not run yet; all real times are >= 0


def replay(
    schedule: Schedule,
    forward: Cost = 1.0,
    backward: Cost = 2.0,
    transfer: Cost = 0.0,
    slowness: Cost = 1.0,
    noise: Noise | None = None,
    weight: Cost | None = None,
) -> Trace:
    """Run the schedule on a clock.

    Args:
        schedule: the order of work of each rank; one that `verify` accepts, as all that `build` makes are.
        forward: seconds of one microbatch through a chunk: one number, or one for each chunk in model order.
        backward: the same for the way back.
        transfer: seconds between the end of an action and the arrival of its message on another rank: one
            number, or one for each pair of neighboring chunks (chunk 0 to 1 first), used in both directions.
            A message delays its receiver only: sends are asynchronous, and messages do not queue on a link.
        slowness: how many times as long a rank takes for everything: one number, or one for each rank.
        noise: how many times as long each action of each rank takes, from `jitter`.
        weight: seconds of `backward` that make weight gradients, where it is taken in two; half of it if not said.
    """
    durations, between = _durations(schedule, (forward, backward, weight), transfer, slowness, noise)
    starts = _start_times(schedule, durations, between)
    return Clocked(schedule, starts, durations).trace()


def clocked(schedule: Schedule, forward: Cost = 1.0, backward: Cost = 2.0) -> Clocked:
    """The schedule on a clock, with free messages, as far as all spans would be too many."""
    durations, between = _durations(schedule, (forward, backward, None), 0.0, 1.0, None)
    return Clocked(schedule, _start_times(schedule, durations, between), durations)


@dataclass(frozen=True)
class Clocked:
    """When each action of each rank starts, and how long it takes."""

    schedule: Schedule
    starts: Sequence[Sequence[float]]
    durations: Sequence[Sequence[float]]

    def trace(self, ranks: Collection[int] | None = None) -> Trace:
        """The spans of some ranks, or of all."""
        names = {kind: kind.value for kind in Kind}  # asking an enum member for its value costs as much as a span
        spans: list[Span] = []
        for rank in range(self.schedule.pipeline) if ranks is None else ranks:
            timed = zip(self.schedule.ranks[rank], self.starts[rank], self.durations[rank], strict=True)
            spans += [
                Span(rank, COMPUTE, names[kind], start, start + seconds, 0, chunk, microbatch)
                for (kind, chunk, microbatch), start, seconds in timed
            ]
        return Trace(self.schedule.pipeline, spans)

    def bubbles(self) -> tuple[float, float]:
        """`Trace.bubble` of all ranks: of one step, and where steps follow each other without a barrier."""
        ends = [began[-1] + seconds[-1] for began, seconds in zip(self.starts, self.durations, strict=True)]
        work = math.fsum(map(math.fsum, self.durations))
        elapsed = max(ends) - min(began[0] for began in self.starts)
        period = max(end - began[0] for end, began in zip(ends, self.starts, strict=True))
        return (len(ends) * elapsed - work) / work, (len(ends) * period - work) / work


def step_time(
    schedule: Schedule,
    forward: Cost = 1.0,
    backward: Cost = 2.0,
    transfer: Cost = 0.0,
    slowness: Cost = 1.0,
    noise: Noise | None = None,
    weight: Cost | None = None,
) -> float:
    """Just the duration of `replay`, for searches that look at many schedules and draw none of them."""
    durations, between = _durations(schedule, (forward, backward, weight), transfer, slowness, noise)
    starts = _start_times(schedule, durations, between)
    # A rank's actions follow one another, so its last one ends last.
    return max(began[-1] + seconds[-1] for began, seconds in zip(starts, durations, strict=True))


def jitter(schedule: Schedule, spread: float, seed: int = 0) -> Noise:
    """Noise for `replay`: log-normal factors with mean 1 and about that relative spread, the same for the same seed."""
    import numpy as np

    if spread < 0:
        raise HeddleError(
            f"spread must be 0 or more, got {spread}.", "It is a fraction of an action's time.", "Use 0.02."
        )
    sigma = float(np.sqrt(np.log1p(spread**2)))
    draws = np.random.default_rng(seed)
    return [draws.lognormal(-(sigma**2) / 2, sigma, len(order)).tolist() for order in schedule.ranks]


def _durations(
    schedule: Schedule,
    passes: tuple[Cost, Cost, Cost | None],
    transfer: Cost,
    slowness: Cost,
    noise: Noise | None,
) -> tuple[list[list[float]], list[float]]:
    """Seconds of each action of each rank, and of each message."""
    chunks = schedule.chunks
    costs = kind_costs(*passes, chunks)
    # With one rank, neighboring chunks hand over in memory: there is no message that could take time.
    between = _per_chunk("transfer", transfer if schedule.pipeline > 1 else 0.0, chunks - 1)
    if schedule.placement is not ChunkPlacement.LOOP:  # nor where two of them are on one rank
        ranks = [schedule.rank_of(chunk) for chunk in range(chunks)]
        between = [0.0 if a == b else seconds for seconds, (a, b) in zip(between, pairwise(ranks), strict=True)]
    factors = _per_rank(slowness, schedule.pipeline)
    durations = []
    for rank, order in enumerate(schedule.ranks):
        chosen = schedule.chunks_of(rank)
        own = [{chunk: costs[kind][chunk] * factors[rank] for chunk in chosen} for kind in Kind]  # shared by all
        durations.append([own[kind.number][chunk] for kind, chunk, _ in order])
    if noise is not None:
        durations = [
            [seconds * factor for seconds, factor in zip(exact, late, strict=True)]
            for exact, late in zip(durations, noise, strict=True)
        ]
    return durations, between


def _start_times(schedule: Schedule, durations: list[list[float]], transfer: list[float]) -> list[array[float]]:
    """An action starts when its rank is free and its input is there: that recurrence, over plain numbers.

    Ranks are swept to and fro, each running until it lacks an input: to and fro because forwards depend on
    the rank before and backwards on the one after. A sweep that moves nothing has met a deadlock.
    """
    chunks, microbatches = schedule.chunks, schedule.microbatches
    # when each microbatch left each chunk, in each direction; a kind's direction is the index, -1 the last
    never = array("d", [_NEVER]) * microbatches
    ends = [[never[:] for _ in range(chunks)] for _ in (0, +1, -1)]
    starts = [array("d") for _ in schedule.ranks]
    clocks = [0.0] * schedule.pipeline
    sweep = list(range(schedule.pipeline))
    while sweep:
        moved = finished = False
        for rank in sweep:
            order, began, clock, seconds = schedule.ranks[rank], starts[rank], clocks[rank], durations[rank]
            first = len(began)
            for index in range(first, len(order)):
                kind, chunk, microbatch = order[index]
                direction = kind.direction
                end, source = ends[direction], chunk - direction
                # that the rank's own forward came before a backward is for verify() to check, not for the clock
                if direction and 0 <= source < chunks:
                    ready = end[source][microbatch]
                    if ready < 0:
                        break
                    ready += transfer[source if source < chunk else chunk]
                    if ready > clock:
                        clock = ready
                began.append(clock)
                clock += seconds[index]
                end[chunk][microbatch] = clock
            else:
                finished = True
            clocks[rank] = clock
            moved = moved or len(began) > first
        if not moved:
            verify(schedule)  # says which rank waits for what
            raise AssertionError("a replay is stuck in a schedule that verifies")
        sweep.reverse()
        if finished:
            sweep = [rank for rank in sweep if len(starts[rank]) < len(schedule.ranks[rank])]
    return starts


def kind_costs(forward: Cost, backward: Cost, weight: Cost | None, chunks: int) -> dict[Kind, list[float]]:
    """Seconds of each kind of action in each chunk: the halves of a backward are as long as the whole."""
    there, whole = _per_chunk("forward", forward, chunks), _per_chunk("backward", backward, chunks)
    late = [seconds / 2 for seconds in whole] if weight is None else _per_chunk("weight gradient", weight, chunks)
    soon = _per_chunk("backward input", [both - one for both, one in zip(whole, late, strict=True)], chunks)
    return {Kind.FORWARD: there, Kind.BACKWARD: whole, Kind.BACKWARD_INPUT: soon, Kind.BACKWARD_WEIGHT: late}


def _per_chunk(what: str, cost: Cost, count: int) -> list[float]:
    costs = [float(cost)] * count if isinstance(cost, int | float) else [float(value) for value in cost]
    if len(costs) != count:
        each = "pair of neighboring chunks" if what == "transfer" else "chunk"
        raise HeddleError(
            f"There are {len(costs)} {what} costs.",
            f"This schedule needs {count}, one for each {each}.",
            "Give a single number if all are equal.",
        )
    if any(not value >= 0 for value in costs):
        raise HeddleError(
            f"{what.capitalize()} costs must be 0 or more, got {min(costs)}.",
            "They are seconds.",
            "Use 0 for work that is free.",
        )
    return costs


def _per_rank(slowness: Cost, ranks: int) -> list[float]:
    factors = [float(slowness)] * ranks if isinstance(slowness, int | float) else [float(value) for value in slowness]
    if len(factors) != ranks or any(not factor > 0 for factor in factors):
        raise HeddleError(
            f"Got {len(factors)} slowness factors, the smallest {min(factors, default=0.0)}.",
            f"This schedule needs {ranks}, one for each rank, all positive.",
            "Give a single number if all ranks are equal.",
        )
    return factors
