"""A job's plans over a network, by the predicted step: against brute force over devices, degrees and schedules."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from heddle.errors import HeddleError
from heddle.planning.regions.for_job import SCHEDULES, plans_over
from heddle.planning.regions.network_search import held, reasons, search_network, table_lines
from heddle.simulating.network.link_use import link_uses
from heddle.simulating.network.over_network import OverNetwork, step_over_network
from heddle.simulating.simulation import simulate
from heddle.spec import Plan
from heddle.spec.job import job_from_tables, load_job
from heddle.spec.network import DeviceGroup, GroupLink, Network, Speed
from heddle.spec.network.link_codes import LinkCodes
from heddle.spec.network.network_file import dumps_network
from tests.helpers.cases import thinned
from tests.helpers.commands import call

TABLES = {
    "model": {"layers": 4, "hidden": 96, "heads": 4, "vocab": 64, "sequence": 64, "ffn": 128},
    "data": {"text": "-"},
    "train": {"steps": 20, "global_batch": 8},
    "cluster": {
        "nodes": 1,
        "devices": 8,
        "links": [{"name": "any", "gbs": 1.0}],
        "device": {"name": "cpu", "memory_gib": 4, "memory_gbs": 10.0, "host": True, "tflops": {"fp32": 0.05}},
    },
}
JOB = job_from_tables(TABLES)


def network(seed: int, count: int) -> Network:
    """Machines in two places, some pairs much nearer than others, both ways by themselves."""
    draws = np.random.default_rng(seed)
    place = draws.permutation(np.arange(count) % 2)
    names = [f"m{number}" for number in range(count)]
    links = tuple(
        GroupLink(
            source=a,
            target=b,
            latency_ms=float(draws.uniform(0.2, 3) if place[i] == place[j] else draws.uniform(20, 80)),
            gbps=float(draws.uniform(0.1, 1) if place[i] == place[j] else draws.uniform(0.004, 0.03)),
        )
        for i, a in enumerate(names)
        for j, b in enumerate(names)
        if i != j
    )
    return Network(groups=tuple(DeviceGroup(name=name) for name in names), links=links)


@pytest.mark.parametrize("seed", thinned(range(2), slow=[1]))
def test_four_devices_get_the_best_of_all_layouts_degrees_and_schedules(seed):
    some = network(seed, 4)
    best = plans_over(JOB, some)[0]
    least = np.inf
    for stages in (1, 2, 4):
        share = 8 // (4 // stages)
        for microbatch in (each for each in (1, 2, 4, 8) if share % each == 0):
            for schedule, extra in SCHEDULES if stages > 1 else SCHEDULES[:1]:
                plan = Plan(
                    pipeline=stages, data=4 // stages, microbatch=microbatch, schedule=schedule, extra_warmup=extra
                )
                job = replace(JOB, plan=plan)
                least = min(
                    least, *(step_over_network(job, some, devices).seconds for devices in permutations(range(4)))
                )
    assert best.step.seconds <= least * (1 + 1e-9)  # stages may be uneven beside that
    assert best.step == step_over_network(replace(JOB, plan=best.plan), some, best.devices)


def test_the_best_come_first_and_random_layouts_are_no_better():
    some = network(9, 8)
    found = plans_over(JOB, some, time_limit=3.0)
    seconds = [each.step.seconds for each in found]
    assert seconds == sorted(seconds)
    assert len({(each.plan.pipeline, each.plan.data) for each in found}) == len(found)
    draws = np.random.default_rng(0)
    for each in found:
        job = replace(JOB, plan=each.plan)
        for _ in range(20):
            assert step_over_network(job, some, draws.permutation(8)).seconds >= each.step.seconds * (1 - 1e-9)


def test_what_the_plan_says_of_codes_holds_and_what_cannot_be_is_told():
    given = replace(JOB, plan=Plan(data=2, compress_gradients="int8", local_steps=50))
    for each in plans_over(given, network(1, 4), time_limit=2.0):
        assert each.plan.compress_gradients == "int8"
        assert each.plan.local_steps == (50 if each.plan.data > 1 else 0)
    odd = replace(JOB, train=replace(JOB.train, global_batch=1))
    with pytest.raises(HeddleError, match="No plan for the 7 devices"):
        plans_over(odd, network(2, 7))


@pytest.mark.parametrize("name", ["all", "searched", "zb-v", "dualpipev"])
def test_a_schedule_that_is_not_considered_over_a_network_is_told(name):
    with pytest.raises(HeddleError, match=f"schedule = '{name}' is not considered") as caught:
        search_network(replace(JOB, network=network(1, 4)), {"schedule": name})
    possible = caught.value.hint.partition("Known: ")[2].rstrip(".").split(", ")
    assert name not in possible
    assert {"1f1b", "deep-1f1b", "gpipe"} <= set(possible)


def test_the_command(tmp_path, capsys):
    (tmp_path / "network.toml").write_text(dumps_network(network(0, 4)))
    (tmp_path / "job.toml").write_text(
        """
        [model]
        layers = 4
        hidden = 96
        heads = 4
        vocab = 64
        sequence = 64
        [data]
        text = "-"
        [train]
        global_batch = 8
        [cluster]
        preset = "dgx-a100"
        """
    )
    arguments = ["plan", tmp_path / "job.toml", "--network", tmp_path / "network.toml", "--top", "2"]
    assert call(*arguments, "-o", tmp_path / "plan.toml") == 0
    assert "start one process per device, numbered like the devices of the network" in capsys.readouterr().out
    assert call(*arguments, "--json") == 0
    plans = json.loads(capsys.readouterr().out)["plans"]
    assert sorted(plans[0]["plan"]["devices"]) == [0, 1, 2, 3]
    assert load_job(tmp_path / "plan.toml").network == network(0, 4)
    assert call("regions", tmp_path / "network.toml", "--job", tmp_path / "job.toml") == 2
    assert f"heddle plan {tmp_path / 'job.toml'} --network" in capsys.readouterr().err


def test_slow_devices_get_fewer_layers_or_samples():
    """Two groups, one of them three times as fast; links that cost next to nothing."""
    device = JOB.cluster.device
    slow = replace(device, tflops=replace(device.tflops, fp32=device.tflops.fp32 / 3), memory_gbs=device.memory_gbs / 3)
    near = Speed(gbps=1000.0)
    groups = (DeviceGroup(name="fast", device=device), DeviceGroup(name="slow", device=slow))
    some = Network(groups=groups, across=near)
    over = replace(JOB, model=replace(JOB.model, layers=12), network=some)
    pipeline = search_network(over, {"pipeline": 2, "microbatch": 1}).best
    layers = dict(zip(pipeline.plan.devices, pipeline.plan.stages, strict=True))
    assert layers[0] >= 2 * layers[1]
    replicas = search_network(over, {"data": 2, "microbatch": 1}).best
    samples = dict(zip(replicas.plan.devices, replicas.plan.shares, strict=True))
    assert samples == {0: 6, 1: 2}
    equal = simulate(replace(over, plan=replace(replicas.plan, shares=()))).step_seconds
    assert replicas.step_seconds < 0.75 * equal
    assert sum(replicas.breakdown) == pytest.approx(replicas.step_seconds)
    assert any("Replicas take" in line for line in reasons(search_network(over, {"data": 2, "microbatch": 1})))


def test_tensor_ranks_stay_inside_a_group():
    inside = Speed(latency_ms=0.001, gbps=1000.0)
    groups = tuple(DeviceGroup(name=name, devices=2, inside=inside) for name in ("a", "b"))
    over = replace(JOB, network=Network(groups=groups, across=Speed(latency_ms=50.0, gbps=0.01)))
    found = search_network(over, {"tensor": 2})
    for each in found.plans:
        for first in range(0, 4, 2):
            assert each.plan.devices[first] // 2 == each.plan.devices[first + 1] // 2
    assert {name for name, pairs in held(found.best.plan, over.network).items() if pairs} == {"a", "b"}


def two_sites(gbps: float, latency: float = 5.0) -> Network:
    fast = Speed(latency_ms=0.1, gbps=10)
    groups = DeviceGroup(name="a", devices=2, inside=fast), DeviceGroup(name="b", devices=2, inside=fast)
    return Network(groups=groups, across=Speed(latency_ms=latency, gbps=gbps))


def test_codes_are_chosen_only_where_they_are_allowed_and_worth_it():
    job, fixed = replace(JOB, network=two_sites(0.02)), {"tensor": 1, "microbatch": 2, "schedule": "gpipe"}
    exact = search_network(job, fixed)
    assert not any(each.plan.codes for each in exact.found)
    coded = search_network(job, fixed, top=6, allowed="int8")
    plan = coded.best.plan
    assert coded.best.step_seconds < exact.best.step_seconds * 0.99
    assert [each.links for each in plan.codes] == ["between"]
    assert {plan.codes[0].gradients, plan.codes[0].activations} <= {None, "bf16", "int8"}
    assert exact.best.step_seconds == pytest.approx(min(s.step_seconds for s in coded.plans if not s.plan.codes))
    words = " ".join(table_lines(coded))
    assert "times smaller" in words
    assert "the loss may differ" in words
    assert not coded.to_json()["plans"][0]["exact"]
    fast = replace(JOB, network=two_sites(100.0, latency=0.001))
    assert not search_network(fast, fixed, allowed="int4").best.plan.codes  # nothing to gain
    with pytest.raises(HeddleError, match="'int3' is not a code"):
        search_network(job, allowed="int3")


def test_only_links_between_groups_carry_less():
    network = two_sites(0.02)
    plan = Plan(pipeline=2, data=2, microbatch=1, devices=(0, 2, 1, 3))  # replicas apart, stages together
    coded = replace(plan, codes=(LinkCodes(gradients="int8", activations="int8"),))
    before, after = (
        {(use.source, use.target): use for use in link_uses(OverNetwork(replace(JOB, plan=each), network))}
        for each in (plan, coded)
    )
    assert after["a", "a"].stages == before["a", "a"].stages > 0
    assert before["a", "b"].stages == after["a", "b"].stages == 0
    # a ring twice: each sends all of it; codes to one other and back: half of it, twice
    assert after["a", "b"].replicas / before["a", "b"].replicas == pytest.approx(8.25 / 32)


def test_fragments_beside_compute_take_no_time_that_anybody_waits():
    network = two_sites(0.02)
    plan = Plan(data=4, microbatch=1, local_steps=40)
    at_once, in_turn, beside = (
        OverNetwork(replace(JOB, plan=each), network).step.exchange
        for each in (plan, replace(plan, fragments=4), replace(plan, fragments=4, overlap_steps=9))
    )
    assert 0 < at_once <= in_turn < 1.5 * at_once  # each fragment pays the delay
    assert beside < 0.2 * at_once
