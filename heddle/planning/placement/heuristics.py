"""Quick answers for the throughput of a placement: baselines, and starts for the exact solvers.

An assignment is an array: for each group its device, accelerators first, then CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from heddle.graph.dag import Floats, Ints
from heddle.graph.deadline import left
from heddle.graph.ideals import linear_extension
from heddle.planning.placement.bounds import minimum_cut
from heddle.planning.placement.operator_graph import PlacementProblem


def loads_of(problem: PlacementProblem, assignment: Ints) -> Floats:
    """The load of every device."""
    loads = [problem.accelerator_load(assignment == device) for device in range(problem.accelerators)]
    cpus = range(problem.accelerators, problem.accelerators + problem.cpus)
    return np.array(loads + [float(problem.cpu[assignment == device].sum()) for device in cpus])


def feasible(problem: PlacementProblem, assignment: Ints) -> bool:
    """Does it respect memory, and what accelerators can run?"""
    on_accelerator = assignment < problem.accelerators
    if (on_accelerator & ~problem.supported).any():
        return False
    held = np.bincount(assignment[on_accelerator], problem.size[on_accelerator], minlength=problem.accelerators)
    return bool((held <= problem.memory * (1 + 1e-9)).all())


def one_device(problem: PlacementProblem) -> Ints | None:
    """Everything on one accelerator, or else on one CPU."""
    for device in [0] * (problem.accelerators > 0) + [problem.accelerators] * (problem.cpus > 0):
        assignment = np.full(problem.groups, device, dtype=np.int64)
        if feasible(problem, assignment):
            return assignment
    return None


def greedy(problem: PlacementProblem) -> Ints | None:
    """Fill one accelerator after the other in topological order to an equal share; what fits none goes to a CPU."""
    share = problem.accelerator.sum() / max(problem.accelerators, 1)
    assignment = np.empty(problem.groups, dtype=np.int64)
    device, load, held = 0, 0.0, 0.0
    order = linear_extension(problem.order)
    order += sorted(set(range(problem.groups)) - set(order))  # what lies on cycles, where parts need no order
    for group in order:
        takes, size = problem.accelerator[group], problem.size[group]
        while device < problem.accelerators and problem.supported[group] and size <= problem.memory:
            full = held + size > problem.memory or (load > 0 and load + takes / 2 > share)
            if not full or (device == problem.accelerators - 1 and held + size <= problem.memory):
                break
            device, load, held = device + 1, 0.0, 0.0
        if device < problem.accelerators and problem.supported[group] and size <= problem.memory:
            assignment[group] = device
            load, held = load + takes, held + size
        elif problem.cpus:
            assignment[group] = problem.accelerators
        else:
            return None
    return assignment


def around_the_heaviest(
    problem: PlacementProblem, start: Ints, groups: int = 3, until: float = np.inf
) -> Iterator[Ints]:
    """The same, but with what had best stay with a heavy group of the fullest device (a minimum cut) brought there."""
    fullest = int(loads_of(problem, start).argmax())
    if fullest >= problem.accelerators:
        return
    mine = np.flatnonzero(start == fullest)
    for group in mine[np.argsort(-problem.accelerator[mine])][:groups].tolist():
        if left(until) < 0:
            return
        gathered = start.copy()
        gathered[minimum_cut(problem, group, until)[1]] = fullest
        if feasible(problem, gathered):
            yield gathered


def local_search(problem: PlacementProblem, start: Ints, deadline: float = np.inf) -> Ints:
    """Move single groups off the fullest device while that lowers the larger of the two loads; memory is respected."""
    devices = problem.accelerators + problem.cpus
    assignment = start.copy()
    if left(deadline) <= 0:
        return assignment
    whole = problem.nets.sum(axis=1)
    mine = [np.flatnonzero(problem.nets[:, group]) for group in range(problem.groups)]
    count = np.stack([problem.nets[:, assignment == device].sum(axis=1) for device in range(devices)])
    held = np.bincount(assignment, problem.size, minlength=devices)
    loads = loads_of(problem, assignment)
    is_cpu = np.arange(devices) >= problem.accelerators
    while left(deadline) > 0:
        worst = int(loads.argmax())
        best, move = loads[worst] * (1 - 1e-9), None
        for group in np.flatnonzero(assignment == worst).tolist():
            nets = mine[group]
            cost, size, here = problem.cost[nets], whole[nets], count[:, nets]
            gone = here[worst] - 1
            before = ((here[worst] > 0) & (here[worst] < size)) @ cost
            less = problem.accelerator[group] + before - ((gone > 0) & (gone < size)) @ cost
            stays = loads[worst] - (problem.cpu[group] if is_cpu[worst] else less)
            if stays >= best:
                continue
            was = ((here > 0) & (here < size)) @ cost
            now = (here + 1 < size) @ cost
            gain = np.where(is_cpu, problem.cpu[group], problem.accelerator[group] + now - was)
            fits = is_cpu | (problem.supported[group] & (held + problem.size[group] <= problem.memory * (1 + 1e-9)))
            larger = np.where(fits, np.maximum(loads + gain, stays), np.inf)
            larger[worst] = np.inf
            target = int(larger.argmin())
            if larger[target] < best:
                best, move = float(larger[target]), (group, target)
        if move is None:
            break
        group, target = move
        count[worst, mine[group]] -= 1
        count[target, mine[group]] += 1
        held[worst] -= problem.size[group]
        held[target] += problem.size[group]
        assignment[group] = target
        loads = loads_of(problem, assignment)
    return assignment
