"""Links while a run trains: which one it waits for, and that it says once, and only then, that they have changed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from heddle.parallel.mesh import Axis, Mesh
from heddle.runtime.recorder import NoRecorder
from heddle.spec import Data, Job, Plan, Train
from heddle.spec.job import load_job
from heddle.spec.network import DeviceGroup, GroupLink, Network, Speed
from heddle.spec.ranks import disjoint
from heddle.trace.lanes import Lane, Phase, message_name
from heddle.training.links.waiting import LinkTimes, with_links
from heddle.training.links.watch import FILE, LinkWatch, links_of
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.trainer import Trainer
from tests.helpers.small_models import gpt

FAST = Speed(latency_ms=0.2, gbps=10)


def sites(late: float, fast: float) -> Network:
    groups = tuple(DeviceGroup(name=name, devices=2, inside=FAST) for name in ("east", "west"))
    return Network(groups=groups, across=Speed(latency_ms=late, gbps=fast))


def job(network: Network, plan: Plan, **train: object) -> Job:
    fields = {"steps": 4, "global_batch": 4, "precision": "fp32"} | train
    return Job(model=gpt(layers=4), data=Data(text="-"), train=Train(**fields), plan=plan, network=network)


PLAN = Plan(pipeline=2, data=2, microbatch=1)


def test_a_wait_counts_for_the_link_that_a_message_comes_over():
    network = replace(sites(10, 1), links=(GroupLink(source="west", target="east", latency_ms=30, gbps=1),))
    mesh = Mesh(rank=2, pipeline=Axis(1, (0, 2)), data=Axis(0, (2, 3)), world=Axis(2, (0, 1, 2, 3)))
    times = LinkTimes(job(network, PLAN).planned, mesh)
    with times.span(Lane.RECEIVE, message_name(Lane.RECEIVE, "activation"), 1, 0):
        time.sleep(0.02)
    with times.span(Lane.COMPUTE, "forward", 1, 0):  # is no wait
        time.sleep(0.02)
    with times.span(Lane.OPTIMIZER, Phase.GRADIENTS):  # both replicas are in the west
        time.sleep(0.03)
    taken = times.taken()
    assert times.taken() == [0.0] * 8
    times.told(taken)
    assert times.slowest.words == "east → west"  # of links inside, only where nothing goes between groups
    assert times.slowest.seconds >= 0.02
    inside = LinkTimes(job(network, Plan(data=2)).planned, Mesh(data=Axis(0, (0, 1)), world=Axis(0, (0, 1))))
    with inside.span(Lane.OPTIMIZER, Phase.GRADIENTS):
        time.sleep(0.01)
    inside.told(inside.taken())
    assert inside.slowest.words == "inside east"


def test_only_runs_over_a_network_of_several_ranks_that_nothing_else_measures_show_links():
    planned, several = job(sites(10, 1), PLAN).planned, Mesh(world=Axis(0, (0, 1)))
    nothing, something = NoRecorder(), LinkTimes(planned, several)
    assert isinstance(with_links(nothing, planned, several), LinkTimes)
    assert with_links(something, planned, several) is something
    assert with_links(nothing, planned, Mesh()) is nothing
    assert with_links(nothing, replace(planned, network=None), several) is nothing


def steps(mesh: Mesh, a_job: Job) -> tuple[str, float, list[float]]:
    planned = a_job.planned
    times = LinkTimes(planned, mesh)
    trainer = Trainer(planned, synthetic_tokens(planned), mesh, times)
    losses = [trainer.train_step().loss for _ in range(3)]
    return times.slowest.words, times.slowest.seconds, losses


@pytest.mark.dist
def test_all_ranks_know_the_slowest_link_and_learn_as_ever(world):
    results = world.run(steps, PLAN, job(sites(10, 1), PLAN))
    assert len({words for words, _, _ in results}) == 1
    assert results[0][0] in ("east → west", "west → east")
    assert all(seconds > 0 for _, seconds, _ in results)
    assert len({tuple(losses) for _, _, losses in results}) == 1


@pytest.mark.parametrize(
    ("devices", "expected"),
    [((0, 1, 2, 3), {frozenset({"east"}), frozenset({"west"}), frozenset({"east", "west"})}),
     ((0, 2, 1, 3), {frozenset({"east"}), frozenset({"west"}), frozenset({"east", "west"})}),
     ((), None)],
)  # fmt: skip
def test_every_link_of_a_plan_is_measured_once_and_no_rank_twice_at_a_time(devices, expected):
    network, plan = sites(10, 1), replace(PLAN, devices=devices)

    def place(rank: int) -> str:
        return network.group_of[(devices or range(4))[rank]]

    pairs = links_of(plan, place)
    found = [frozenset((place(a), place(b))) for a, b in pairs]
    assert len(found) == len(set(found))
    assert expected is None or set(found) == expected
    rounds = disjoint(pairs)
    assert sorted(pair for some in rounds for pair in some) == sorted(pairs)
    assert all(len({rank for pair in some for rank in pair}) == 2 * len(some) for some in rounds)


def looked(mesh: Mesh, a_job: Job, folder: Path) -> list[str]:
    said: list[str] = []
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    watch = LinkWatch(a_job.planned, mesh, trainer.device, folder, said.append)
    for _ in range(2):
        watch.look()
    return said


@pytest.mark.dist
def test_links_that_have_changed_are_said_once_with_a_job_to_plan_again(world, tmp_path):
    # processes of one machine reach each other in far less than a second
    a_job = job(sites(1000, 0.001), PLAN)
    said, *others = world.run(looked, PLAN, a_job, tmp_path)
    assert others == [[], [], []]
    assert len(said) == 1
    assert "Links have changed: east to west: " in said[0]
    assert f"heddle plan {tmp_path / FILE} -o replanned.toml" in said[0]
    again = load_job(tmp_path / FILE)
    assert again.plan is None
    delay, speed = again.network.tables()
    assert delay[0, 2] < 0.1
    assert speed[0, 2] > 1e6
    assert delay[0, 1] == pytest.approx(0.2e-3)  # as it was, where it has not changed


@pytest.mark.dist
def test_links_as_they_were_are_not_spoken_of(world, tmp_path):
    quiet = world.run(looked, PLAN, job(sites(1000, 0.001), PLAN, watch_links=False), tmp_path)
    assert quiet == [[]] * 4
    same = Network(groups=(DeviceGroup(name="here", devices=4, inside=Speed(latency_ms=0.5, gbps=5)),))
    assert world.run(looked, PLAN, job(same, PLAN), tmp_path) == [[]] * 4
    assert not (tmp_path / FILE).exists()
