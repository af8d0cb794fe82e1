"""Piper: the pipeline with the best throughput, each stage with its own tensor and data degree and memory options.

"Piper: Multidimensional Planner for DNN Parallelization" (Tarnawski, Narayanan, Phanishayee, NeurIPS 2021): stages are
the differences of a chain of up-sets of the layer graph; the slowest stage sets the pace. The published program fills a
table of best times over (up-set, devices, sum of data degrees). Here the question is turned round: for a pace T, what
is the smallest sum of data degrees with which k devices cover an up-set, for every k at once? A smaller sum holds fewer
microbatches in flight and is never worse, so one number a state is enough. T is then found by bisection over the times
that stages can have, which makes the answer exact.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heddle.errors import divisors
from heddle.graph.dag import Floats, Ints
from heddle.graph.ideals import Ideals, TooManyIdeals, chain, enumerate_ideals, linear_extension
from heddle.plan.piper_stages import Bounds, DegreeTable, OutOfTime, Pairs, all_pairs, check, near
from heddle.plan.piper_workload import Workload

FEW_IDEALS = 2_000  # so many are taken as they are, more are first looked at along one line
MOST_IDEALS = 100_000
FAR = np.iinfo(np.int32).max // 4  # a sum of data degrees that nobody reaches


@dataclass(frozen=True)
class Stage:
    """Layers that run together on data × tensor devices."""

    layers: list[Any]  # ids
    data: int
    tensor: int
    options: list[str]  # of each layer
    in_flight: int
    seconds: float  # a microbatch of the pipeline
    memory: float  # bytes a device


@dataclass(frozen=True)
class Pipeline:
    """Piper's answer: stages in model order."""

    value: float  # seconds a microbatch, of the slowest stage
    lower_bound: float
    optimal: bool
    stages: list[Stage]
    seconds: float  # spent searching
    note: str = ""

    @property
    def devices(self) -> int:
        return sum(stage.data * stage.tensor for stage in self.stages)


@dataclass(frozen=True)
class Step:
    """A stage of a plan on its way: where it stands in the tables."""

    pair: int
    table: int
    data: int
    in_flight: int


class Piper:
    """The tables for a workload, and the search for any number of devices up to the workload's."""

    def __init__(
        self,
        workload: Workload,
        ideals: Ideals | None = None,
        pairs: Pairs | None = None,
        deadline: float = np.inf,
    ) -> None:
        self.workload, self.deadline = workload, deadline
        self.ideals = ideals or enumerate_ideals(workload.graph.reverse)
        self.pairs = pairs or all_pairs(self.ideals)
        self.data = [d for d in divisors(workload.microbatches) if d <= workload.devices]
        self.tables: list[DegreeTable] = []
        for options in workload.degrees:
            whole = (options.parameters == options.parameters[:, :1]) | ~np.isfinite(options.seconds)
            for group in [self.data] if whole.all() else [[d] for d in self.data]:
                self.tables.append(DegreeTable(self.ideals, self.pairs, workload, options, group, deadline))
        tensors = sorted({table.tensor for table in self.tables})
        self.row_of = [tensors.index(table.tensor) for table in self.tables]
        self.column_of = {d: column for column, d in enumerate(self.data)}
        # At least so many device-seconds: every layer at its cheapest. What is left must fit what devices are left.
        cheapest = np.min([options.tensor * options.seconds.min(axis=1) for options in workload.degrees], axis=0)
        self.work = self.ideals.total(cheapest)
        self.levels = np.searchsorted(self.ideals.sizes[self.pairs.outer], np.arange(1, workload.graph.nodes + 2))

    # One pace.

    def cover(self, pace: float, devices: int) -> Cover:
        """The smallest sums of data degrees for every up-set and number of devices, no stage slower than the pace."""
        check(self.deadline)
        slack = 1 - 1e-9
        fewest = np.ceil(self.work / pace * slack).astype(np.int64)
        most = devices - np.ceil((self.work[-1] - self.work) / pace * slack).astype(np.int64)
        room = np.full((len(self.pairs), max(self.row_of) + 1, len(self.data)), -1, dtype=np.int32)
        inner, outer = self.pairs.inner, self.pairs.outer
        low, high = fewest[outer] - most[inner], most[outer] - fewest[inner]
        for table, row in zip(self.tables, self.row_of, strict=True):
            data = np.array([d for d in table.data if d * table.tensor <= devices], dtype=np.int64)
            budget = pace * data - table.crossing[:, None] - table.sync[:, None] * (data - 1)
            used = data * table.tensor
            useful = (low[:, None] <= used) & (used <= high[:, None])
            stage, which = np.nonzero(useful & (budget >= table.fast[:, None]))
            in_flight, d = table.in_flight(stage, budget[stage, which]), data[which]
            spare = np.minimum(np.minimum(d * (in_flight - 1), self.workload.microbatches - d), devices)
            column = self.column_of[table.data[0]] + which
            room[stage, row, column] = np.where(in_flight > 0, spare, -1)
        return Cover(self, pace, devices, fewest, most, *self._undominated(room))

    def _undominated(self, room: np.ndarray) -> tuple[Ints, Ints, Ints, Ints]:
        """Stages for which no smaller degrees leave as much room for later data degrees."""
        best = np.maximum.accumulate(np.maximum.accumulate(room, axis=1), axis=2)
        beaten = np.zeros(room.shape, dtype=np.bool_)
        beaten[:, 1:] |= room[:, 1:] <= best[:, :-1]
        beaten[:, :, 1:] |= room[:, :, 1:] <= best[:, :, :-1]
        pair, row, column = np.nonzero((room >= 0) & ~beaten)
        return pair, row, column, room[pair, row, column]

    # The search over paces.

    def solve(self, devices: int | None = None, known: Pipeline | None = None) -> Pipeline | None:
        """The best pipeline for so many devices, at least as good as a known one; None where nothing fits.

        Raises:
            OutOfTime: the deadline came before any plan was known.
        """
        started = time.perf_counter()
        devices = self.workload.devices if devices is None else devices
        best, low = self._bracket(devices, known)
        if best is None:
            return None
        optimal = False
        try:
            while not optimal:
                paces = self._paces(low, best.value)
                first, last = 0, len(paces)  # the best of our plans stands at `last`
                found = None
                while first < last:
                    middle = (first + last) // 2
                    cover = self.cover(paces[middle], devices)
                    if cover.needed is None:
                        first, low = middle + 1, paces[middle]
                    else:
                        last, found = middle, cover
                        rounded = self._finish(cover.steps(), low)
                        best = min(best, rounded, key=lambda plan: plan.value)
                        last = min(last, int(np.searchsorted(paces, best.value * (1 - 1e-12))))
                # The bounds allow the pace `found`; exact knapsacks of its stages, made on the way, may not.
                optimal = found is None or bool(best.value <= found.pace * (1 + 1e-12))
        except OutOfTime:
            pass
        seconds = time.perf_counter() - started
        return Pipeline(best.value, best.value if optimal else float(low), optimal, best.stages, seconds)

    def _bracket(self, devices: int, known: Pipeline | None) -> tuple[Pipeline | None, float]:
        """A plan whose pace is near the best, and a pace that cannot be kept."""
        spare = devices + max(2, devices // 4)
        low, pace = 0.0, 1.2 * self.work[-1] / devices
        best = known
        for _ in range(80):
            cover = self.cover(pace, spare)
            if cover.needed is None or cover.needed > devices:
                low = max(low, pace)
                ratio = 1.3 if cover.needed is None else cover.needed / devices * 1.0005
            else:
                found = self._finish(cover.steps(), low)
                best = found if best is None or found.value < best.value else best
                if np.isinf(best.value):
                    best, ratio = None, 1.3
                else:
                    ratio = cover.needed / devices * 0.9995
            if best is not None and best.value <= low * 1.003:
                break
            pace = pace * ratio
            if best is not None and not low < pace < best.value:
                pace = (low * best.value) ** 0.5 if low else best.value / 2
            if best is None and pace > 1e3 * self._slowest():
                break
        return best, low

    def _slowest(self) -> float:
        finite = [
            np.where(np.isfinite(table.fast), table.fast + table.crossing + table.sync, 0) for table in self.tables
        ]
        return float(max(values.max() for values in finite)) + 1e-300

    def _paces(self, low: float, high: float) -> Floats:
        """Every time between the two that some stage can have, ascending, the lower end excluded."""
        found = []
        for table in self.tables:
            stages = np.repeat(np.arange(len(self.pairs)), np.diff(table.start))
            for d in table.data:
                rest = table.crossing + (d - 1) * table.sync
                every = np.concatenate([(table.fast + rest) / d, (table.bounds + rest[stages]) / d])
                found.append(every[(every > low) & (every < high)])
        paces = np.unique(np.concatenate(found))
        return paces * (1 + 1e-14)  # sums round: a stage must pass at its own pace

    def _finish(self, steps: list[Step], low: float) -> Pipeline:
        """The plan with exact knapsacks."""
        stages = []
        for step in steps:
            table = self.tables[step.table]
            seconds, chosen = table.choose(step.pair, step.in_flight)
            layers = self.ideals.difference(int(self.pairs.outer[step.pair]), int(self.pairs.inner[step.pair]))
            options = next(o for o in self.workload.degrees if o.tensor == table.tensor)
            rest = table.crossing[step.pair] + (step.data - 1) * table.sync[step.pair]
            memory = sum(
                float(options.stashed[v, o] * step.in_flight + options.fixed[v, o])
                for v, o in zip(layers, chosen, strict=True)
            )
            stages.append(
                Stage(
                    [self.workload.layers[v] for v in layers],
                    step.data,
                    table.tensor,
                    [options.names[v][o] for v, o in zip(layers, chosen, strict=True)],
                    step.in_flight,
                    float((seconds + rest) / step.data),
                    memory,
                )
            )
        return Pipeline(float(max(stage.seconds for stage in stages)), low, False, stages, 0.0)


def plan_pipelines(
    workload: Workload, counts: Sequence[int] | None = None, time_limit: float = 60.0, most: int = MOST_IDEALS
) -> dict[int, Pipeline | None]:
    """The best pipeline for each number of devices up to the workload's; None where nothing fits.

    The tables of stages are made once. A graph with many up-sets is first solved along one line, which tells which
    stages of the whole graph are worth a look; with more than `most` of them, that is the answer, and it says so.
    """
    deadline = time.perf_counter() + time_limit
    counts = sorted({workload.devices} if counts is None else set(counts))
    line = chain(workload.graph.nodes, linear_extension(workload.graph.reverse))
    try:
        ideals = enumerate_ideals(workload.graph.reverse, most)
    except TooManyIdeals:
        note = f"The graph has more than {most:,} up-sets: only stages along one line of layers were looked at."
        along = Piper(workload, line, deadline=deadline)
        return {count: _unproven(workload, line, along.solve(count), count, note) for count in counts}
    if len(ideals) <= FEW_IDEALS:
        piper = Piper(workload, ideals, deadline=deadline)
        return {count: piper.solve(count) for count in counts}
    answers: dict[int, Pipeline | None] = {}
    for count in counts:
        fewer = workload.replace(devices=count)
        first = Piper(fewer, line).solve(count)
        try:
            known = np.inf if first is None else first.value
            pairs = all_pairs(ideals, deadline) if first is None else near(fewer, ideals, known, deadline)
            answers[count] = Piper(fewer, ideals, pairs, deadline).solve(count, first)
        except OutOfTime:
            if first is None:
                raise
            note = "Time ran out before every stage was seen: the best of those along one line of layers."
            answers[count] = _unproven(fewer, line, first, count, note)
    return answers


def _unproven(workload: Workload, line: Ideals, answer: Pipeline | None, devices: int, note: str) -> Pipeline | None:
    if answer is None:
        return None
    bound = min(answer.value, Bounds(workload, line).pace(devices))
    return dataclasses.replace(answer, lower_bound=bound, optimal=answer.value <= bound, note=note)


class Cover:
    """What a pace needs: for every up-set and number of devices the smallest sum of data degrees."""

    def __init__(
        self,
        piper: Piper,
        pace: float,
        devices: int,
        fewest: Ints,
        most: Ints,
        pair: Ints,
        row: Ints,
        column: Ints,
        room: Ints,
    ) -> None:
        self.piper, self.pace, self.devices = piper, pace, devices
        tensors = np.array(sorted({table.tensor for table in piper.tables}))
        self.pair, self.room, self.row = pair, room, row
        self.data = np.array(piper.data)[column].astype(np.int32)
        self.used = self.data * tensors[row].astype(np.int32)
        # Columns 0 … devices-1 stand for less than no devices, so that k - used needs no care.
        width = 2 * devices + 1
        self.sums = np.full((len(piper.ideals), width), FAR, dtype=np.int32)
        self.sums[0, devices:] = 0
        flat = self.sums.reshape(-1)
        inner, outer = piper.pairs.inner[pair], piper.pairs.outer[pair]
        edges = np.searchsorted(pair, piper.levels)
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if start == end:
                continue
            first = np.flatnonzero(np.diff(outer[start:end], prepend=-1))
            sets = outer[start:end][first]
            low, high = max(0, int(fewest[sets].min())), int(most[sets].max())
            if low > high:
                continue
            at = inner[start:end] * width + devices - self.used[start:end]
            later = flat[at[:, None] + np.arange(low, high + 1)]
            reach = np.where(later <= room[start:end, None], later + self.data[start:end, None], FAR)
            smallest = np.minimum.reduceat(reach, first, axis=0)
            self.sums[sets, devices + low : devices + high + 1] = np.minimum.accumulate(smallest, axis=1)
        fits = np.flatnonzero(self.sums[-1, devices:] < FAR)
        self.needed = int(fits[0]) if len(fits) else None

    def steps(self) -> list[Step]:
        """The stages of a plan that keeps the pace, first stage first."""
        assert self.needed is not None
        pairs, steps = self.piper.pairs, []
        at, k = len(self.piper.ideals) - 1, self.needed
        outer = pairs.outer[self.pair]
        while at:
            total = int(self.sums[at, self.devices + k])
            entries = np.arange(np.searchsorted(outer, at), np.searchsorted(outer, at, side="right"))
            inner = pairs.inner[self.pair[entries]]
            later = self.sums[inner, self.devices + k - self.used[entries]]
            entry = int(entries[(later <= self.room[entries]) & (later + self.data[entries] == total)][0])
            data = int(self.data[entry])
            tensor = int(self.used[entry]) // data
            table = next(n for n, t in enumerate(self.piper.tables) if t.tensor == tensor and data in t.data)
            steps.append(Step(int(self.pair[entry]), table, data, -(-total // data)))
            at, k = int(pairs.inner[self.pair[entry]]), k - int(self.used[entry])
        return steps
