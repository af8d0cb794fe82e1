"""Placement for the latency of one sample.

As in the paper, an accelerator runs *parts*: contiguous sets of operators. A part begins when all that it needs is
there, fetches its inputs, computes, and hands out its outputs; the parts of one accelerator take turns. CPUs run
operators one by one, as many at a time as there are.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.graph.dag import Dag, Floats
from heddle.graph.deadline import OutOfTime
from heddle.graph.ideals import chain, linear_extension
from heddle.planning.placement.dp import Loads, best_split
from heddle.planning.placement.ip import Progress, require_ortools
from heddle.planning.placement.operator_graph import OperatorGraph, PlacementProblem
from heddle.planning.placement.reduce import coarsened
from heddle.planning.placement.result import PlacedDevice, Placement

CPU = -1
Parts = list[tuple[int, list[int]]]  # (accelerator, groups); groups in no part run on CPUs


def place_for_latency(
    graph: OperatorGraph, method: str, time_limit: float, progress: Progress | None = None, parts: int = 1
) -> Placement:
    """The placement with the smallest latency that the method finds; `parts` is for each accelerator."""
    started = time.perf_counter()
    if graph.backward.any():
        raise HeddleError(
            "The graph has backward operators, but latency is defined for one forward pass.",
            "In training, the latency of one sample does not matter: the next samples fill the pipeline.",
            "Use --objective throughput, or a graph without backward operators.",
        )
    whole = graph.problem
    problem = coarsened(whole, contiguous=True)
    bound = lower_bound(whole)
    best: Parts | None = None
    value, notes, optimal = np.inf, [], False
    if problem is not whole:
        notes.append(
            f"The graph is large: {whole.groups:,} groups of operators were merged along one line into "
            f"{problem.groups:,} before the search."
        )
    try:
        for candidate in _candidates(problem, method, started + time_limit):
            if best is not None and time.perf_counter() > started + time_limit:
                notes.append("Time ran out: the best so far.")
                break
            latency = latency_of(problem, candidate)
            if latency < value:
                best, value = candidate, latency
                if progress:
                    progress(value, bound)
        if method in ("auto", "ip") and best is not None:
            left = time_limit - (time.perf_counter() - started)
            if (
                problem is not whole
                or left < 0.1
                or (method == "auto" and problem.groups * problem.accelerators > 1500)
            ):
                notes.append("Too large for the integer program: the bound is the longest path.")
            elif value > bound * (1 + 1e-9):
                from heddle.planning.placement.latency_ip import best_parts

                require_ortools()
                found, proven, optimal = best_parts(problem, best, value, left, parts, progress)
                bound = max(bound, min(proven, value))
                if found is not None and (latency := latency_of(problem, found)) < value:
                    best, value = found, latency
    except KeyboardInterrupt:
        notes.append("Stopped by Ctrl-C: the best so far.")
    if best is None:
        raise HeddleError(
            "No placement was found that fits the accelerators' memory.",
            f"Together the operators need {problem.size.sum() / GIB:.3g} GiB.",
            "Give more devices, more memory or a CPU.",
        )
    optimal = bool(optimal or value <= bound * (1 + 1e-9))
    seconds = time.perf_counter() - started
    devices = _devices(graph, problem, best)
    return Placement("latency", method, value, min(bound, value), optimal, True, "all", seconds, devices, tuple(notes))


def _candidates(problem: PlacementProblem, method: str, deadline: float) -> Iterator[Parts]:
    if method in ("auto", "ip", "greedy", "local"):
        yield from _fitting(problem, fill(problem))
    if method == "one":
        yield from _fitting(problem, [(0, list(range(problem.groups)))])
    if method in ("auto", "ip", "dpl", "dp"):
        split = None
        with suppress(OutOfTime):
            for order in _orders(problem.order):
                yield from _fitting(problem, serial(problem, order, deadline))
            split = best_split(problem, chain(problem.groups, linear_extension(problem.order)), np.inf, deadline)
        if split is not None:
            accelerated = [groups for is_cpu, groups in split.parts if not is_cpu and groups]
            yield from _fitting(problem, list(enumerate(accelerated)))


def _fitting(problem: PlacementProblem, parts: Parts) -> Iterator[Parts]:
    held = np.zeros(max(problem.accelerators, 1))
    inside = np.zeros(problem.groups, dtype=np.bool_)
    for device, groups in parts:
        if device >= problem.accelerators or not problem.supported[groups].all():
            return
        held[device] += problem.size[groups].sum()
        inside[groups] = True
    if (held <= problem.memory * (1 + 1e-9)).all() and (problem.cpus or inside.all()):
        yield parts


def _orders(graph: Dag) -> Iterator[list[int]]:
    """Several linear extensions: deep first, wide first, and backwards from the end."""
    yield linear_extension(graph)
    yield graph.order
    yield linear_extension(graph.reverse)[::-1]


def fill(problem: PlacementProblem) -> Parts:
    """Greedy: one accelerator after the other takes what its memory holds, in topological order; CPUs the rest."""
    parts: Parts = [(device, []) for device in range(problem.accelerators)]
    at, held = 0, 0.0
    for group in linear_extension(problem.order):
        if not problem.supported[group] or problem.size[group] > problem.memory:
            continue
        if held + problem.size[group] > problem.memory:
            at, held = at + 1, 0.0
        if at >= problem.accelerators:
            break
        parts[at][1].append(group)
        held += problem.size[group]
    return [part for part in parts if part[1]]


def serial(problem: PlacementProblem, order: list[int], deadline: float = np.inf) -> Parts:
    """The best split of one line into parts and CPU operators, were everything run one after the other."""
    prefixes = chain(problem.groups, order)
    loads = Loads(problem, prefixes, deadline)
    # Loads orders ideals by time; here they go by size.
    by_size = np.argsort(loads.members.sum(axis=1))
    on_accelerator = loads.on_accelerator(by_size, by_size)
    count, devices = len(by_size), problem.accelerators
    on_cpu = problem.cpu[order] if problem.cpus else np.full(problem.groups, np.inf)
    best = np.full((devices + 1, count), np.inf)
    cause = np.full((devices + 1, count), CPU, dtype=np.int64)
    for used in range(devices + 1):
        if used:
            reached = best[used - 1][:, None] + on_accelerator
            cause[used] = reached.argmin(axis=0)
            best[used] = reached[cause[used], np.arange(count)]
        else:
            best[0, 0] = 0.0
        for end in range(1, count):
            if best[used, end - 1] + on_cpu[end - 1] < best[used, end]:
                best[used, end], cause[used, end] = best[used, end - 1] + on_cpu[end - 1], CPU
    used, end, parts = int(best[:, -1].argmin()), count - 1, []
    while end:
        if cause[used, end] == CPU:
            end -= 1
        else:
            begin = int(cause[used, end])
            used -= 1
            if begin < end:
                parts.append((used, order[begin:end]))
            end = begin
    return parts[::-1]


def latency_of(problem: PlacementProblem, parts: Parts) -> float:
    """When the last operator is done; infinite where parts wait for each other."""
    unit = np.full(problem.groups, CPU, dtype=np.int64)
    for number, (_, groups) in enumerate(parts):
        unit[groups] = number
    alone = np.flatnonzero(unit == CPU)
    unit[alone] = len(parts) + np.arange(len(alone))
    tails, heads = unit[problem.order.tails], unit[problem.order.heads]
    between = tails != heads
    units = Dag(len(parts) + len(alone), tails[between], heads[between])
    if len(units.order) < units.nodes:
        return float(np.inf)
    takes = np.empty(units.nodes)
    for number, (_, groups) in enumerate(parts):
        inside = np.zeros(problem.groups, dtype=np.bool_)
        inside[groups] = True
        takes[number] = problem.accelerator_load(inside)
    takes[len(parts) :] = problem.cpu[alone]
    free = [0.0] * max(problem.accelerators, 1)
    done = [0.0] * units.nodes
    waiting = [len(before) for before in units.predecessors]
    ready = [(0.0, node, node) for node in range(units.nodes) if not waiting[node]]  # when it can go; who came first
    came = units.nodes
    while ready:  # of those that can go, the earliest goes: parts of one accelerator take turns
        begins, turn, node = heapq.heappop(ready)
        if node < len(parts) and free[parts[node][0]] > begins:  # its accelerator was given to another meanwhile
            heapq.heappush(ready, (free[parts[node][0]], turn, node))
            continue
        done[node] = begins + float(takes[node])
        if node < len(parts):
            free[parts[node][0]] = done[node]
        for after in units.successors[node]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, (max(done[before] for before in units.predecessors[after]), came, after))
                came += 1
    return max(done, default=0.0)


def lower_bound(problem: PlacementProblem) -> float:
    """The longest path, each group where it is fastest, with a price on memory where that is short.

    For any price per byte, a path takes at least the sum of min(CPU time, accelerator time + price · size), less the
    price of all memory there is.
    """
    cpu = problem.cpu if problem.cpus else np.full(problem.groups, np.inf)
    own = np.where(problem.supported & (problem.size <= problem.memory), problem.accelerator, np.inf)
    total = problem.accelerators * problem.memory
    saves = np.maximum(cpu - own, 0)[np.isfinite(cpu - own) & (problem.size > 0)]
    sized = problem.size[np.isfinite(cpu - own) & (problem.size > 0)]
    prices = [0.0, *np.quantile(saves / sized, np.linspace(0, 1, 33)).tolist()] if len(saves) else [0.0]
    price = np.array(prices)
    takes = np.minimum(cpu[:, None], own[:, None] + problem.size[:, None] * price)
    return float((_longest(problem.order, takes) - price * total).max())


def _longest(graph: Dag, takes: Floats) -> Floats:
    """The longest path for each column of times: (nodes, columns)."""
    done = takes.copy()
    for node in graph.order:
        if before := graph.predecessors[node]:
            done[node] += done[before].max(axis=0)
    return np.asarray(done.max(axis=0, initial=0.0))


def _devices(graph: OperatorGraph, problem: PlacementProblem, parts: Parts) -> list[PlacedDevice]:
    device = np.full(problem.groups, problem.accelerators, dtype=np.int64)
    loads = np.zeros(problem.accelerators + 1)
    for accelerator, groups in parts:
        device[groups] = accelerator
        inside = np.zeros(problem.groups, dtype=np.bool_)
        inside[groups] = True
        loads[accelerator] += problem.accelerator_load(inside)
    loads[-1] = problem.cpu[device == problem.accelerators].sum()
    placed = device[problem.group]
    operators: list[list[object]] = [[] for _ in loads]
    for operator in graph.graph.order:
        operators[int(placed[operator])].append(graph.operators[operator])
    held = np.bincount(placed, graph.size, minlength=len(loads))
    kinds = ["accelerator"] * problem.accelerators + ["cpu"]
    return [
        PlacedDevice(kind, float(loads[m]), float(held[m]), operators[m])  # type: ignore[arg-type]
        for m, kind in enumerate(kinds)
        if kind == "accelerator" or problem.cpus
    ]
