"""The integer programme for latency: which group goes to which part of which accelerator, and when parts begin.

All groups of a part begin and end with it, so a path that left a part and came back would have to end before it began:
parts are contiguous without a word about it.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from heddle.plan.placement_graph import Problem
from heddle.plan.placement_ip import Progress, watch, whole

FINE = 1e6


def best_parts(
    problem: Problem,
    start: list[tuple[int, list[int]]],
    below: float,
    seconds: float,
    parts: int,
    progress: Progress | None = None,
) -> tuple[list[tuple[int, list[int]]] | None, float, bool]:
    """Parts with a smaller latency than `below`, if found; a lower bound; and whether the search came to its end."""
    from ortools.sat.python import cp_model as module

    cp_model: Any = module

    scale = FINE / below
    own, cpu, cost = (whole(times * scale) for times in (problem.accelerator, problem.cpu, problem.cost))
    slots = [(m, q) for m in range(problem.accelerators) for q in range(parts)]
    most = int(FINE) - 10
    model = cp_model.CpModel()
    model_x: list[list[Any]] = []
    begins, ends = [], []
    for g in range(problem.groups):
        row = [model.new_bool_var(f"x{g}_{s}") for s in range(len(slots) + 1)]  # the last: on a CPU
        model.add_exactly_one(row)
        begin, end = model.new_int_var(0, most, f"b{g}"), model.new_int_var(0, most, f"e{g}")
        model.add(end >= begin + int(cpu[g])).only_enforce_if(row[-1])
        if not problem.cpus:
            model.add(row[-1] == 0)
        if not problem.supported[g]:
            model.add(row[-1] == 1)
        model_x.append(row)
        begins.append(begin)
        ends.append(end)
    latency = model.new_int_var(0, most, "latency")
    opens, closes = [], []
    for s in range(len(slots)):
        first, last = model.new_int_var(0, most, f"open{s}"), model.new_int_var(0, most, f"close{s}")
        terms: list[Any] = [int(own[g]) * model_x[g][s] for g in range(problem.groups)]
        for net in range(len(cost)):
            some, every = model.new_bool_var(""), model.new_bool_var("")
            for g in np.flatnonzero(problem.nets[net]).tolist():
                model.add_implication(model_x[g][s], some)
                model.add_implication(every, model_x[g][s])
            terms.append(int(cost[net]) * (some - every))
        model.add(last >= first + sum(terms))
        for g in range(problem.groups):
            model.add(begins[g] == first).only_enforce_if(model_x[g][s])
            model.add(ends[g] == last).only_enforce_if(model_x[g][s])
        opens.append(first)
        closes.append(last)
    for s in range(1, len(slots)):
        if slots[s][0] == slots[s - 1][0]:
            model.add(opens[s] >= closes[s - 1])
        elif slots[s][1] == 0:  # accelerators are alike: order them by when they begin
            model.add(opens[s] >= opens[s - parts])
    for u, v in zip(problem.order.tails.tolist(), problem.order.heads.tolist(), strict=True):
        together = []
        for s in range(len(slots)):
            both = model.new_bool_var("")
            model.add_implication(both, model_x[u][s])
            model.add_implication(both, model_x[v][s])
            together.append(both)
        apart = model.new_bool_var("")
        model.add_exactly_one([*together, apart])
        model.add(begins[v] >= ends[u]).only_enforce_if(apart)
    unit = max(1.0, problem.size.sum() / 2**50)
    for m in range(problem.accelerators):
        mine = [s for s, slot in enumerate(slots) if slot[0] == m]
        terms = [int(problem.size[g] / unit) * model_x[g][s] for g in range(problem.groups) for s in mine]
        model.add(sum(terms) <= int(problem.memory * (1 + 1e-9) / unit))
    for end in ends:
        model.add(end <= latency)
    model.minimize(latency)
    where = {g: number * parts for number, (_, groups) in enumerate(start) for g in groups}
    for g in range(problem.groups):
        for s in range(len(slots) + 1):
            model.add_hint(model_x[g][s], int(where.get(g, len(slots)) == s))

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    solver.parameters.num_workers = os.cpu_count() or 1
    status = solver.solve(model, watch(cp_model, progress, scale) if progress else None)
    if status == cp_model.INFEASIBLE:
        return None, below, True
    bound = max(0.0, solver.best_objective_bound / scale)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bound, False
    found: list[tuple[int, list[int]]] = []
    for s, (m, _) in enumerate(slots):
        groups = [g for g in range(problem.groups) if solver.boolean_value(model_x[g][s])]
        if groups:
            found.append((m, groups))
    return found, bound, status == cp_model.OPTIMAL
