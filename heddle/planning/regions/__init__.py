"""Who holds which stage of which pipeline when links differ: DT-FM's objective, bounds, and a search."""

from __future__ import annotations

from heddle.planning.regions.cases import Case, case_from, read_case
from heddle.planning.regions.cost import Layout, costs_of, laid_out
from heddle.planning.regions.problem import Problem, problem_from
from heddle.planning.regions.solve import Found, solve

__all__ = [
    "Case",
    "Found",
    "Layout",
    "Problem",
    "case_from",
    "costs_of",
    "laid_out",
    "problem_from",
    "read_case",
    "solve",
]
