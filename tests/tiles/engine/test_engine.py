"""The engine alone: tiles that write down when they ran."""

import ctypes
import random
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir

from heddle.tiles.engine import layout as at
from heddle.tiles.engine.pool import pool
from heddle.tiles.kernels.emit import HEADER, I32, Code
from heddle.tiles.kernels.library import library


class Stamp:
    """A kernel that takes the next number of a counter, and writes it down."""

    def __repr__(self) -> str:
        return "stamp"

    def write(self, name, target):
        code = Code(name, target)
        counter, place = code.pointer(), code.pointer()
        number = code.block.atomic_rmw(
            "add", code.block.bitcast(counter, I32.as_pointer()), ir.Constant(I32, 1), "seq_cst"
        )
        code.store(number, place)
        return code.finish()


class Graph:
    def __init__(self, parents: list[list[int]]) -> None:
        count = len(parents) + 1
        self.parents, self.counter, self.stamps = (
            parents,
            np.zeros(1, dtype=np.int32),
            np.full(count, -1, dtype=np.int32),
        )
        self.records = np.zeros((count, HEADER + 2), dtype=np.int64)
        children: list[list[int]] = [[] for _ in range(count)]
        for number, waits in enumerate(parents, 1):
            for parent in waits or [0]:
                children[parent].append(number)
        self.children = np.array([each for row in children for each in row], dtype=np.int32)
        self.waits = np.array([0, *(max(1, len(each)) for each in parents)], dtype=np.int32)
        self.left = self.waits.copy()
        self.records[1:, at.KERNEL] = library().address(Stamp())
        self.records[:, at.FIRST_CHILD] = np.cumsum([0, *map(len, children)])[:-1]
        self.records[:, at.CHILD_COUNT] = [len(row) for row in children]
        self.records[:, HEADER] = self.counter.ctypes.data
        self.records[:, HEADER + 1] = self.stamps.ctypes.data + 4 * np.arange(count)
        self.sinks, self.bases = sum(not row for row in children), np.zeros(1, dtype=np.int64)

    def run(self, workers, level: int = 1) -> None:
        self.counter[:], self.stamps[:], self.left[:] = 0, -1, self.waits
        workers.run(self.fill, len(self.records), level)
        assert sorted(self.stamps[1:]) == list(range(len(self.parents)))  # each once
        for number, waits in enumerate(self.parents, 1):
            assert all(self.stamps[parent] < self.stamps[number] for parent in waits)

    def fill(self, call) -> None:
        call[at.RECORDS], call[at.RECORD_BYTES] = self.records.ctypes.data, self.records.strides[0]
        call[at.COUNTERS], call[at.CHILDREN] = self.left.ctypes.data, self.children.ctypes.data
        call[at.BASES], call[at.LEFT] = self.bases.ctypes.data, self.sinks


def layered(layers: int, width: int, fan: int) -> Graph:
    return Graph([
        [] if layer == 0 else sorted({1 + (layer - 1) * width + (place + k) % width for k in range(fan)})
        for layer in range(layers)
        for place in range(width)
    ])  # fmt: skip


@given(st.integers(0, 10**6), st.integers(1, 120), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_each_tile_runs_once_and_after_its_parents(seed, count, threads):
    chance = random.Random(seed)
    parents = [sorted(chance.sample(range(1, n), min(n - 1, chance.randint(0, 4)))) for n in range(1, count + 1)]
    graph = Graph(parents)
    for _ in range(3):
        graph.run(pool(threads))


def test_calls_of_many_threads_share_the_workers():
    failed = []

    def call(number: int) -> None:
        graph = layered(12, 8, 3)
        try:
            for _ in range(60):
                graph.run(pool(3), level=number % at.LEVELS)
        except BaseException as error:
            failed.append(error)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert not failed


@pytest.mark.parametrize("level", [0, 2])
def test_a_call_of_a_higher_level_goes_before_what_is_ready(level):
    """One worker is at a first tile until a second call has come; then it takes that one's tiles first, or last."""
    workers, first, second = pool(1), Graph([[n] if n else [] for n in range(30)]), Graph([[], [], [1, 2]])
    second.records[:, HEADER] = first.records[0, HEADER]  # one counter for both

    def wait(record, bases, scratch) -> None:
        while workers.memory[at.ACTIVE] < 2:
            time.sleep(0.001)

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(wait)
    first.records[1, at.KERNEL] = ctypes.cast(callback, ctypes.c_void_p).value
    caller = threading.Thread(target=lambda: workers.run(first.fill, len(first.records), 1))
    caller.start()
    while workers.memory[at.ACTIVE] < 1:
        time.sleep(0.001)
    workers.run(second.fill, len(second.records), level)
    caller.join()
    early, late = (second, first) if level == 0 else (first, second)
    assert early.stamps.max() < late.stamps[late.stamps >= 0].min()


def test_workers_sleep_when_nothing_runs():
    layered(10, 10, 2).run(pool(4))
    before, asleep = time.process_time(), 0.3
    time.sleep(asleep)
    assert time.process_time() - before < asleep / 3  # one that spins would take all of it


def test_a_tile_costs_less_than_a_microsecond_to_dispatch():
    graph, best = layered(100, 32, 3), float("inf")
    for _ in range(20):  # the best of many: a busy machine only makes it longer
        graph.left[:] = graph.waits
        start = time.perf_counter()
        pool(1).run(graph.fill, len(graph.records))
        best = min(best, time.perf_counter() - start)
    assert best / len(graph.records) < 1e-6


def test_a_trace_has_the_times_of_all_tiles():
    graph = layered(5, 4, 2)
    times = np.zeros((len(graph.records), at.TIME_WORDS), dtype=np.int64)

    def fill(call) -> None:
        graph.left[:] = graph.waits
        graph.fill(call)
        call[at.TIMES] = times.ctypes.data

    pool(2).run(fill, len(graph.records))
    assert (times[1:, 0] < 2).all()
    assert (times[1:, 1] > 0).all()
    assert (times[1:, 2] >= times[1:, 1]).all()


def test_more_tiles_than_a_stack_holds_are_refused():
    from heddle import HeddleError

    with pytest.raises(HeddleError, match="tiles"):
        pool(1).run(lambda call: None, at.CAPACITY + 1)
