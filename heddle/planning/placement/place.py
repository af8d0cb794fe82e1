"""Device placement: which operator of a graph goes to which device, for the best throughput or latency.

All methods give the same `Placement`, with a lower bound and whether it is optimal. A time limit or Ctrl-C gives the
best so far.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from heddle.errors import HeddleError, nearest
from heddle.format import GIB
from heddle.graph.dag import Dag, Ints
from heddle.graph.deadline import OutOfTime, in_seconds, left
from heddle.graph.ideals import TooManyIdeals, chain, enumerate_ideals, linear_extension
from heddle.planning.placement.bounds import fractional_bound, lower_bound
from heddle.planning.placement.dp import PlacementSplit, best_split
from heddle.planning.placement.heuristics import (
    around_the_heaviest,
    feasible,
    greedy,
    loads_of,
    local_search,
    one_device,
)
from heddle.planning.placement.ip import FoundAssignment, Progress, best_assignment, require_ortools
from heddle.planning.placement.latency import place_for_latency
from heddle.planning.placement.operator_graph import OperatorGraph, PlacementProblem
from heddle.planning.placement.reduce import coarsened, reduced
from heddle.planning.placement.result import Placement, devices_of

METHODS = ("auto", "dp", "dpl", "ip", "greedy", "local", "one")
VARIABLES = 30_000  # of an integer program: one of more is not even written down in seconds
IDEALS = 60_000  # more are left to the line and the integer program


def place(
    graph: OperatorGraph,
    *,
    objective: str = "throughput",
    method: str = "auto",
    contiguous: bool = True,
    devices: int | None = None,
    cpus: int | None = None,
    memory: float | None = None,
    time_limit: float = 60.0,
    ideals: int = IDEALS,
    progress: Progress | None = None,
) -> Placement:
    """Place the operators of a graph.

    Args:
        graph: from `read_graph` or `graph_from`.
        objective: "throughput" (the smallest maximum load) or "latency" (of a single sample).
        method: "dp" (exact over ideals), "dpl" (along one line), "ip" (integer program, not contiguous), "greedy",
            "local", "one", or "auto": what is exact, with the others as a start.
        contiguous: devices form a pipeline. Without it, splits may be better and take longer to find.
        devices: accelerators; like cpus and memory (bytes of each accelerator), the file's number if not given.
        cpus: how many of them.
        memory: bytes of each accelerator.
        time_limit: seconds, after which the best so far is the answer.
        ideals: if the graph has more, "dp" falls back to the line and the integer program's bound.
        progress: called with the best value and the lower bound when they change.
    """
    if method not in METHODS:
        raise HeddleError(
            f"There is no method '{method}'.", "Methods differ in what they promise.", nearest(method, METHODS)
        )
    if not time_limit >= 0:
        raise HeddleError(f"A time limit cannot be {time_limit:g} s.", "It is in seconds.", "Try 60.")
    changes: dict[str, Any] = {"accelerators": devices, "cpus": cpus, "memory": memory}
    graph = dataclasses.replace(graph, **{key: value for key, value in changes.items() if value is not None})
    started = time.perf_counter()
    if objective == "latency":
        return place_for_latency(graph, method, time_limit, progress)
    if objective != "throughput":
        raise HeddleError(
            f"There is no objective '{objective}'.",
            "A placement is optimized for one of two objectives.",
            nearest(objective, ("throughput", "latency")),
        )
    contiguous = contiguous and method not in ("ip", "local")
    search = _Search(graph, started, time_limit, ideals, progress, contiguous)
    return search.run(method)


class _Search:
    def __init__(
        self,
        graph: OperatorGraph,
        started: float,
        time_limit: float,
        ideals: int,
        progress: Progress | None,
        contiguous: bool,
    ) -> None:
        self.graph, self.started, self.deadline = graph, started, started + time_limit
        self.ideals, self.progress = ideals, progress
        whole = graph.problem if contiguous else graph.loose
        self.problem: PlacementProblem = coarsened(whole, contiguous)
        self.coarse = self.problem is not whole
        self.contiguous = contiguous
        self.bound = fractional_bound(whole)
        self.best: Ints | None = None
        self.value = np.inf
        self.notes: list[str] = []
        if self.coarse:
            self.notes.append(
                f"The graph is large: {whole.groups:,} groups of operators were merged along one line into "
                f"{self.problem.groups:,} before the search."
            )

    def run(self, method: str) -> Placement:
        optimal = False
        try:
            if method in ("greedy", "one", "local"):
                self._quick(method)
            elif self.contiguous:
                self._line()
                optimal = method != "dpl" and self._exact()
            else:
                self._from_pipeline(method)
                optimal = method in ("auto", "ip") and self._integer_program()
        except KeyboardInterrupt:
            self.notes.append("Stopped by Ctrl-C: the best so far.")
        if self.best is None:
            raise self._nothing_fits(method)
        return self._placement(method, optimal)

    def _take(self, assignment: Ints | None) -> None:
        if assignment is None or not feasible(self.problem, assignment):
            return
        value = float(loads_of(self.problem, assignment).max())
        if value < self.value:
            self.best, self.value = assignment, value
            if self.progress:
                self.progress(self.value, self.bound)

    def _quick(self, method: str) -> None:
        self._take(one_device(self.problem) if method == "one" else greedy(self.problem))
        if method == "local" and self.best is not None:
            self._take(local_search(self.problem, self.best, self.deadline))

    def _from_pipeline(self, method: str) -> None:
        """Splits of any kind are searched from the best pipeline, if there is one."""
        quick = {"auto": "dp", "ip": "dpl"}.get(method, method)
        rest = left(self.deadline)
        try:
            pipeline = _Search(self.graph, time.perf_counter(), rest / 2, self.ideals, None, contiguous=True)
            pipeline.run(quick)
        except HeddleError:
            return  # what must be contiguous may not fit where other splits do
        assert pipeline.best is not None
        for start in (pipeline.best, greedy(pipeline.problem), one_device(pipeline.problem)):
            if start is None or not feasible(pipeline.problem, start):
                continue
            # Whole groups of the pipeline's problem move first, single ones later: they would be stuck alone.
            moved = local_search(pipeline.problem, start, in_seconds(rest / 16))
            for found in (start, moved):
                spread = np.zeros(self.problem.groups, dtype=np.int64)
                spread[self.problem.group] = found[pipeline.problem.group]
                self._take(spread)

    def _line(self) -> None:
        """DPL: the exact dynamic program on the prefixes of an order of the operators, and of one made from the end."""
        order = self.problem.order
        try:
            for line in (linear_extension(order), linear_extension(order.reverse)[::-1]):
                ideals = chain(self.problem.groups, line)
                found = best_split(self.problem, ideals, self.value * (1 - 1e-9), self.deadline)
                if found is not None:
                    self._take(self._assignment(found))
        except OutOfTime:
            self.notes.append("Time ran out before the first line of operators was split: a quick answer.")
        if self.best is None:
            self._take(greedy(self.problem))
            self._take(one_device(self.problem))

    def _exact(self) -> bool:
        """The exact dynamic program over all ideals, given what the line found; True where it went through."""
        try:
            smaller, group = reduced(self.problem, self.value * (1 - 1e-9), contiguous=True)
            ideals = enumerate_ideals(smaller.order, self.ideals, self.deadline)
            found = best_split(smaller, ideals, self.value * (1 - 1e-9), self.deadline)
        except TooManyIdeals:
            self.notes.append(
                f"The graph has more than {self.ideals:,} ideals: split along one line, bounded by an integer program."
            )
            self._fall_back()
            return False
        except OutOfTime:
            self.notes.append("Time ran out before every split was seen.")
            return False
        if found is not None:
            self._take(self._assignment(found)[group])
        if not self.coarse:
            self.bound = self.value
        return not self.coarse

    def _fall_back(self) -> None:
        """No contiguous split is better than the best of all, so the integer program's bound holds here too."""
        try:
            require_ortools()
        except HeddleError as error:
            self.notes.append(f"{error.what} The bound is a plain one.")
            return
        if self.best is not None and not self.coarse and self._programmable():
            self.bound = max(self.bound, self._bounded(left(self.deadline)).lower_bound)

    def _integer_program(self) -> bool:
        """Splits of any kind: local search from what is known, then the integer program."""
        require_ortools()
        if not self.coarse:
            self.bound = lower_bound(self.problem)
        self._search_nearby()
        if self.best is None or not self._programmable():
            return False
        if self.value <= self.bound * (1 + 1e-9):
            return True
        found = self._bounded(left(self.deadline))
        self._take(found.assignment)
        if self.coarse:
            return False
        self.bound = max(self.bound, min(found.lower_bound, self.value))
        if found.optimal:
            self.bound = self.value
        return found.optimal

    def _programmable(self) -> bool:
        """Whether the integer program has a size that is written down in less than the time that is left."""
        devices = self.problem.accelerators + self.problem.cpus
        fits = devices * (self.problem.groups + len(self.problem.cost)) <= VARIABLES
        if self.coarse or not fits or left(self.deadline) < 0.1:
            self.notes.append("The integer program was skipped: there is not enough time for this size.")
            return False
        return True

    def _search_nearby(self) -> None:
        """Local search with what must stay together merged; a better value merges more, so again."""
        halfway = in_seconds(left(self.deadline) / 4)
        first = greedy(self.problem)
        if first is not None and feasible(self.problem, first):
            self._take(local_search(self.problem, first, halfway))
        before = np.inf
        while self.best is not None and self.value < before * (1 - 1e-9):
            before = self.value
            smaller, group = reduced(self.problem, before, contiguous=False)
            start = np.zeros(smaller.groups, dtype=np.int64)
            start[group] = self.best
            for guess in (start, *around_the_heaviest(smaller, start, until=halfway), greedy(smaller)):
                if guess is not None and feasible(smaller, guess):
                    self._take(local_search(smaller, guess, halfway)[group])

    def _bounded(self, seconds: float) -> FoundAssignment:
        """The integer program on the smaller problem that holds everything better than the best known."""
        assert self.best is not None
        smaller, group = reduced(self.problem, self.value * (1 - 1e-9), contiguous=False)
        start = np.zeros(smaller.groups, dtype=np.int64)
        start[group] = self.best
        found = best_assignment(smaller, self.value, seconds, self.progress, start, self.bound)
        whole = None if found.assignment is None else found.assignment[group]
        return FoundAssignment(self.best if whole is None else whole, min(found.lower_bound, self.value), found.optimal)

    def _assignment(self, split: PlacementSplit) -> Ints:
        assignment = np.empty(sum(len(groups) for _, groups in split.parts), dtype=np.int64)
        accelerator, cpu = 0, self.problem.accelerators
        for is_cpu, groups in split.parts:
            assignment[groups] = cpu if is_cpu else accelerator
            accelerator, cpu = accelerator + (not is_cpu), cpu + is_cpu
        return assignment

    def _placement(self, method: str, optimal: bool) -> Placement:
        assert self.best is not None
        return Placement(
            "throughput",
            method,
            self.value,
            min(self.bound, self.value),
            bool(optimal or self.value <= self.bound * (1 + 1e-9)),
            is_pipeline(self.problem, self.best),
            "pipelines" if self.contiguous else "all",
            time.perf_counter() - self.started,
            devices_of(self.graph, self.problem, self.best),
            tuple(self.notes),
        )

    def _nothing_fits(self, method: str) -> HeddleError:
        total = self.problem.size.sum() / GIB
        return HeddleError(
            f"No placement fits {self.problem.accelerators} accelerators of {self.problem.memory / GIB:.3g} GiB.",
            f"Together the operators need {total:.3g} GiB"
            + (f"; the method was {method}." if method != "auto" else "."),
            "Give more devices, more memory or a CPU.",
        )


def is_pipeline(problem: PlacementProblem, assignment: Ints) -> bool:
    """Can devices be ordered so that no edge of the group order leads back?"""
    tails, heads = assignment[problem.order.tails], assignment[problem.order.heads]
    between = tails != heads
    count = problem.accelerators + problem.cpus
    return not Dag(count, tails[between], heads[between]).cycle()
