"""Graphs of thousands of nodes: the time limit is kept, bounds stay bounds, and memory is bounded."""

from __future__ import annotations

import random
import time
import tracemalloc

import numpy as np
import pytest

from heddle.planning.piper.solve import plan_pipelines
from heddle.planning.piper.workload import workload_from
from heddle.planning.placement.heuristics import feasible, loads_of
from heddle.planning.placement.operator_graph import graph_from
from heddle.planning.placement.place import place
from heddle.planning.placement.reduce import MOST_GROUPS, coarsened

LIMIT = 3.0  # seconds, of which merging ten thousand operators takes one
SEVERAL = 12  # times the limit, in seconds of this process: what lies between two looks at the clock


def edges_of(nodes: int, shape: str, chance: random.Random) -> list[tuple[int, int]]:
    match shape:
        case "chain":
            return [(n, n + 1) for n in range(nodes - 1)]
        case "wide":
            return [(0, n) for n in range(1, nodes)]
    near = [(chance.randrange(max(0, n - 50), n), n) for n in range(1, nodes)]
    return near + [(chance.randrange(n), n) for n in range(1, nodes, 3)]


def operators(nodes: int, shape: str, **more):
    chance = random.Random(nodes)
    return graph_from(
        {
            "maxFPGAs": 4,
            "maxCPUs": 1,
            "maxSizePerFPGA": 1e9 * nodes,
            "nodes": [
                {
                    "id": n,
                    "fpgaLatency": chance.random(),
                    "cpuLatency": 9 * chance.random(),
                    "size": 1e9 * chance.random(),
                }
                for n in range(nodes)
            ],
            "edges": [{"sourceId": a, "destId": b, "cost": chance.random()} for a, b in edges_of(nodes, shape, chance)],
        }
        | more
    )


def layers(nodes: int, shape: str):
    chance = random.Random(nodes)

    def option(tensor):
        seconds = chance.random() / tensor
        return {"timePerSample": seconds, "parameterSize": 1e6, "memoryUsageA": 1e6, "memoryUsageB": 1e6}

    return workload_from(
        {
            "maxDevices": 32,
            "maxMemoryPerDevice": 1e9 * nodes,
            "bandwidth": 1e9,
            "mbsInBatch": 32,
            "nodes": [{"id": n, "TMPCs": {str(t): [option(t)] for t in (1, 2)}} for n in range(nodes)],
            "edges": [
                {"sourceId": a, "destId": b, "communicationCost": 1e5} for a, b in edges_of(nodes, shape, chance)
            ],
        }
    )


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("nodes", "shape", "options"),
    [
        (3000, "random", {}),
        (3000, "wide", {"objective": "latency"}),
        slow(10_000, "random", {"objective": "latency"}),
        (10_000, "random", {"contiguous": False}),
        slow(10_000, "random", {}),
        slow(10_000, "chain", {}),
        slow(10_000, "wide", {}),
        slow(10_000, "chain", {"objective": "latency"}),
        slow(10_000, "wide", {"objective": "latency"}),
        slow(10_000, "chain", {"contiguous": False}),
        slow(10_000, "wide", {"contiguous": False}),
    ],
)
def test_placing_keeps_the_time_limit(nodes, shape, options, monkeypatch):
    graph = operators(nodes, shape)
    # The clock of this process: what others do on the machine makes no second longer.
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    began = time.process_time()
    found = place(graph, time_limit=LIMIT, **options)
    assert time.process_time() - began < 1.2 * LIMIT
    assert sorted(operator for device in found.devices for operator in device.operators) == list(range(nodes))
    assert 0 < found.lower_bound <= found.value
    assert not found.optimal
    assert any("merged along one line" in note for note in found.notes)


@pytest.mark.parametrize(("nodes", "shape"), [(3000, "chain"), slow(10_000, "chain"), slow(10_000, "random")])
def test_piper_keeps_the_time_limit(nodes, shape):
    workload = layers(nodes, shape)
    began = time.process_time()
    found = plan_pipelines(workload, time_limit=3.0)[32]
    assert time.process_time() - began < SEVERAL * (1 + nodes / 5000)
    assert sorted(layer for stage in found.stages for layer in stage.layers) == list(range(nodes))
    assert 0 < found.lower_bound <= found.value
    assert "one line of layers" in found.note


def test_a_large_problem_is_merged_and_a_small_one_is_not():
    small = operators(MOST_GROUPS // 2, "random").problem
    assert coarsened(small, contiguous=True) is small
    graph = operators(2500, "random")
    for problem, contiguous in ((graph.problem, True), (graph.loose, False)):
        merged = coarsened(problem, contiguous)
        assert merged.groups < MOST_GROUPS
        assert merged.accelerator.sum() == pytest.approx(problem.accelerator.sum())
        assert merged.size.sum() == pytest.approx(problem.size.sum())
        # An assignment of blocks is one of groups, with the same loads.
        chance = random.Random(0)
        blocks = np.array([chance.randrange(4) for _ in range(merged.groups)])
        whole = np.empty(problem.groups, dtype=np.int64)
        whole[problem.group] = blocks[merged.group]
        assert loads_of(merged, blocks) == pytest.approx(loads_of(problem, whole))
        assert feasible(merged, blocks) == feasible(problem, whole)


def test_many_devices_of_both_kinds_take_no_table_of_their_product():
    graph = operators(600, "chain", maxFPGAs=500, maxCPUs=500)
    tracemalloc.start()
    try:
        found = place(graph, time_limit=1.0)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2**30
    assert found.value >= found.lower_bound
