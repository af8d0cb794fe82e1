"""A layout as a terminal shows it: which group holds which stage, what it costs in seconds, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from heddle.planning.regions.cases import Case
from heddle.planning.regions.problem import Ints, Problem
from heddle.planning.regions.solve import Found
from heddle.spec.network import in_words


def draw(case: Case, found: Found, width: int = 100) -> Iterator[str]:
    """Lines for people. All times are seconds of one training step's communication."""
    problem, layout = case.problem, found.layout
    yield f"{case.network.name}: {in_words(case.network)}; {case.pipeline} stages × {case.data} replicas"
    yield f"a stage exchanges {case.gradient_gb:g} GB of gradients, a hop carries {case.activation_gb:g} GB per batch"
    yield ""
    held = [_held(problem, devices) for devices in layout.devices]
    room = min(max(len("devices"), *map(len, held)), max(20, width - 34))
    yield f"stage  {'devices':<{room}}  exchange s  next hop s"
    hops = [f"{hop:10.2f}" for hop in layout.hops] + [f"{'':>10}"]
    for stage, (devices, exchange, hop) in enumerate(zip(held, layout.exchange, hops, strict=True)):
        shown = devices if len(devices) <= room else f"{devices[: room - 1]}…"
        yield f"{stage:>5}  {shown:<{room}}  {exchange:10.2f}  {hop}".rstrip()
    yield ""
    yield (
        f"cost     {layout.cost:.2f} s per step: {layout.data:.2f} s exchange of gradients in the busiest stage "
        f"+ {layout.pipeline:.2f} s, each hop there and back"
    )
    yield f"bound    {found.bound:.2f} s: " + _proof(found)
    yield (
        f"trivial  {found.pipelines_inside:.2f} s with each pipeline inside a group, "
        f"{found.stages_inside:.2f} s with each stage inside one"
    )
    yield from (
        f"why      {line}" if not number else f"         {line}" for number, line in enumerate(_why(problem, found))
    )
    yield f"search   {found.seconds:.2f} s of CPU"


def _held(problem: Problem, devices: Ints) -> str:
    """The groups of a stage, and how many devices it has of each."""
    count = Counter(problem.groups[device] for device in sorted(devices.tolist()))
    return " ".join(f"{name}×{number}" if number > 1 else name for name, number in count.items())


def _proof(found: Found) -> str:
    if found.optimal:
        return "no layout costs less"
    return f"no layout costs less than that; this one may be {found.layout.cost / found.bound - 1:.0%} above the best"


def _why(problem: Problem, found: Found) -> Iterator[str]:
    layout = found.layout
    group = np.array(problem.groups)
    stage = int(layout.exchange.argmax())
    members = layout.devices[stage]
    between = problem.exchange[np.ix_(members, members)]
    busiest = int(between.sum(axis=1).argmax())
    furthest = int(between[busiest].argmax())
    if problem.replicas > 1:
        yield (
            f"stage {stage} is the busiest: {_called(problem, members[busiest])} exchanges with {problem.replicas - 1} "
            f"others, for the longest with {_called(problem, members[furthest])}"
        )
    if problem.stages > 1:
        crossing = (group[layout.devices[:-1]] != group[layout.devices[1:]]).any(axis=1)
        slow = int(layout.hops.argmax())
        pairs = problem.hop[layout.devices[slow], layout.devices[slow + 1]]
        worst = int(pairs.argmax())
        leave = (
            f"{int(crossing.sum())} of {problem.stages - 1} hops leave their group"
            if crossing.any()
            else "no hop leaves its group"
        )
        yield (
            f"{leave}; the slowest is from "
            f"{_called(problem, layout.devices[slow, worst])} to {_called(problem, layout.devices[slow + 1, worst])}"
        )


def _called(problem: Problem, device: int) -> str:
    """A device as a network file calls it."""
    name = problem.groups[device]
    number = int(device) - problem.groups.index(name)
    return name if problem.groups.count(name) == 1 else f"{name}:{number}"
