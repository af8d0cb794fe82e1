"""Smaller problems: one with the same better placements, and one of a size that can be looked at.

Where moving an output alone takes as long as the best maximum load known, the operators that make and use it must share
a device in anything better. Their groups are merged, which is repeated until nothing is left to merge.

A graph of ten thousand operators is more than the programs can search in a minute. Its groups are merged along one
line into blocks; the answer is then a good placement, and bounds are those of the whole.
"""

from __future__ import annotations

import numpy as np

from heddle.graph.dag import Floats, Ints
from heddle.graph.ideals import linear_extension
from heddle.graph.merge import components, contract, quotient
from heddle.planning.placement.operator_graph import PlacementProblem

MOST_GROUPS = 1200
BLOCKS = 600


def coarsened(problem: PlacementProblem, contiguous: bool) -> PlacementProblem:
    """The problem itself, or one with about `BLOCKS` groups where it has many."""
    if problem.groups <= MOST_GROUPS:
        return problem
    line = linear_extension(problem.order)
    line += sorted(set(range(problem.groups)) - set(line))  # what lies on cycles, where parts need no order
    time = np.where(problem.supported, problem.accelerator, problem.cpu)
    share, room = time.sum() / BLOCKS, problem.memory / 4
    # What accelerators cannot run keeps its whole block from them, unless such groups are too many to stand apart.
    apart = int(np.count_nonzero(np.diff(problem.supported[line]))) <= BLOCKS
    classes = np.empty(problem.groups, dtype=np.int64)
    number, taken, held, count = 0, 0.0, 0.0, 0
    for place, group in enumerate(line):
        changes = place > 0 and apart and problem.supported[group] != problem.supported[line[place - 1]]
        full = taken + time[group] / 2 > share or count * BLOCKS >= problem.groups
        if count and (changes or full or held + problem.size[group] > room):
            number, taken, held, count = number + 1, 0.0, 0.0, 0
        classes[group] = number
        taken, held, count = taken + time[group], held + problem.size[group], count + 1
    if number >= 2 * MOST_GROUPS:  # memory for a few groups only: as many to a block, whatever they hold
        classes[line] = np.arange(problem.groups) * BLOCKS // problem.groups
    return merge(problem, classes, contiguous)[0]


def reduced(problem: PlacementProblem, below: float, contiguous: bool) -> tuple[PlacementProblem, Ints]:
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


def merge(problem: PlacementProblem, classes: Ints, contiguous: bool) -> tuple[PlacementProblem, Ints]:
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
    cut = np.flatnonzero(nets.sum(axis=1) > 1)
    # Equal nets become one. They are compared eight groups at a time: of ten thousand that is most of the work.
    _, first, where = np.unique(np.packbits(nets[cut], axis=1), axis=0, return_index=True, return_inverse=True)
    cost = np.bincount(where.ravel(), problem.cost[cut], minlength=len(first)).astype(np.float64)
    return (
        PlacementProblem(
            order,
            classes[problem.group],
            total(problem.accelerator),
            total(problem.cpu),
            total(problem.size),
            supported,
            nets[cut[first]],
            cost,
            problem.accelerators,
            problem.cpus,
            problem.memory,
        ),
        classes,
    )
