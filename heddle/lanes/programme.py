"""The exact programme: which productions to choose, with CP-SAT, from a greedy start, within a time limit."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

from heddle.errors import HeddleError, how_to_install
from heddle.lanes.choice import Solution, cost_of, scalar_choice, used
from heddle.lanes.packs import Graph, Need
from heddle.lanes.schedule import Cycle, Packing, arrange

ROUNDS = 30  # of forbidding a cycle and solving again
EXACT = 0.6  # of the time goes to the whole programme; if that is not enough, the rest to neighbourhoods
SLOWEST = 12.0  # times the seconds asked for, by the clock: a busy machine gives the same answer, if later


def readers_by_need(graph: Graph) -> dict[tuple[object, Need], list[int]]:
    """Productions that need the same and exclude each other: those of one item, or of one store."""
    found: dict[tuple[object, Need], list[int]] = {}
    for n, p in enumerate(graph.productions):
        for need in p.needs:
            found.setdefault((p.gives if p.gives >= 0 else ("store", p.members[0]), need), []).append(n)
    return found


def solve(
    graph: Graph,
    seconds: float = 10.0,
    hint: list[int] | None = None,
    decided: Iterable[int] = (),
    forbidden: Sequence[int] = (),
) -> Solution:
    """The cheapest choice that can be put in an order, among those that keep what is decided.

    Args:
        graph: everything that could be made.
        seconds: of work, by the solver's own count, so that a busy machine gives the same answer.
        hint: a choice to start from, which can be ordered.
        decided: productions that must be chosen.
        forbidden: productions that must not be.
    """
    began = time.perf_counter()
    search = _Search(graph, seconds, began, hint, forbidden)
    proved = search.run(_Model(graph, decided, forbidden), seconds * (EXACT if hint is not None else 1.0))
    if not proved and hint is not None:
        search.improve()
    best, packing = search.answer()
    cost = cost_of(graph, best)
    bound = float(cost) if proved else min(search.bound, cost)
    facts = {"variables": len(graph.productions), "status": "optimal" if proved else "limit"}
    return Solution(packing, cost, bound, time.perf_counter() - began, "ilp", facts)


class _Model:
    """The programme in CP-SAT's words."""

    def __init__(self, graph: Graph, decided: Iterable[int], forbidden: Iterable[int] = ()) -> None:
        cp_model = solver_library()
        self.m = model = cp_model.CpModel()
        self.x = x = [model.new_bool_var(f"p{n}") for n in range(len(graph.productions))]
        for ways in graph.stores.values():
            model.add_exactly_one(x[n] for n in ways)
        for item in graph.required:
            model.add_bool_or([x[n] for n in graph.makers[item]])
        for makers in graph.makers:
            if len(makers) > 1:
                model.add_at_most_one(x[n] for n in makers)
        for (_, need), readers in readers_by_need(graph).items():
            meets = [x[m] for m in graph.makes(need)]
            if len(readers) == 1:
                model.add_bool_or([x[readers[0]].Not(), *meets])
            else:  # at most one of the readers is chosen, so together they ask for no more than one
                model.add(sum(meets) >= sum(x[n] for n in readers))
        for ways in graph.live.values():
            model.add_bool_or([x[n] for n in ways])
        for n in decided:
            model.add(x[n] == 1)
        for n in forbidden:
            model.add(x[n] == 0)
        model.minimize(sum(p.cost * x[n] for n, p in enumerate(graph.productions) if p.cost))


class _Search:
    """The best choice so far, and what it has taken."""

    def __init__(
        self, graph: Graph, seconds: float, began: float, hint: list[int] | None, forbidden: Sequence[int]
    ) -> None:
        self.forbidden = forbidden
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
            model.m.clear_hints()
            chosen = set(self.best or ())
            for n, variable in enumerate(model.x if self.best is not None else ()):
                model.m.add_hint(variable, n in chosen)
            solver = limited(seconds, clock)
            found = solver.solve(model.m)
            spent = solver.response_proto.deterministic_time
            seconds -= spent
            self.left -= spent
            if found not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                return False
            if whole:
                self.bound = max(self.bound, solver.best_objective_bound)
            answer = used(self.graph, [n for n, variable in enumerate(model.x) if solver.boolean_value(variable)])
            cycle = self.take(answer)
            if cycle is None:
                return bool(found == cp_model.OPTIMAL)
            model.m.add_bool_or([model.x[n].Not() for n in cycle])
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

    def improve(self) -> None:
        """Large neighbourhoods: everything stays as it is but what is near to one production, which is solved anew."""
        chance = random.Random(0)
        while self.left > 0.05 and time.perf_counter() < self.stop and self.best:
            near = self._near(chance.choice(self.best), 0.2 + 0.4 * chance.random())
            kept = [n for n in self.best if n not in near]
            self.run(_Model(self.graph, kept, self.forbidden), min(self.left, 0.5), whole=False)
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
            "--method ilp and pairs need ortools, which is not installed.",
            "It solves for the cheapest packing.",
            f"To get it: {how_to_install('lanes')}. --method llvm and policy do not need it.",
        ) from error
    return cp_model
