"""Piper's question put to its tables: for which numbers of devices, along a line first or over all up-sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from heddle.graph.deadline import OutOfTime, in_seconds
from heddle.graph.ideals import Ideals, TooManyIdeals, chain, enumerate_ideals, linear_extension
from heddle.planning.piper.bounds import Bounds, near
from heddle.planning.piper.pace import Piper
from heddle.planning.piper.reduce import without_free_layers
from heddle.planning.piper.result import PiperPlan
from heddle.planning.piper.stages import all_pairs
from heddle.planning.piper.uniform import solve_uniform
from heddle.planning.piper.workload import Workload

FEW_IDEALS = 2_000  # so many are taken as they are, more are first looked at along one line
MOST_IDEALS = 100_000
TABLE = 1 << 28  # entries of up-sets by devices: a gibibyte twice over
MOST_LAYERS = 1200  # of a graph in which stages may begin anywhere
BORDERS = 400  # where they may begin in a larger one


def plan_pipelines(
    workload: Workload,
    counts: Sequence[int] | None = None,
    time_limit: float = 60.0,
    most: int = MOST_IDEALS,
    uniform: bool = False,
) -> dict[int, PiperPlan | None]:
    """The best pipeline for each number of devices up to the workload's; None where nothing fits.

    The tables of stages are made once. A graph with many up-sets is first solved along one line, which tells which
    stages of the whole graph are worth a look; with more than `most` of them, that is the answer, and it says so.
    `uniform`: all stages have the same degrees; each answer then has the best without this as `unrestricted`.

    Raises:
        OutOfTime: the time limit came before any plan was known.
    """
    deadline = in_seconds(time_limit)
    counts = sorted({workload.devices} if counts is None else set(counts))
    reduced = without_free_layers(workload)
    answers = _answers(reduced.workload, counts, deadline, most, uniform)
    return {count: reduced.restore(answer) for count, answer in answers.items()}


def _answers(
    workload: Workload, counts: Sequence[int], deadline: float, most: int, uniform: bool
) -> dict[int, PiperPlan | None]:
    line = _line(workload)
    most = min(most, TABLE // workload.devices)
    note = f"The graph has more than {most:,} up-sets: only stages along one line of layers were considered."
    try:
        if len(line) <= workload.graph.nodes:
            note = (
                f"The graph is large: only stages between {len(line):,} places on one line of layers were considered."
            )
            raise TooManyIdeals(most)
        ideals = enumerate_ideals(workload.graph.reverse, most)
    except TooManyIdeals:
        along = Piper(workload, line, deadline=deadline)
        return {count: _unproven(workload, line, _solve(along, count, uniform), count, note) for count in counts}
    if len(ideals) <= max(FEW_IDEALS, len(line)):
        piper = Piper(workload, ideals, deadline=deadline)
        return {count: _solve(piper, count, uniform) for count in counts}
    answers: dict[int, PiperPlan | None] = {}
    for count in counts:
        fewer = workload.replace(devices=count)
        first = _solve(Piper(fewer, line, deadline=deadline), count, uniform)
        try:
            known = np.inf if first is None else first.value
            pairs = all_pairs(ideals, deadline) if first is None else near(fewer, ideals, known, deadline)
            answers[count] = _solve(Piper(fewer, ideals, pairs, deadline), count, uniform, first)
        except OutOfTime:
            if first is None:
                raise
            note = "Time ran out before every stage was seen: the best of those along one line of layers."
            answers[count] = _unproven(fewer, line, first, count, note)
    return answers


def _line(workload: Workload) -> Ideals:
    """Where stages may begin along one line of layers: anywhere, or in a large graph where equal shares of time end."""
    nodes = workload.graph.nodes
    order = linear_extension(workload.graph.reverse)
    if nodes <= MOST_LAYERS:
        return chain(nodes, order)
    cheapest = np.min([options.cheapest for options in workload.degrees], axis=0)
    shares = np.cumsum(np.where(np.isfinite(cheapest), cheapest, 0.0)[order])
    by_time = np.searchsorted(shares, np.linspace(0, shares[-1], BORDERS // 2))
    by_count = np.linspace(0, nodes, BORDERS // 2).astype(np.int64)  # layers without time may hold memory
    return chain(nodes, order, np.unique(np.concatenate([[0, nodes], by_time, by_count])).tolist())


def _solve(piper: Piper, devices: int, uniform: bool, known: PiperPlan | None = None) -> PiperPlan | None:
    if not uniform:
        return piper.solve(devices, known)
    best = solve_uniform(piper, devices, known)
    free = piper.solve(devices, known and known.unrestricted)
    return best and dataclasses.replace(best, unrestricted=free)


def _unproven(workload: Workload, line: Ideals, answer: PiperPlan | None, devices: int, note: str) -> PiperPlan | None:
    if answer is None:
        return None
    bound = min(answer.value, Bounds(workload, line).pace(devices))
    return dataclasses.replace(answer, lower_bound=bound, optimal=answer.value <= bound, note=note)
