"""The exact programme: which productions to choose, with CP-SAT, from a greedy start, within a time limit."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from heddle.errors import HeddleError, how_to_install
from heddle.lanes.packs import Graph, Need
from heddle.lanes.schedule import Cycle, Packing, arrange

ROUNDS = 30  # of forbidding a cycle and solving again


@dataclass
class Solution:
    """What was chosen, and how good that is known to be."""

    packing: Packing
    cost: int
    bound: float
    seconds: float
    method: str
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        return 0.0 if self.cost <= 0 else max(0.0, (self.cost - self.bound) / self.cost)


def scalar_choice(graph: Graph) -> list[int]:
    """Every statement as it is: what is needed of them."""
    every = {p.members[0]: n for n, p in enumerate(graph.productions) if p.kind == "scalar"}
    return sorted(every.values())


def used(graph: Graph, chosen: list[int]) -> list[int]:
    """The chosen productions that something asks for, from the stores upwards."""
    has = set(chosen)
    keep: set[int] = set()
    stack = [n for n in chosen if graph.productions[n].gives < 0]
    for item in graph.required:
        stack += [p for p in graph.makers[item] if p in has][:1]
    while stack:
        n = stack.pop()
        if n in keep:
            continue
        keep.add(n)
        for need in graph.productions[n].needs:
            made = [p for p in graph.makes(need) if p in has]
            if not any(p in keep for p in made):
                stack += made[:1]
    return sorted(keep)


def readers_by_need(graph: Graph) -> dict[tuple[object, Need], list[int]]:
    """Productions that need the same and exclude each other: those of one item, or of one store."""
    found: dict[tuple[object, Need], list[int]] = {}
    for n, p in enumerate(graph.productions):
        for need in p.needs:
            found.setdefault((p.gives if p.gives >= 0 else ("store", p.members[0]), need), []).append(n)
    return found


def cost_of(graph: Graph, chosen: list[int]) -> int:
    return sum(graph.productions[n].cost for n in chosen)


def solve(graph: Graph, seconds: float = 10.0, hint: list[int] | None = None, decided: Iterable[int] = ()) -> Solution:
    """The cheapest choice that can be put in an order, among those that keep what is decided."""
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise HeddleError(
            "The programme needs ortools, which is not installed.",
            "It solves for the cheapest packing.",
            f"To get it: {how_to_install('lanes')}. --method llvm and policy need none.",
        ) from error
    began = time.perf_counter()
    model = cp_model.CpModel()
    x = [model.new_bool_var(f"p{n}") for n in range(len(graph.productions))]
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
    model.minimize(sum(p.cost * x[n] for n, p in enumerate(graph.productions) if p.cost))
    best: list[int] | None = None
    best_packing: Packing | None = None
    if hint is not None:
        best, best_packing = hint, arrange(graph, hint)
    bound = 0.0
    rounds = 0
    status = "none"
    while rounds < ROUNDS:
        rounds += 1
        left = seconds - (time.perf_counter() - began)
        if left <= 0.05:
            break
        model.clear_hints()  # type: ignore[no-untyped-call]
        if best is not None:
            chosen = set(best)
            for n, variable in enumerate(x):
                model.add_hint(variable, n in chosen)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = left
        solver.parameters.num_workers = 1
        solver.parameters.linearization_level = 2
        solver.parameters.random_seed = 0
        found = solver.solve(model)
        if found not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            break
        bound = max(bound, solver.best_objective_bound)
        answer = used(graph, [n for n in range(len(x)) if solver.boolean_value(x[n])])
        if best is not None and cost_of(graph, answer) >= cost_of(graph, best):
            status = "optimal" if found == cp_model.OPTIMAL else "limit"
            break
        try:
            packing = arrange(graph, answer)
        except Cycle as cycle:
            model.add_bool_or([x[n].Not() for n in cycle.productions])
            continue
        best, best_packing = answer, packing
        status = "optimal" if found == cp_model.OPTIMAL else "limit"
        break
    if best is None or best_packing is None:
        best = used(graph, scalar_choice(graph))
        best_packing = arrange(graph, best)
    cost = cost_of(graph, best)
    if status == "optimal":
        bound = cost
    facts = {"variables": len(x), "rounds": rounds, "status": status}
    return Solution(best_packing, cost, min(bound, cost), time.perf_counter() - began, "ilp", facts)


def polished(graph: Graph, chosen: list[int]) -> list[int]:
    """The same with single productions exchanged where what the others need is there anyway and it becomes cheaper."""
    best, price = chosen, cost_of(graph, chosen)
    improved = True
    while improved:
        improved = False
        for n in best:
            if n not in best or graph.productions[n].gives < 0:
                continue
            for m in graph.makers[graph.productions[n].gives]:
                if m == n:
                    continue
                has = {*best, m} - {n}
                if not all(has.intersection(graph.makes(need)) for need in graph.productions[m].needs):
                    continue
                other = used(graph, sorted(has))
                if cost_of(graph, other) < price and _ordered(graph, other):
                    best, price, improved = other, cost_of(graph, other), True
                    break
    return best


def _ordered(graph: Graph, chosen: list[int]) -> bool:
    try:
        arrange(graph, chosen)
    except (Cycle, StopIteration):
        return False
    return True


def greedy(graph: Graph) -> list[int]:
    """A start: the widest stores first, each as vectors where that is cheaper than as scalars, given what is there."""
    have: dict[int, int] = {}  # item → production
    native: set[int] = set()
    chosen: list[int] = []

    estimate = estimates(graph)

    def cheapest(item: int) -> int:
        return min(graph.makers[item], key=lambda n: (estimate[n], n))

    def take(n: int) -> None:
        chosen.append(n)
        p = graph.productions[n]
        if p.gives >= 0:
            have[p.gives] = n
            if p.native:
                native.add(p.gives)
        for need in p.needs:
            if any(i in have and (not need.native or i in native) for i in need.items):
                continue
            if need.native:
                item = min(
                    need.items,
                    key=lambda i: min(
                        (estimate[m] for m in graph.makers[i] if graph.productions[m].native), default=1e9
                    ),
                )
                take(min((m for m in graph.makers[item] if graph.productions[m].native), key=lambda m: estimate[m]))
            else:
                take(cheapest(need.items[0]))

    done: set[int] = set()
    scalar_of = {p.members[0]: n for n, p in enumerate(graph.productions) if p.kind == "scalar" and p.gives < 0}
    windows = sorted(
        {n for ways in graph.stores.values() for n in ways if graph.productions[n].kind == "store"},
        key=lambda n: (-len(graph.productions[n].members), n),
    )
    for n in windows:
        members = graph.productions[n].members
        if any(m in done for m in members):
            continue
        if estimate[n] < sum(estimate[scalar_of[m]] for m in members):
            take(n)
            done.update(members)
    for m, n in scalar_of.items():
        if m not in done:
            take(n)
    for item in graph.required:
        if item not in have:
            take(cheapest(item))
    return used(graph, chosen)


def estimates(graph: Graph) -> list[float]:
    """What each production costs with all it needs, where what several read is shared between them."""
    readers = [0] * len(graph.items)
    for p in graph.productions:
        if p.kind in ("scalar", "pack", "store", "load"):
            for need in p.needs:
                for item in need.items:
                    readers[item] += 1
    known: dict[int, float] = {}
    busy: set[int] = set()

    def item_cost(item: int, only_native: bool) -> float:
        makers = [n for n in graph.makers[item] if not only_native or graph.productions[n].native]
        return min((production(n) for n in makers), default=1e9) / max(1, min(readers[item], 3) * 0.75)

    def production(n: int) -> float:
        if n in known:
            return known[n]
        if n in busy:
            return 1e9
        busy.add(n)
        p = graph.productions[n]
        total = p.cost + sum(min(item_cost(i, need.native) for i in need.items) for need in p.needs)
        busy.discard(n)
        known[n] = total
        return total

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20000))
    try:
        return [production(n) for n in range(len(graph.productions))]
    finally:
        sys.setrecursionlimit(limit)
