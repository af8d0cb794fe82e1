"""The exact integer program: which productions to choose, with CP-SAT, from a greedy start, within a time limit."""

from __future__ import annotations

import random
import time
from collections.abc import Container, Iterable
from typing import Any

from heddle.errors import HeddleError, how_to_install
from heddle.lanes.choose.choice import Solution, cost_of, scalar_choice, used
from heddle.lanes.choose.relaxation import Row, promising
from heddle.lanes.choose.schedule import Cycle, Packing, arrange
from heddle.lanes.packs import Graph, Need

ROUNDS = 30  # of forbidding a cycle and solving again
FIRST = 0.2  # of the time goes to what the relaxed integer program finds promising, …
EXACT = 0.5  # … and this part to the whole integer program; if that is not enough, the rest to neighborhoods
SMALL = 600  # productions that are solved at once
SLOWEST = 12.0  # times the seconds asked for, by the clock: a busy machine gives the same answer, if later


def readers_by_need(graph: Graph, productions: Iterable[int]) -> dict[tuple[int, Need], list[int]]:
    """Productions that need the same and exclude each other: those of one item, or of one store."""
    found: dict[tuple[int, Need], list[int]] = {}
    for n in productions:
        p = graph.productions[n]
        for need in p.needs:
            found.setdefault((p.gives if p.gives >= 0 else -1 - p.members[0], need), []).append(n)
    return found


def solve(
    graph: Graph,
    seconds: float = 10.0,
    hint: list[int] | None = None,
    decided: Iterable[int] = (),
    only: Container[int] | None = None,
) -> Solution:
    """The cheapest choice that can be put in an order, among those that keep what is decided.

    Args:
        graph: everything that could be made.
        seconds: of work, by the solver's own count, so that a busy machine gives the same answer.
        hint: a choice to start from, which can be ordered.
        decided: productions that must be chosen.
        only: productions that may be; all of them if none are named.
    """
    began = time.perf_counter()
    search = _Search(graph, seconds, began, hint)
    whole = _Model(graph, decided, only)
    few = None
    if hint is not None and len(whole.productions) > SMALL:
        few = {*whole.promising(), *hint}
        search.run(_Model(graph, decided, few), seconds * FIRST, whole=False)
    proved = search.run(whole, seconds * (EXACT if hint is not None else 1.0))
    if not proved and hint is not None:
        search.improve(few, only)
    best, packing = search.answer()
    cost = cost_of(graph, best)
    bound = float(cost) if proved else min(search.bound, cost)
    facts = {"variables": len(graph.productions), "status": "optimal" if proved else "limit"}
    return Solution(packing, cost, bound, time.perf_counter() - began, "ilp", facts)


def useful(graph: Graph, decided: Iterable[int] = ()) -> list[int]:
    """Productions that something asks for, directly or not: no others are in any best choice.

    What is only ever taken apart or shuffled must come from an instruction or a load; other ways to make it drop out.
    """
    keep = bytearray(len(graph.productions))
    asked: set[tuple[int, bool]] = {(item, False) for item in graph.required}
    stack = [n for ways in graph.stores.values() for n in ways] + list(decided)
    stack += [n for item in graph.required for n in graph.makers[item]]
    while stack:
        n = stack.pop()
        if not keep[n]:
            keep[n] = 1
            for items, native in graph.productions[n].needs:
                for item in items:
                    if (item, native) not in asked:
                        asked.add((item, native))
                        stack += graph.natives[item] if native else graph.makers[item]
    return [n for n, is_kept in enumerate(keep) if is_kept]


class _Model:
    """The integer program in CP-SAT's words, written as messages: that takes a third of the time of its expressions."""

    def __init__(self, graph: Graph, decided: Iterable[int], only: Container[int] | None = None) -> None:
        self.m = solver_library().CpModel()
        self.proto = proto = self.m.proto
        self.rows: list[Row] = []  # the same for the relaxed integer program
        decided = list(decided)
        self.productions = [n for n in useful(graph, decided) if only is None or n in only]
        self.at = at = {n: k for k, n in enumerate(self.productions)}
        for _ in self.productions:
            proto.variables.add().domain.extend((0, 1))
        for ways in graph.stores.values():
            each = [at[n] for n in ways if n in at]
            proto.constraints.add().exactly_one.literals.extend(each)
            self.rows += [(each, [1] * len(each), 1), (each, [-1] * len(each), -1)]
        for item in graph.required:
            self.any_of([at[n] for n in graph.makers[item] if n in at])
        for makers in graph.makers:
            kept = [at[n] for n in makers if n in at]
            if len(kept) > 1:
                proto.constraints.add().at_most_one.literals.extend(kept)
                self.rows.append((kept, [-1] * len(kept), -1))
        for (_, need), readers in readers_by_need(graph, self.productions).items():
            meets = [at[n] for n in graph.makes(need) if n in at]
            if len(readers) == 1:
                self.any_of([-at[readers[0]] - 1, *meets])
            else:  # at most one of the readers is chosen, so together they ask for no more than one
                variables, signs = meets + [at[n] for n in readers], [1] * len(meets) + [-1] * len(readers)
                linear = proto.constraints.add().linear
                linear.vars.extend(variables)
                linear.coeffs.extend(signs)
                linear.domain.extend((0, len(meets)))
                self.rows.append((variables, signs, 0))
        for ways in graph.live.values():
            self.any_of([at[n] for n in ways if n in at])
        for n in decided:
            self.any_of([at[n]])
        self.costs = [graph.productions[n].cost for n in self.productions]
        proto.objective.vars.extend([k for k, cost in enumerate(self.costs) if cost])
        proto.objective.coeffs.extend([cost for cost in self.costs if cost])

    def any_of(self, literals: list[int]) -> None:
        """At least one of these; a variable n that is not chosen is -n - 1."""
        self.proto.constraints.add().bool_or.literals.extend(literals)
        signs = [1 if n >= 0 else -1 for n in literals]
        self.rows.append(([max(n, -n - 1) for n in literals], signs, 1 - signs.count(-1)))

    def promising(self) -> list[int]:
        return [self.productions[k] for k in promising(self.costs, self.rows)]

    def forbid(self, productions: Iterable[int]) -> None:
        self.any_of([-self.at[n] - 1 for n in productions])

    def start_from(self, chosen: Iterable[int]) -> None:
        values = [0] * len(self.productions)
        for n in chosen:
            values[self.at[n]] = 1
        self.m.clear_hints()
        self.proto.solution_hint.vars.extend(range(len(values)))
        self.proto.solution_hint.values.extend(values)


class _Search:
    """The best choice so far, and what it has taken."""

    def __init__(self, graph: Graph, seconds: float, began: float, hint: list[int] | None) -> None:
        self.graph, self.left, self.bound = graph, seconds, 0.0
        self.stop = began + SLOWEST * seconds  # by the clock, however busy the machine is
        self.best = hint
        self.packing = None if hint is None else arrange(graph, hint)

    def run(self, model: _Model, seconds: float, whole: bool = True) -> bool:
        """Solve, forbidding choices that wait for themselves; whether the best is known to be the best."""
        cp_model = solver_library()
        for _ in range(ROUNDS):
            clock = self.stop - time.perf_counter()
            if seconds <= 0.01 or clock <= 0.01:
                return False
            if self.best is not None:
                model.start_from(self.best)
            solver = limited(seconds, clock)
            found = solver.solve(model.m)
            spent = solver.response_proto.deterministic_time
            seconds -= spent
            self.left -= spent
            if found not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                return False
            if whole:
                self.bound = max(self.bound, solver.best_objective_bound)
            values = solver.response_proto.solution
            answer = used(self.graph, [n for n, value in zip(model.productions, values, strict=True) if value])
            cycle = self.take(answer)
            if cycle is None:
                return bool(found == cp_model.OPTIMAL)
            model.forbid(cycle)
        return False

    def take(self, answer: list[int]) -> list[int] | None:
        """Keep an answer that is better; or the productions that wait for each other in it."""
        if self.best is not None and cost_of(self.graph, answer) >= cost_of(self.graph, self.best):
            return None
        try:
            self.packing = arrange(self.graph, answer)
        except Cycle as cycle:
            return cycle.productions
        self.best = answer
        return None

    def improve(self, few: set[int] | None, only: Container[int] | None) -> None:
        """Large neighborhoods: everything stays as it is but what is near to one production, which is solved anew.

        Every other time among few productions only, which is faster.
        """
        chance = random.Random(0)
        turn = 0
        while self.left > 0.05 and time.perf_counter() < self.stop and self.best:
            turn += 1
            near = self._near(chance.choice(self.best), 0.2 + 0.4 * chance.random())
            kept = [n for n in self.best if n not in near]
            among = {*few, *self.best} if few is not None and turn % 2 else only
            self.run(_Model(self.graph, kept, among), min(self.left, 0.5), whole=False)
            self.left -= 0.02  # for the model

    def _near(self, start: int, share: float) -> set[int]:
        """A share of the chosen productions: those that touch the same statements and values as one of them."""
        assert self.best is not None
        touched = {n: self._values(n) for n in self.best}
        found, values = {start}, set(touched[start])
        while len(found) < share * len(self.best):
            more = {n for n in self.best if n not in found and values & touched[n]}
            if not more:
                break
            found |= more
            values |= {v for n in more for v in touched[n]}
        return found

    def _values(self, n: int) -> set[str]:
        p = self.graph.productions[n]
        lanes = set(self.graph.items[p.gives].lanes) if p.gives >= 0 else set()
        return lanes | {v for m in p.members for v in self.graph.region.statements[m].lanes}

    def answer(self) -> tuple[list[int], Packing]:
        if self.best is None or self.packing is None:
            self.best = used(self.graph, scalar_choice(self.graph))
            self.packing = arrange(self.graph, self.best)
        return self.best, self.packing


def limited(seconds: float, clock: float) -> Any:
    """A solver that gives the same answer every time: it stops by its own count of its work, or late by the clock."""
    solver = solver_library().CpSolver()
    solver.parameters.max_deterministic_time = seconds
    solver.parameters.max_time_in_seconds = clock
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.random_seed = 0
    return solver


def solver_library() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise HeddleError(
            "--method ilp needs ortools, which is not installed.",
            "It solves for the cheapest packing.",
            f"To get it: {how_to_install('lanes')}. --method llvm and policy do not need it.",
        ) from error
    return cp_model
