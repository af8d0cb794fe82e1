"""Fronts over layers, held against trying everything."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from heddle.planning.layer_memory.front import POINTS, LayerGroup, front


@pytest.mark.parametrize("seed", range(20))
def test_the_quickest_within_any_room_is_found(seed):
    chance = np.random.default_rng(seed)
    groups = [
        LayerGroup(int(layers), chance.integers(1, 30, options) / 1.0, chance.integers(1, 30, options) / 1.0)
        for layers, options in zip(chance.integers(1, 4, 2), chance.integers(1, 5, 2), strict=True)
    ]
    ways = front(groups)
    every = [range(len(group.seconds)) for group in groups for _ in range(group.layers)]
    of = [group for group in groups for _ in range(group.layers)]
    tried = [
        (sum(g.bytes[o] for g, o in zip(of, way, strict=True)), sum(g.seconds[o] for g, o in zip(of, way, strict=True)))
        for way in product(*every)
    ]
    for room in range(0, 200, 7):
        fitting = [seconds for held, seconds in tried if held <= room]
        at = ways.within(room)
        if at is None:
            assert not fitting
            continue
        assert ways.seconds[at] == min(fitting)
        counts = [each[at] for each in ways.counts]
        assert [int(each.sum()) for each in counts] == [group.layers for group in groups]
        assert sum(float(c @ g.bytes) for c, g in zip(counts, groups, strict=True)) == ways.bytes[at] <= room


def test_a_long_front_is_thinned_and_never_wrong():
    chance = np.random.default_rng(0)
    group = LayerGroup(60, chance.random(8), chance.random(8))
    ways = front([group])
    assert len(ways.seconds) <= POINTS + 2
    np.testing.assert_allclose(ways.counts[0] @ group.bytes, ways.bytes)
    np.testing.assert_allclose(ways.counts[0] @ group.seconds, ways.seconds)
    assert ways.bytes[0] == pytest.approx(60 * group.bytes.min())
    assert ways.seconds[-1] == pytest.approx(60 * group.seconds.min())
