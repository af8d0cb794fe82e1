"""Simulated machines, against what can be worked out by hand."""

import math
import random

import pytest

from heddle import HeddleError
from heddle.tiles.graph import Tile, TileGraph
from heddle.tiles.simulate import Machine, TileWorkload, barriers, dataflow, simulated


class Piece:
    def __init__(self, count):
        self.name, self.kind, self.count = "piece", "test", count

    def tiles(self):
        return [Tile(None, [], [], []) for _ in range(self.count)]


def work(layers, waits):
    """Layers of so many tiles; `waits` gives the parents of tile `place` of a layer, as places in the one before."""
    graph = TileGraph([Piece(count) for count in layers])
    first = 1
    for number, count in enumerate(layers):
        before = first - (layers[number - 1] if number else 0)
        for place in range(count):
            graph.tiles.append(Tile(None, [], [], []))
            graph.owner.append(number)
            graph.parents.append([before + each for each in waits(number, place)] if number else [])
        first += count
    return graph


def test_one_core_takes_the_sum_whatever_the_engine():
    graph = work([4, 4, 4], lambda layer, place: [place])
    load = TileWorkload(graph, [1.0] * 12, [[1.0]] * 12)
    one = Machine((1.0,), math.inf)
    assert dataflow(load, one, load.seconds) == barriers(load, one, load.seconds, True) == 12
    assert barriers(load, one, load.seconds, False) == 12


def test_barriers_wait_and_dataflow_does_not():
    # Three tiles a layer on two cores: a barrier leaves a core idle in every layer.
    graph = work([3] * 4, lambda layer, place: sorted({place, (place + 1) % 3}))
    load = TileWorkload(graph, [1.0] * 12, [[1.0]] * 12)
    two = Machine((1.0, 1.0), math.inf)
    assert barriers(load, two, load.seconds, False) == 8
    assert dataflow(load, two, load.seconds) < 8


def test_slow_cores_hold_a_static_split_back():
    graph = work([256] * 6, lambda layer, place: [place])
    chance = random.Random(0)
    seconds = [1 + 0.2 * chance.random() for _ in range(1536)]
    found = simulated(TileWorkload(graph, seconds, [[s] for s in seconds]), Machine.of(16, "8x0.45", 1e15))
    speed = found["speedup"]
    assert speed["barriers, static"] < speed["barriers, stealing"] < speed["dataflow"] <= 8 + 8 * 0.45 + 1e-9
    assert speed["dataflow"] > 0.9 * 11.6
    assert found["due_to_spread"]["barriers, static"] == pytest.approx(0, abs=1e-9)  # each tile took one time only


def test_memory_is_shared():
    graph = work([8], lambda layer, place: [])
    for tile in graph.tiles:
        tile.bytes = 1e10  # in a second: all that a core can draw
    load = TileWorkload(graph, [1.0] * 8, [[1.0]] * 8)
    assert dataflow(load, Machine((1.0,) * 8, 8e10), load.seconds) == pytest.approx(1)
    assert dataflow(load, Machine((1.0,) * 8, 1e10), load.seconds) > 2


@pytest.mark.parametrize("slow", ["x", "8", "9x1x", "-1x0.5", "3x0", "5x0.5"])
def test_slow_cores_that_say_nothing_are_refused(slow):
    with pytest.raises(HeddleError, match="--slow"):
        Machine.of(4, slow)
