"""Layouts to begin with: bands of stages, filled with one group of near devices after the other.

A band of all stages gives every pipeline to one group; bands of one stage give every stage to one. Between these two
trivial layouts lie those that unequal groups ask for: nodes of four, say, side by side through four stages, and all
single machines in the other four.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from heddle.planning.regions.problem import Floats, Ints, Problem

_LEVELS = 6  # of nearness at which groups are formed


def pipelines_inside(problem: Problem) -> Ints:
    """The trivial layout that keeps each pipeline within a group, as far as groups in the file's order fit."""
    return np.arange(problem.devices).reshape(problem.replicas, problem.stages).T.copy()


def stages_inside(problem: Problem) -> Ints:
    """The trivial layout that keeps the replicas of each stage within a group."""
    return np.arange(problem.devices).reshape(problem.stages, problem.replicas)


def merge_levels(hop: Floats) -> list[tuple[float, Ints]]:
    """How devices join as slower hops are allowed: each hop that joins some, and every device's component before it.

    The last entry has an infinite hop and one component.
    """
    n = len(hop)
    # Prim's tree: the hops that join components are those of a minimum spanning tree
    near, inside, edges = hop[0].copy(), np.zeros(n, dtype=bool), []
    parent = np.zeros(n, dtype=np.int64)
    inside[0] = True
    for _ in range(n - 1):
        new = int(np.where(inside, np.inf, near).argmin())
        edges.append((float(near[new]), int(parent[new]), new))
        inside[new] = True
        closer = hop[new] < near
        near, parent = np.where(closer, hop[new], near), np.where(closer, new, parent)
    component = np.arange(n)
    levels: list[tuple[float, Ints]] = []
    for length, a, b in sorted(edges):
        if not levels or length > levels[-1][0] * (1 + 1e-9):
            levels.append((length, component.copy()))
        component[component == component[b]] = component[a]
    return [*levels, (np.inf, component.copy())]


def groupings(problem: Problem) -> list[list[list[int]]]:
    """Ways to see the devices as groups: the file's, and by nearness, from coarse to fine."""
    named: dict[str, list[int]] = {}
    for device, name in enumerate(problem.groups):
        named.setdefault(name, []).append(device)
    found = [list(named.values())]
    levels = merge_levels(problem.hop)
    for index in dict.fromkeys(np.linspace(0, len(levels) - 1, _LEVELS).round().astype(int).tolist()):
        components: dict[int, list[int]] = {}
        for device, component in enumerate(levels[index][1].tolist()):
            components.setdefault(component, []).append(device)
        groups = list(components.values())
        if groups not in found and len(groups) < problem.devices:
            found.append(groups)
    return found


def starts(problem: Problem, draws: np.random.Generator, count: int) -> Iterator[Ints]:
    """The trivial layouts, bands of every height in several orders of the groups, then as many drawn ones as asked."""
    yield pipelines_inside(problem)
    yield stages_inside(problem)
    ways = groupings(problem)
    heights = [_even_bands(problem.stages, height) for height in range(1, problem.stages + 1)]
    for groups in ways:
        for bands in heights:
            for ordered in (groups, sorted(groups, key=len, reverse=True), sorted(groups, key=len)):
                yield _filled(problem, _chain(problem, ordered[0], groups) if ordered is groups else ordered, bands)
    for _ in range(count):
        groups = ways[draws.integers(len(ways))]
        shuffled = [groups[index] for index in draws.permutation(len(groups))]
        if draws.random() < 0.5:  # near groups after each other
            shuffled = _chain(problem, shuffled[0], groups)
        else:
            shuffled = [[group[i] for i in draws.permutation(len(group))] for group in shuffled]
        bands, left = [], problem.stages
        while left:
            bands.append(int(draws.integers(1, left + 1)))
            left -= bands[-1]
        yield _filled(problem, shuffled, bands)


def _even_bands(stages: int, height: int) -> list[int]:
    return [height] * (stages // height) + ([stages % height] if stages % height else [])


def _chain(problem: Problem, first: list[int], groups: list[list[int]]) -> list[list[int]]:
    """The groups, each followed by the nearest that is left."""
    left = [group for group in groups if group is not first]
    order = [first]
    while left:
        here = order[-1][0]
        order.append(left.pop(int(np.argmin([problem.hop[here, group[0]] for group in left]))))
    return order


def _filled(problem: Problem, groups: list[list[int]], bands: list[int]) -> Ints:
    """Fill each band with pieces of groups as high as the band; what is left over goes where there is room."""
    layout = np.full((problem.stages, problem.replicas), -1)
    left = [list(group) for group in groups]
    top = 0
    for height in bands:
        column = 0
        for group in left:
            while len(group) >= height and column < problem.replicas:
                layout[top : top + height, column] = group[:height]
                del group[:height]
                column += 1
        top += height
    # Row by row: what is left of a group stays in one stage or in neighboring ones.
    layout[layout < 0] = [device for group in left for device in group]
    return layout
