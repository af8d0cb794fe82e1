"""The integer program for splits that need not be contiguous, solved with OR-Tools' CP-SAT.

A Boolean for every group and device; for every net and accelerator, whether it holds some and whether it holds all of
the net. Times are rounded down to whole numbers of about a ten-millionth of the first answer, so the solver's bound is
a bound; values are recomputed from the assignment.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from heddle.errors import HeddleError, how_to_install
from heddle.graph.dag import Floats, Ints
from heddle.planning.placement.operator_graph import PlacementProblem

Progress = Callable[[float, float], None]  # best value and lower bound so far
FINE = 1e7


@dataclass(frozen=True, eq=False)
class FoundAssignment:
    """What an integer program came to."""

    assignment: Ints | None  # None: nothing better than what was known
    lower_bound: float
    optimal: bool


def require_ortools() -> None:
    """Say which extra is missing before anything tries to import it."""
    if importlib.util.find_spec("ortools") is None:
        raise HeddleError(
            "This method needs ortools, which this environment lacks.",
            "Its CP-SAT solves integer programs; the dynamic programs work without it.",
            f"Install it: {how_to_install('plan')}. Or use --method dp or dpl.",
        )


def best_assignment(
    problem: PlacementProblem,
    below: float,
    seconds: float,
    progress: Progress | None = None,
    start: Ints | None = None,
    above: float = 0.0,
) -> FoundAssignment:
    """The assignment with the smallest maximum load, if that is below the given one by a millionth or more."""
    require_ortools()
    from ortools.sat.python import cp_model as module

    cp_model: Any = module  # typed or not, by what is installed

    accelerators, devices = problem.accelerators, problem.accelerators + problem.cpus
    scale = FINE / max(below, 1e-300)
    most = int(FINE) - 10
    model = cp_model.CpModel()
    x = [[model.new_bool_var(f"x{g}_{m}") for m in range(devices)] for g in range(problem.groups)]
    makespan = model.new_int_var(0, most, "maxload")
    for group in range(problem.groups):
        model.add_exactly_one(x[group])
        if not problem.supported[group]:
            for m in range(accelerators):
                model.add(x[group][m] == 0)
    extras = _loads(model, problem, x, makespan, scale)
    # Accelerators are alike: one is used only by a group that comes after the first group of the one before it.
    for m in range(1, accelerators):
        for g in range(problem.groups):
            model.add_bool_or([x[g][m].negated(), *(x[earlier][m - 1] for earlier in range(g))])
    model.add(makespan >= min(most, int(above * scale * (1 - 1e-6))))
    model.minimize(makespan)
    if start is not None:
        _hint(model, problem, start, x, extras)

    # the bound comes from the relaxation
    solver, status = solved(cp_model, model, seconds, progress, scale, linearization_level=2)
    if status == cp_model.INFEASIBLE:  # nothing is better than what is known
        return FoundAssignment(None, below, True)
    bound = max(0.0, solver.best_objective_bound / scale)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return FoundAssignment(None, bound, False)
    placed = np.array([next(m for m in range(devices) if solver.boolean_value(row[m])) for row in x])
    return FoundAssignment(placed, bound, status == cp_model.OPTIMAL)


def _loads(model: Any, problem: PlacementProblem, x: list[list[Any]], makespan: Any, scale: float) -> list[Any]:
    """No device's load is above the makespan, no accelerator's memory above what it has; returns what _hint needs."""
    own, cpu, cost = (whole(times * scale) for times in (problem.accelerator, problem.cpu, problem.cost))
    unit = max(1.0, problem.size.sum() / 2**50)
    size = np.floor(problem.size / unit).astype(np.int64)
    extras = []
    for m in range(problem.accelerators):
        terms = [int(own[g]) * x[g][m] for g in range(problem.groups)]
        for net in range(len(cost)):
            members = np.flatnonzero(problem.nets[net]).tolist()
            some, every = model.new_bool_var(f"some{net}_{m}"), model.new_bool_var(f"every{net}_{m}")
            for g in members:
                model.add_implication(x[g][m], some)
                model.add_implication(every, x[g][m])
            terms.append(int(cost[net]) * (some - every))
            extras.append((some, every, members, m))
        load = model.new_int_var(0, int(FINE) - 10, f"load{m}")
        model.add(load == sum(terms))
        model.add(load <= makespan)
        if problem.size.sum() > problem.memory:
            capacity = int(problem.memory * (1 + 1e-9) / unit)
            model.add(sum(int(size[g]) * x[g][m] for g in range(problem.groups)) <= capacity)
    for m in range(problem.accelerators, problem.accelerators + problem.cpus):
        model.add(sum(int(cpu[g]) * x[g][m] for g in range(problem.groups)) <= makespan)
    return extras


def solved(
    cp_model: Any, model: Any, seconds: float, progress: Progress | None, scale: float, **parameters: int
) -> tuple[Any, Any]:
    """Run CP-SAT on all cores for at most that long; returns the solver and how it ended."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    solver.parameters.num_workers = os.cpu_count() or 1
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)
    return solver, solver.solve(model, _watch(cp_model, progress, scale) if progress else None)


def _hint(model: Any, problem: PlacementProblem, start: Ints, x: list[list[Any]], extras: list[Any]) -> None:
    """Give the known assignment, its accelerators numbered as the model wants them."""
    used = [m for m in dict.fromkeys(start.tolist()) if m < problem.accelerators]
    rank = {m: number for number, m in enumerate(used)}
    device = np.array([rank.get(m, m) for m in start.tolist()])
    for group, row in enumerate(x):
        for m, variable in enumerate(row):
            model.add_hint(variable, int(device[group] == m))
    for some, every, members, m in extras:
        inside = device[members] == m
        model.add_hint(some, int(inside.any()))
        model.add_hint(every, int(inside.all()))


def _watch(cp_model: Any, progress: Progress, scale: float) -> Any:
    """A callback that tells of every better answer."""

    def told(self: Any) -> None:
        progress(self.objective_value / scale, self.best_objective_bound / scale)

    return type("Watch", (cp_model.CpSolverSolutionCallback,), {"on_solution_callback": told})()


def whole(values: Floats) -> Ints:
    return np.floor(values).astype(np.int64)
