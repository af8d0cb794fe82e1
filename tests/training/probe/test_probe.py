"""Probing: the order of measurements, groups and oddities from tables, and real links between namespaces."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.spec.cluster import Device, Peak
from heddle.spec.network.network_file import dumps_network, load_network
from heddle.training.probe.groups import find_groups, network_of
from heddle.training.probe.tournament import rounds
from tests.helpers.commands import ENVIRONMENT, call
from tests.helpers.sites import sites
from tests.helpers.warm import WarmProcess

CPU = Device(name="cpu", memory_gib=4.0, tflops=Peak(fp32=1.0))


@given(st.integers(1, 70))
def test_everybody_meets_everybody_once_in_as_few_rounds_as_can_be(players):
    found = rounds(players)
    assert sorted(pair for pairs in found for pair in pairs) == list(combinations(range(players), 2))
    assert all(len({player for pair in pairs for player in pair}) == 2 * len(pairs) for pairs in found)
    assert len(found) == (0 if players == 1 else players - 1 + players % 2)


def tables(sizes, late, fast, seed=0):
    """Delays and speeds between places, in some noise."""
    place = np.repeat(np.arange(len(sizes)), sizes)
    noise = np.random.default_rng(seed).uniform(0.85, 1.15, (2, len(place), len(place)))
    return np.array(late)[np.ix_(place, place)] * noise[0], np.array(fast)[np.ix_(place, place)] * noise[1]


THREE = (
    [[1e-4, 0.02, 0.08], [0.02, 2e-4, 0.05], [0.08, 0.05, 1e-4]],
    [[1e9, 1e8, 3e7], [1e8, 1e9, 5e7], [3e7, 5e7, 1e9]],
)


@given(st.lists(st.integers(1, 6), min_size=3, max_size=3), st.integers(0, 1000))
def test_places_are_found_and_the_network_says_what_was_measured(sizes, seed):
    latency, bandwidth = tables(sizes, *THREE, seed)
    expected, at = [], 0
    for size in sizes:
        expected.append(list(range(at, at + size)))
        at += size
    if max(sizes) > 1:
        assert find_groups(latency, bandwidth) == expected
    found = network_of(latency, bandwidth, ["north:1"] * at, [CPU] * at)
    assert sorted(found.ranks) == list(range(at))
    delay, speed = found.network.tables()
    order = np.ix_(found.ranks, found.ranks)
    away = ~np.eye(at, dtype=bool)
    assert np.abs(np.log(np.maximum(delay, 2e-4) / np.maximum(latency[order], 2e-4)))[away].max() < np.log(1.7)
    assert np.abs(np.log(speed[away] / bandwidth[order][away])).max() < np.log(1.7)


def test_equal_devices_are_one_group_and_nothing_is_odd():
    latency, bandwidth = tables([6], [[1e-4]], [[1e9]])
    found = network_of(latency, bandwidth, ["a"] * 6, [CPU] * 6)
    assert [group.devices for group in found.network.groups] == [6]
    assert (found.network.links, found.oddities) == ((), ())


def test_a_slow_member_and_a_one_way_link_are_named(tmp_path):
    latency, bandwidth = tables([4, 3], [[1e-4, 0.02], [0.02, 1e-4]], [[1e9, 1e8], [2e7, 1e9]])
    bandwidth[2, :4] /= 5
    slow = Device(name="cpu", memory_gib=4.0, tflops=Peak(fp32=0.3))
    found = network_of(latency, bandwidth, [*"aaaa", *"bbb"], [*[CPU] * 6, slow])
    assert [group.name for group in found.network.groups] == ["a", "b"]
    assert any(word.startswith("a sends 0.") and "to b, and gets 0." in word for word in found.oddities)
    assert any(word.startswith("a:2 (rank 2) sends") and "the others" in word for word in found.oddities)
    assert any(word == "b:2 (rank 6) multiplies at 0.3 TFLOP/s, but the others at 1." for word in found.oddities)
    assert len(found.oddities) == 3
    _, speed = found.network.tables()
    assert speed[2, 0] == pytest.approx(bandwidth[2, 0], rel=0.01)
    assert speed[0, 5] / speed[5, 0] == pytest.approx(5, rel=0.3)
    (file := tmp_path / "network.toml").write_text(dumps_network(found.network))
    assert load_network(file) == found.network


@pytest.mark.dist
def test_the_command_measures_this_machine(tmp_path, capfd):
    file = tmp_path / "network.toml"
    assert call("probe", "-o", str(file), "--processes", "3", "--quick", "--json") == 0
    shown = json.loads(capfd.readouterr().out)
    network = load_network(file)
    assert network.devices == 3
    assert sorted(shown["ranks"]) == [0, 1, 2]
    assert shown["seconds"] > 0
    assert shown["expected_seconds"] > 0
    assert all(group.device.tflops.fp32 > 0 for group in network.groups)
    assert call("probe", "-o", str(tmp_path / "none" / "network.toml")) == 2


DELAY, RATE = 0.01, 8e6  # seconds one way, bytes per second


@pytest.mark.dist
def test_two_sites_are_found_and_measured(tmp_path):
    """Two machines, two processes each, joined by a slow link, of which one direction is slower yet."""
    file = tmp_path / "network.toml"
    with sites([[0, DELAY], [DELAY, 0]], [[1, RATE], [RATE / 2, 1]]) as made:
        environment = ENVIRONMENT | {"MASTER_ADDR": made.addresses[0], "MASTER_PORT": "29617", "WORLD_SIZE": "4"}
        command = ["heddle", "probe", "-o", str(file), "--quick", "--json"]
        started = [
            WarmProcess(
                command,
                tmp_path,
                environment | {"RANK": str(rank), "LOCAL_RANK": str(rank % 2)},
                namespace=made.namespace(rank // 2),
            )
            for rank in range(4)
        ]
        try:
            shown = started[0].communicate(timeout=120)[0]
            assert [process.wait(timeout=30) for process in started] == [0, 0, 0, 0]
        finally:
            for process in started:
                process.kill()
                process.communicate()
    assert json.loads(shown)["ranks"] == [0, 1, 2, 3]
    network = load_network(file)
    assert [group.devices for group in network.groups] == [2, 2]
    delay, speed = network.tables()
    # other processes of this machine may only make it slower, and by more than a quarter only now and then
    assert DELAY <= np.median(delay[:2, 2:]) < DELAY * 1.5
    # two pairs measure at once: they share the link, or have it alone where this machine runs one after the other
    assert RATE / 2 * 0.65 < np.median(speed[:2, 2:]) < RATE * 1.25
    assert RATE / 4 * 0.65 < np.median(speed[2:, :2]) < RATE / 2 * 1.25
    assert delay[0, 1] < DELAY / 3
