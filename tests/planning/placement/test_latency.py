"""Placement for latency: a plain simulation, brute force, and what the published programs answered."""

import csv
import itertools
import math

import pytest
from hypothesis import given, settings

from heddle.errors import HeddleError
from heddle.planning.placement.latency import fill, latency_of, lower_bound
from heddle.planning.placement.operator_graph import graph_from, read_graph
from heddle.planning.placement.place import place
from tests.helpers.published import DATA, needs_data
from tests.planning.placement.test_place import documents, small


def simulated(problem, unit):
    """When all is done, if every group's unit (a part's number, or None for a CPU) starts when its inputs are there.

    Parts are one an accelerator here, so nobody takes turns.
    """
    edges = list(zip(problem.order.tails.tolist(), problem.order.heads.tolist(), strict=True))
    done = {}
    name = {g: ("cpu", g) if unit[g] is None else ("part", unit[g]) for g in range(problem.groups)}

    def finish(which, waiting):
        if which in waiting:
            raise ValueError("parts wait for each other")
        if which not in done:
            mine = [g for g in name if name[g] == which]
            start = max(
                (finish(name[u], {*waiting, which}) for u, v in edges if v in mine and u not in mine), default=0
            )
            if which[0] == "cpu":
                takes = problem.cpu[mine[0]]
            else:
                takes = sum(problem.accelerator[g] for g in mine)
                for net, cost in zip(problem.nets, problem.cost, strict=True):
                    inside = [net[g] and g in mine for g in range(problem.groups)]
                    takes += cost if any(inside) and sum(inside) < net.sum() else 0
            done[which] = start + takes
        return done[which]

    return max(finish(which, set()) for which in set(name.values()))


def brute_force(problem):
    best = math.inf
    places = [*range(problem.accelerators), *([None] if problem.cpus else [])]
    for unit in itertools.product(places, repeat=problem.groups):
        held = [
            sum(problem.size[g] for g in range(problem.groups) if unit[g] == m) for m in range(problem.accelerators)
        ]
        if any(u is not None and not problem.supported[g] for g, u in enumerate(unit)):
            continue
        if all(size <= problem.memory for size in held):
            try:
                best = min(best, simulated(problem, unit))
            except ValueError:
                continue
    return best


@given(documents(most=4))
@settings(deadline=None, max_examples=25)
def test_the_integer_program_is_as_good_as_brute_force(document):
    for node in document["nodes"]:  # a part that takes no time may wait for itself
        node["fpgaLatency"] += 1
        node["cpuLatency"] += 1
    try:
        graph = graph_from(document)
        problem = graph.problem
        best = brute_force(problem)
        found = place(graph, objective="latency", time_limit=20)
    except HeddleError:
        return
    assert found.optimal
    assert found.value == pytest.approx(best, rel=1e-4)
    assert lower_bound(problem) <= best * (1 + 1e-9)


@given(documents(most=5))
@settings(deadline=None, max_examples=40)
def test_the_latency_of_parts_is_what_a_plain_simulation_says(document):
    document |= {"maxFPGAs": 2, "maxCPUs": 1}
    problem = graph_from(document).problem
    parts = fill(problem)
    unit = [next((m for m, groups in parts if g in groups), None) for g in range(problem.groups)]
    try:
        expected = simulated(problem, unit)
    except ValueError:
        expected = math.inf
    assert latency_of(problem, parts) == pytest.approx(expected)


def test_parts_of_one_accelerator_take_turns():
    problem = graph_from(small(edges=[])).problem
    assert latency_of(problem, [(0, [0]), (0, [1]), (1, [2]), (1, [3])]) == 2


def test_training_graphs_have_no_latency():
    document = small()
    document["nodes"][3]["isBackwardNode"] = True
    with pytest.raises(HeddleError, match="backward operators"):
        place(graph_from(document), objective="latency")


def feasible_rows():
    path = DATA / "reference_placement.csv"
    if not path.exists():
        return {}
    best = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            source = DATA / "placement" / "latency" / row["granularity"] / f"{row['workload']}.json"
            if row["objective"] == "latency" and row["status"] == "ok" and source.exists():
                best[source] = min(best.get(source, math.inf), float(row["value_ms"]))
    return best


@needs_data
@pytest.mark.parametrize(
    ("path", "value"), [pytest.param(p, v, id=f"{p.parent.name}-{p.stem}") for p, v in feasible_rows().items()]
)
def test_as_good_as_the_published_answers(path, value):
    found = place(read_graph(path), objective="latency", method="dpl")
    assert found.value <= value * (1 + 1e-5)
    assert 0 < found.lower_bound <= found.value
