"""The integer program without whole numbers: in a tenth of a second it tells which productions are worth a look.

Its answer is no packing, but the best packings are made of what it uses, and of what costs it next to nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[Sequence[int], Sequence[int], float]  # variables, coefficients, and what their sum is at least

MARGIN = 0.2  # of the reduced cost: what would be lost by using a production anyway
INFINITE = float("inf")


def promising(costs: Sequence[int], rows: Sequence[Row]) -> list[int]:
    """The variables that the relaxed integer program uses, or could use at little loss; all if it has no answer."""
    from ortools.linear_solver import linear_solver_pb2, pywraplp

    model = linear_solver_pb2.MPModelProto()
    for cost in costs:
        variable = model.variable.add()
        variable.lower_bound, variable.upper_bound, variable.objective_coefficient = 0.0, 1.0, float(cost)
    for variables, coefficients, least in rows:
        row = model.constraint.add()
        row.var_index.extend(variables)
        row.coefficient.extend([float(c) for c in coefficients])
        row.lower_bound, row.upper_bound = float(least), INFINITE
    solver = pywraplp.Solver.CreateSolver("GLOP")
    solver.LoadModelFromProto(model)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return list(range(len(costs)))
    found = solver.variables()
    return [n for n, v in enumerate(found) if v.solution_value() > 1e-6 or v.reduced_cost() <= MARGIN]
