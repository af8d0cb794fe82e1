"""The integer program for latency: which group goes to which part of which accelerator, and when parts begin.

All groups of a part begin and end with it, so a path that left a part and came back would have to end before it began:
parts are contiguous without a word about it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from heddle.planning.placement.ip import Progress, solved, whole
from heddle.planning.placement.operator_graph import PlacementProblem

FINE = 1e6


def best_parts(
    problem: PlacementProblem,
    start: list[tuple[int, list[int]]],
    below: float,
    seconds: float,
    parts: int,
    progress: Progress | None = None,
) -> tuple[list[tuple[int, list[int]]] | None, float, bool]:
    """Parts with a smaller latency than `below`, if found; a lower bound; and whether the search came to its end."""
    from ortools.sat.python import cp_model as module

    cp_model: Any = module
    program = _Model(cp_model.CpModel(), problem, parts, FINE / below)
    program.hint(start)
    solver, status = solved(cp_model, program.model, seconds, progress, program.scale)
    if status == cp_model.INFEASIBLE:
        return None, below, True
    bound = max(0.0, solver.best_objective_bound / program.scale)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bound, False
    return program.parts_of(solver), bound, status == cp_model.OPTIMAL


class _Model:
    """Variables and constraints. A slot is a part of an accelerator; behind the slots stands the CPU."""

    def __init__(self, model: Any, problem: PlacementProblem, parts: int, scale: float) -> None:
        self.model, self.problem, self.parts, self.scale = model, problem, parts, scale
        self.slots = [(m, q) for m in range(problem.accelerators) for q in range(parts)]
        self.most = int(FINE) - 10
        self.in_slot: list[list[Any]] = []  # of each group, for each slot
        self.begins: list[Any] = []
        self.ends: list[Any] = []
        self.opens: list[Any] = []  # of each slot
        self.closes: list[Any] = []
        self._groups()
        self._slots()
        self._order_of_slots()
        self._precedence()
        self._memory()
        latency = model.new_int_var(0, self.most, "latency")
        for end in self.ends:
            model.add(end <= latency)
        model.minimize(latency)

    def _groups(self) -> None:
        """Each group is in one slot or on a CPU, where it takes its own time."""
        model, problem = self.model, self.problem
        cpu = whole(problem.cpu * self.scale)
        for g in range(problem.groups):
            row = [model.new_bool_var(f"x{g}_{s}") for s in range(len(self.slots) + 1)]
            model.add_exactly_one(row)
            begin, end = model.new_int_var(0, self.most, f"b{g}"), model.new_int_var(0, self.most, f"e{g}")
            model.add(end >= begin + int(cpu[g])).only_enforce_if(row[-1])
            if not problem.cpus:
                model.add(row[-1] == 0)
            if not problem.supported[g]:
                model.add(row[-1] == 1)
            self.in_slot.append(row)
            self.begins.append(begin)
            self.ends.append(end)

    def _slots(self) -> None:
        """A slot lasts as long as its groups and the nets across its border; its groups begin and end with it."""
        model, problem = self.model, self.problem
        own, cost = whole(problem.accelerator * self.scale), whole(problem.cost * self.scale)
        for s in range(len(self.slots)):
            first, last = model.new_int_var(0, self.most, f"open{s}"), model.new_int_var(0, self.most, f"close{s}")
            terms: list[Any] = [int(own[g]) * self.in_slot[g][s] for g in range(problem.groups)]
            for net in range(len(cost)):
                some, every = model.new_bool_var(""), model.new_bool_var("")
                for g in np.flatnonzero(problem.nets[net]).tolist():
                    model.add_implication(self.in_slot[g][s], some)
                    model.add_implication(every, self.in_slot[g][s])
                terms.append(int(cost[net]) * (some - every))
            model.add(last >= first + sum(terms))
            for g in range(problem.groups):
                model.add(self.begins[g] == first).only_enforce_if(self.in_slot[g][s])
                model.add(self.ends[g] == last).only_enforce_if(self.in_slot[g][s])
            self.opens.append(first)
            self.closes.append(last)

    def _order_of_slots(self) -> None:
        """Parts of an accelerator follow one another; accelerators are alike, so they are ordered by their begin."""
        for s in range(1, len(self.slots)):
            if self.slots[s][0] == self.slots[s - 1][0]:
                self.model.add(self.opens[s] >= self.closes[s - 1])
            elif self.slots[s][1] == 0:
                self.model.add(self.opens[s] >= self.opens[s - self.parts])

    def _precedence(self) -> None:
        """Groups in an order are in the same slot, or the later one begins after the earlier one."""
        model, order = self.model, self.problem.order
        for u, v in zip(order.tails.tolist(), order.heads.tolist(), strict=True):
            together = []
            for s in range(len(self.slots)):
                both = model.new_bool_var("")
                model.add_implication(both, self.in_slot[u][s])
                model.add_implication(both, self.in_slot[v][s])
                together.append(both)
            apart = model.new_bool_var("")
            model.add_exactly_one([*together, apart])
            model.add(self.begins[v] >= self.ends[u]).only_enforce_if(apart)

    def _memory(self) -> None:
        problem = self.problem
        unit = max(1.0, problem.size.sum() / 2**50)
        for m in range(problem.accelerators):
            mine = [s for s, slot in enumerate(self.slots) if slot[0] == m]
            terms = [int(problem.size[g] / unit) * self.in_slot[g][s] for g in range(problem.groups) for s in mine]
            self.model.add(sum(terms) <= int(problem.memory * (1 + 1e-9) / unit))

    def hint(self, start: list[tuple[int, list[int]]]) -> None:
        """Begin with the parts that are known."""
        where = {g: number * self.parts for number, (_, groups) in enumerate(start) for g in groups}
        for g, row in enumerate(self.in_slot):
            for s, variable in enumerate(row):
                self.model.add_hint(variable, int(where.get(g, len(self.slots)) == s))

    def parts_of(self, solver: Any) -> list[tuple[int, list[int]]]:
        """The accelerator and the groups of each slot that is used."""
        found = []
        for s, (m, _) in enumerate(self.slots):
            groups = [g for g, row in enumerate(self.in_slot) if solver.boolean_value(row[s])]
            if groups:
                found.append((m, groups))
        return found
