"""A step over links that differ: against the replay, by hand, and against real processes at real sites."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.schedule import NAMES, build, rule_of
from heddle.simulating.network.clock import end_times
from heddle.simulating.network.devices import devices_of
from heddle.simulating.network.over_network import step_over_network
from heddle.simulating.replay import step_time
from heddle.simulating.simulation import simulate
from heddle.spec.job import job_from_tables
from heddle.spec.network import DeviceGroup, GroupLink, Network
from tests.helpers.commands import ENVIRONMENT, REPOSITORY
from tests.helpers.sites import sites


@given(
    st.sampled_from(NAMES), st.integers(1, 5), st.integers(1, 9), st.integers(1, 3), st.floats(0, 3), st.floats(0.1, 3)
)
def test_with_links_that_carry_everything_at_once_it_is_the_replay(name, pipeline, count, virtual, latency, forward):
    rule = rule_of(name)
    virtual = max(rule.least_virtual, min(virtual, rule.most_virtual or virtual)) if pipeline > 1 else 1
    assume(virtual >= rule.least_virtual)
    schedule = build(name, pipeline, count - 1 + int(rule.least_microbatches(pipeline)), virtual)
    hops = {(a, b): (latency, 0.0) for a in range(pipeline) for b in range(pipeline)}
    found = end_times(schedule, [forward] * schedule.chunks, [2.0] * schedule.chunks, hops)
    assert max(found) == pytest.approx(step_time(schedule, forward, 2.0, latency))


def test_messages_queue_on_a_link():
    """Two stages, three forwards of 1 each, messages of 4: the last one has gone at 1 + 3·4."""
    schedule = build("gpipe", 2, 3)
    hops = {(0, 1): (0.5, 4.0), (1, 0): (0.5, 0.0)}
    first, second = end_times(schedule, [1.0, 1.0], [2.0, 2.0], hops)
    assert second == 1 + 3 * 4 + 0.5 + 1 + 3 * 2
    assert first == second + 0.5 + 2


def tables(plan: dict, slow: float = 1.0) -> dict:
    """A job whose compute is little beside its messages, on devices that are so many times as slow."""
    return {
        "model": {"layers": 4, "hidden": 96, "heads": 4, "vocab": 64, "sequence": 64, "ffn": 128},
        "data": {"text": "-"},
        "train": {"steps": 20, "global_batch": 8},
        "plan": plan,
        "cluster": {
            "nodes": 1,
            "devices": 4,
            "links": [{"name": "any", "gbs": 1.0}],
            "device": {
                "name": "cpu",
                "memory_gib": 4,
                "memory_gbs": 10.0 / slow,
                "host": True,
                "tflops": {"fp32": 0.05 / slow},
            },
            "efficiency": {"launch_us": 10.0 * slow, "jitter": 0.0},
        },
    }


def network(delay, rate) -> Network:
    names = [f"site{number}" for number in range(len(delay))]
    links = tuple(
        GroupLink(source=a, target=b, latency_ms=1e3 * delay[i][j], gbps=8e-9 * rate[i][j])
        for i, a in enumerate(names)
        for j, b in enumerate(names)
        if i != j
    )
    return Network(groups=tuple(DeviceGroup(name=name) for name in names), links=links)


FAR, RATE = 0.05, 1e6
DELAY = [[0, 0.005, FAR, FAR], [0.005, 0, FAR, FAR], [FAR, FAR, 0, 0.01], [FAR, FAR, 0.01, 0]]
RATES = [[1, 4e6, RATE, RATE], [4e6, 1, RATE, RATE], [RATE, RATE, 1, 2e6], [RATE, RATE, 2e6, 1]]


def predicted(plan: dict, devices=None, slow: float = 1.0) -> float:
    return step_over_network(job_from_tables(tables(plan, slow)), network(DELAY, RATES), devices).seconds


def test_what_sends_less_or_waits_less_takes_less():
    assert predicted({"data": 4, "compress_gradients": "int8"}) < predicted({"data": 4}) / 2
    assert predicted({"data": 4, "local_steps": 50}) < predicted({"data": 4}) / 10
    deep = {"pipeline": 4, "schedule": "deep-1f1b"}
    # the last stage of GPipe sends no gradient before it has all activations
    assert predicted(deep) < predicted({"pipeline": 4, "schedule": "gpipe"}) < predicted({"pipeline": 4})
    assert predicted({"pipeline": 4, "compress_activations": "int8"}) < predicted({"pipeline": 4})
    # each stage's replicas near each other, or each pipeline's stages
    both = [predicted({"pipeline": 2, "data": 2}, devices) for devices in ([0, 1, 2, 3], [0, 2, 1, 3])]
    assert both[0] != pytest.approx(both[1], rel=0.05)


def test_utilization_is_of_all_devices_where_they_differ():
    inside = {"latency_ms": 0.1, "gbps": 10.0}
    document = tables({"pipeline": 2}) | {"network": {"across": inside, "groups": []}}
    for name, tflops in (("fast", 3.0), ("slow", 1.0)):
        device = {"name": name, "memory_gib": 8.0, "memory_gbs": 10.0, "tflops": {"fp32": tflops}}
        document["network"]["groups"].append({"name": name, "devices": 1, "device": device})
    del document["cluster"]
    job = job_from_tables(document)
    found = simulate(job)
    used = devices_of(found.plan, found.cluster, found.network)
    assert {device.name: count for device, count in used.items()} == {"fast": 1, "slow": 1}
    assert found.mfu == pytest.approx(job.model.flops(8, 64) / (found.step_seconds * (3e12 + 1e12)))


def test_devices_that_are_not_there_are_told():
    with pytest.raises(HeddleError, match="The plan has 8 ranks"):
        predicted({"pipeline": 4, "data": 2})
    wide = {"groups": [{"name": "a", "devices": 4, "inside": {"gbps": 1.0}}]}
    with pytest.raises(HeddleError, match="the network has 4") as caught:
        simulate(job_from_tables(tables({"pipeline": 4, "data": 2}) | {"network": wide}))
    assert "[network]" in caught.value.hint


MEASURED = [
    {"pipeline": 4},
    {"pipeline": 4, "schedule": "deep-1f1b"},
    {"pipeline": 4, "schedule": "gpipe"},
    {"pipeline": 2, "data": 2},
    {"pipeline": 2, "data": 2, "schedule": "gpipe"},
    {"data": 4, "microbatch": 2},
    {"data": 4, "microbatch": 2, "compress_gradients": "int8"},
]


@pytest.mark.slow
@pytest.mark.dist
def test_steps_at_four_sites_take_what_was_predicted():
    """Real ranks, one at each of four sites: errors of the prediction, and whether it ranks plans as the clock does."""
    with sites(DELAY, RATES) as made:
        environment = ENVIRONMENT | {"MASTER_ADDR": made.addresses[0], "MASTER_PORT": "29619", "WORLD_SIZE": "4"}
        plans = [{"microbatch": 1}, *MEASURED]
        command = [sys.executable, "-m", "tests.helpers.site_rank", *(json.dumps(tables(plan)) for plan in plans)]
        started = [
            made.start(
                rank, command, environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
            )
            for rank in range(4)
        ]
        try:
            shown = started[0].communicate(timeout=300)[0]
        finally:
            for process in started:
                process.kill()
                process.communicate()
    alone, *steps = (float(line) for line in shown.split())
    # how fast this machine computes just now is measured; what links add to it is predicted
    serial = {"microbatch": 1}
    slow = 1.0
    for _ in range(20):
        slow *= alone / simulate(job_from_tables(tables(serial, slow))).step_seconds
    measured = np.array(steps)
    expected = np.array([predicted(plan, slow=slow) for plan in MEASURED])
    errors = np.abs(expected / measured - 1)
    ranks = [np.argsort(np.argsort(values)) for values in (measured, expected)]
    told = [f"{p}: {m:.3f} s, predicted {e:.3f}" for p, m, e in zip(MEASURED, measured, expected, strict=True)]
    idle = os.getloadavg()[0] < 2 * (os.cpu_count() or 1)  # else processors, and not links, are waited for
    assert np.corrcoef(*ranks)[0, 1] >= (0.9 if idle else 0.75), told
    if idle:
        assert errors.mean() <= 0.15, told
