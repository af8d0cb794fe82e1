"""Piper: the pipeline with the best throughput, each stage with its own tensor and data degree and memory options.

"Piper: Multidimensional Planner for DNN Parallelization" (Tarnawski, Narayanan, Phanishayee, NeurIPS 2021): stages are
the differences of a chain of up-sets of the layer graph; the slowest stage sets the pace. The published program fills a
table of best times over (up-set, devices, sum of data degrees). Here the question is turned round: for a pace T, what
is the smallest sum of data degrees with which k devices cover an up-set, for every k at once? A smaller sum holds fewer
microbatches in flight and is never worse, so one number per state is enough. T is then found by bisection over the
times that stages can have, which makes the answer exact.
"""

from __future__ import annotations

import copy
import time

import numpy as np

from heddle.errors import divisors
from heddle.graph.dag import Floats
from heddle.graph.deadline import OutOfTime, check
from heddle.graph.ideals import Bools, Ideals, enumerate_ideals
from heddle.planning.piper.cover import Cover, CoverStep, PacedStages
from heddle.planning.piper.result import PiperPlan, PiperStage
from heddle.planning.piper.stages import DegreeTable, Pairs, all_pairs, find_kinds
from heddle.planning.piper.workload import Workload


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
        self.kinds = find_kinds(workload, self.ideals, self.pairs)
        self.tables: list[DegreeTable] = []
        for options in workload.degrees:
            data = [d for d in self.data if options.data is None or d in options.data]
            whole = (options.parameters == options.parameters[:, :1]) | ~np.isfinite(options.seconds)
            for group in [data] * bool(data) if whole.all() else [[d] for d in data]:
                self.tables.append(DegreeTable(self.ideals, self.kinds.pairs, workload, options, group, deadline))
        self.levels = np.searchsorted(self.ideals.sizes[self.pairs.outer], np.arange(1, workload.graph.nodes + 2))
        self._index()

    def _index(self) -> None:
        self.tensors = sorted({table.tensor for table in self.tables})
        self.row_of = [self.tensors.index(table.tensor) for table in self.tables]
        self.column_of = {d: column for column, d in enumerate(self.data)}
        # At least so many device-seconds: every layer at its cheapest. What is left must fit what devices are left.
        cheapest = np.min([table.options.cheapest for table in self.tables], axis=0)
        self.work = self.ideals.total(cheapest)

    def only(self, tables: list[DegreeTable], data: int) -> Piper:
        """The same search with these tables and this data degree in all stages; knapsacks are shared."""
        fewer = copy.copy(self)
        allowed = np.ones(len(self.kinds), dtype=np.bool_)
        if self.workload.core is not None:
            core = self.ideals.total(self.workload.core.astype(np.float64))
            allowed = core[self.kinds.pairs.outer] > core[self.kinds.pairs.inner]
        fewer.data, fewer.tables = [data], [table.only(data, allowed) for table in tables]
        fewer._index()
        return fewer

    # One pace.

    def cover(self, pace: float, devices: int) -> Cover:
        """The smallest sums of data degrees for every up-set and number of devices, no stage slower than the pace."""
        check(self.deadline)
        slack = 1 - 1e-9
        fewest = np.ceil(self.work / pace * slack).astype(np.int64)
        most = devices - np.ceil((self.work[-1] - self.work) / pace * slack).astype(np.int64)
        room = np.full((len(self.kinds), len(self.tensors), len(self.data)), -1, dtype=np.int32)
        inner, outer = self.pairs.inner, self.pairs.outer
        low, high = fewest[outer] - most[inner], most[outer] - fewest[inner]  # devices that a stage may have
        least, largest = self.kinds.reduce(np.minimum, low), self.kinds.reduce(np.maximum, high)
        for table, row in zip(self.tables, self.row_of, strict=True):
            data = np.array([d for d in table.data if d * table.tensor <= devices], dtype=np.int64)
            budget = pace * data - table.crossing[:, None] - table.sync[:, None] * (data - 1)
            used = data * table.tensor
            useful = (least[:, None] <= used) & (used <= largest[:, None])
            kind, which = np.nonzero(useful & (budget >= table.fast[:, None]))
            in_flight, d = table.in_flight(kind, budget[kind, which]), data[which]
            spare = np.minimum(np.minimum(d * (in_flight - 1), self.workload.microbatches - d), devices)
            column = self.column_of[table.data[0]] + which
            spare = np.where(in_flight > 0, spare, -1)
            room[kind, row, column] = np.maximum(room[kind, row, column], spare)
        stands = np.nonzero(_undominated(room))
        pair, at = self.kinds.spread(stands[0])
        degree = np.array(self.data, dtype=np.int32)[stands[2]]
        size = (degree * np.array(self.tensors, dtype=np.int32)[stands[1]])[at]
        may = np.flatnonzero((low[pair] <= size) & (size <= high[pair]))
        pair, at = pair[may], at[may]
        choices = PacedStages(pair, degree[at], size[may], room[stands][at])
        return Cover(self.pairs, self.levels, len(self.ideals), pace, devices, fewest, most, choices)

    # The search over paces.

    def solve(self, devices: int | None = None, known: PiperPlan | None = None) -> PiperPlan | None:
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
        return PiperPlan(best.value, best.value if optimal else float(low), optimal, best.stages, seconds)

    def _bracket(self, devices: int, known: PiperPlan | None) -> tuple[PiperPlan | None, float]:
        """A plan whose pace is near the best, and a pace that cannot be kept."""
        spare = devices + max(2, devices // 4)
        low, pace = 0.0, 1.2 * self.work[-1] / devices or self.slowest()
        best = known
        for _ in range(80):
            try:
                cover = self.cover(pace, spare)
            except OutOfTime:
                if best is None:
                    raise
                break
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
            if best is None and pace > 1e3 * self.slowest():
                break
        return best, low

    def slowest(self) -> float:
        """A pace that every stage can keep whose fastest options fit."""
        finite = [
            np.where(np.isfinite(table.fast), table.fast + table.crossing + table.sync, 0) for table in self.tables
        ]
        return float(max(values.max() for values in finite)) + 1e-300

    def _paces(self, low: float, high: float) -> Floats:
        """Every time between the two that some stage can have, ascending, the lower end excluded."""
        found = []
        for table in self.tables:
            kinds = np.repeat(np.arange(len(self.kinds)), np.diff(table.start))
            for d in table.data:
                rest = table.crossing + (d - 1) * table.sync
                every = np.concatenate([(table.fast + rest) / d, (table.bounds + rest[kinds]) / d])
                found.append(every[(every > low) & (every < high)])
        paces = np.unique(np.concatenate(found))
        return paces * (1 + 1e-14)  # sums round: a stage must pass at its own pace

    def _quickest(self, step: CoverStep) -> DegreeTable:
        """Of the tables with a stage's degrees the one that is fastest, as far as is known."""
        kind = int(self.kinds.of[step.pair])

        def seconds(table: DegreeTable) -> float:
            return table.lower(kind, step.in_flight) + float(table.crossing[kind])

        return min((t for t in self.tables if t.tensor == step.tensor and step.data in t.data), key=seconds)

    def _finish(self, steps: list[CoverStep], low: float) -> PiperPlan:
        """The plan with exact knapsacks."""
        stages = []
        for step in steps:
            table, kind = self._quickest(step), int(self.kinds.of[step.pair])
            options = table.options
            layers = self.ideals.difference(int(self.pairs.outer[step.pair]), int(self.pairs.inner[step.pair]))
            seconds, chosen = table.choose(kind, layers, step.in_flight)
            rest = table.crossing[kind] + (step.data - 1) * table.sync[kind]
            memory = sum(
                float(options.stashed[v, o] * step.in_flight + options.fixed[v, o])
                for v, o in zip(layers, chosen, strict=True)
            )
            memory += float(table.peaks[kind])
            stages.append(
                PiperStage(
                    [self.workload.layers[v] for v in layers],
                    step.data,
                    table.tensor,
                    [options.names[v][o] for v, o in zip(layers, chosen, strict=True)],
                    step.in_flight,
                    float((seconds + rest) / step.data),
                    memory,
                    options.how,
                )
            )
        return PiperPlan(float(max(stage.seconds for stage in stages)), low, False, stages, 0.0)


def _undominated(room: np.ndarray) -> Bools:
    """Choices for which no smaller degrees leave as much room for later data degrees."""
    best = np.maximum.accumulate(np.maximum.accumulate(room, axis=1), axis=2)
    stands = room >= 0
    stands[:, 1:] &= room[:, 1:] > best[:, :-1]
    stands[:, :, 1:] &= room[:, :, 1:] > best[:, :, :-1]
    return stands
