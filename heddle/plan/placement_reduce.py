"""A smaller problem for whoever already has a placement and looks for a better one.

Where moving an output alone takes as long as the best maximum load known, the operators that make and use it must share
a device in anything better. Their groups are merged, which is repeated until nothing is left to merge.
"""

from __future__ import annotations

import numpy as np

from heddle.graph.dag import Floats, Ints
from heddle.graph.merge import components, contract, quotient
from heddle.plan.placement_graph import Problem


def reduced(problem: Problem, below: float, contiguous: bool) -> tuple[Problem, Ints]:
    """The problem for placements better than `below`, and the new group of each old one."""
    group = np.arange(problem.groups)
    if problem.cpus > 1 or not len(problem.cost):  # two CPUs may share a net without moving anything
        return problem, group
    while True:
        lightest = np.where(problem.nets, problem.accelerator, np.inf).min(axis=1)
        heavy = problem.cost + lightest >= below
        if not heavy.any():
            return problem, group
        together = [np.flatnonzero(net).tolist() for net in problem.nets[heavy]]
        problem, merged = merge(problem, components(problem.groups, together), contiguous)
        group = merged[group]
        if not len(problem.cost):
            return problem, group


def merge(problem: Problem, classes: Ints, contiguous: bool) -> tuple[Problem, Ints]:
    """Groups of a class become one; what lies between two of them joins it where parts must be contiguous."""
    if contiguous:
        order, classes = contract(problem.order, classes)
    else:
        order = quotient(problem.order, classes)  # may have cycles, which do not matter then
    count = int(classes.max()) + 1

    def total(values: Floats) -> Floats:
        return np.bincount(classes, values, minlength=count).astype(np.float64)

    supported = np.ones(count, dtype=np.bool_)
    np.logical_and.at(supported, classes, problem.supported)
    nets = np.zeros((len(problem.nets), count), dtype=np.bool_)
    net, member = np.nonzero(problem.nets)
    nets[net, classes[member]] = True
    kept, where = np.unique(nets, axis=0, return_inverse=True)
    cost = np.bincount(where.ravel(), problem.cost, minlength=len(kept))
    cut = kept.sum(axis=1) > 1
    return (
        Problem(
            order,
            classes[problem.group],
            total(problem.accelerator),
            total(problem.cpu),
            total(problem.size),
            supported,
            kept[cut],
            cost[cut],
            problem.accelerators,
            problem.cpus,
            problem.memory,
        ),
        classes,
    )
