"""The search against simulating every legal plan, on random jobs: nothing that fits is faster than what it finds."""

from dataclasses import replace

import numpy as np
import pytest

import heddle
from heddle.errors import HeddleError
from heddle.planning.search import pricing
from heddle.planning.search.legal import SOME
from heddle.planning.search.objective import MARGIN
from heddle.planning.search.pricing import priced
from heddle.planning.search.space import legal_space
from heddle.simulating.simulation import simulate, simulate_if_fits
from heddle.spec import Cluster, Data, Device, Efficiency, Job, Link, ModelSpec, Peak, Train


def random_job(draw, experts=False):
    """Any model on any machine, with a memory that some of its plans fit into and others do not."""
    kv, groups = draw.choice([1, 2, 4]), draw.choice([1, 2])
    model = ModelSpec(
        layers=int(draw.integers(1, 10)), hidden=int(128 * kv * groups * draw.choice([1, 4])),
        heads=int(kv * groups), kv_heads=int(kv), ffn=int(512 * kv), tied=bool(draw.integers(2)),
        vocab=int(draw.choice([257, 5000, 50_257, 256_000])), sequence=int(draw.choice([64, 512, 2048])),
    )  # fmt: skip
    devices, nodes, host = int(draw.choice([1, 2, 3, 4])), int(draw.choice([1, 1, 2])), draw.random() < 0.2
    cluster = Cluster(
        nodes=nodes,
        devices=devices,
        cores=max(1, devices // 2) if host and nodes == 1 else None,
        device=Device(
            name="some", memory_gib=1000.0, memory_gbs=1000.0, host=bool(host), processors=None if host else 108,
            tflops=Peak(fp32=20.0, bf16=200.0, fp16=200.0),
        ),
        links=(Link(name="inside", devices=devices, gbs=200.0), Link(name="outside", gbs=20.0)),
        efficiency=Efficiency(overlap=0.0 if host else 0.8, jitter=0.01, slack=0.05),
    )  # fmt: skip
    train = Train(global_batch=int(draw.choice([1, 4, 6, 12])), precision="bf16")
    if draw.random() < 0.3:
        wide, far = draw.choice([1, 1, 4], model.layers), draw.choice([0, 16, 64], model.layers)
        model = replace(
            model, ffn=tuple(int(512 * kv * each) for each in wide), window=tuple(int(each) for each in far)
        )
    if experts:
        dense, count = int(draw.integers(0, model.layers)), int(draw.choice([2, 4, 8]))
        counts = (0,) * dense + (count,) * (model.layers - dense)
        model = replace(model, ffn=512, window=0, activation="swiglu", bias="none", tied=False)
        model = replace(model, experts=counts, top_k=2, expert_ffn=int(draw.choice([256, 1024])))
    job = Job(model=model, data=Data(text="x"), cluster=cluster, train=train)
    _, step = priced(job, cluster, [cluster.world], {})
    least, most = (step.memory.min(), step.memory.max()) if len(step.memory) else (1.0, 1.0)
    limit = least * 1.02 + 1.1 * (most - least) * draw.random() ** 2
    return replace(job, cluster=replace(cluster, device=replace(cluster.device, memory_gib=float(limit) / 2**30)))


def every_plan(job, fixed):
    """All legal plans; where some of a rank's layers recompute, the fewest that fit, found by trying."""
    space = legal_space(job.model, job.sequence, job.train.global_batch, [job.cluster.world], fixed)
    for row in range(len(space)):
        if space.columns["recompute"][row] != SOME:
            yield simulate(replace(job, plan=space.plan(row)))
            continue
        for count in range(1, -(-job.model.layers // int(space.columns["pipeline"][row]))):
            found = simulate_if_fits(replace(job, plan=space.plan(row, count)))
            if found is not None:
                yield found
                break


def check(seeds, experts=False, **fixed):
    refused = tight = 0
    for seed in seeds:
        job = random_job(np.random.default_rng(seed), experts)
        every = list(every_plan(job, fixed))
        fitting = [each.step_seconds for each in every if each.fits]
        tight += 0 < len(fitting) < len(every)
        if not fitting:
            with pytest.raises(HeddleError, match=r"none fits|cannot be divided|No plan on"):
                heddle.plan(job, by_layer=False, fixed=fixed)
            refused += 1
            continue
        found = heddle.plan(job, by_layer=False, fixed=fixed)
        assert found.fastest.step_seconds <= min(fitting) * (1 + 1e-9), seed
        assert found.best.step_seconds <= found.fastest.step_seconds * (1 + MARGIN), seed
        for each in (found.fastest, *found.plans):  # what is said of a plan is what `heddle simulate` says
            again = simulate(replace(job, plan=each.plan))
            assert again.fits
            assert again.step_seconds == each.step_seconds
    return refused, tight


def test_no_legal_plan_that_fits_is_faster_than_the_one_that_is_found():
    refused, tight = check(range(15))
    assert refused < 3
    assert tight > 7  # in most of them memory decides


def test_no_plan_of_experts_that_fits_is_faster_than_the_one_that_is_found():
    refused, tight = check(range(100, 108), experts=True)
    assert refused < 3
    assert tight > 4


def test_experts_stay_whole_where_that_is_faster_and_the_best_of_both_is_found():
    chosen = set()
    for seed in range(200, 212):
        job = random_job(np.random.default_rng(seed), experts=True)
        each = {}
        for width in (0, 1):
            try:
                given = {"expert_tensor": width, "recompute": "none"}  # which would decide more often than experts do
                each[width] = heddle.plan(job, by_layer=False, fixed=given).fastest.step_seconds
            except HeddleError:
                continue
        if each:
            found = heddle.plan(job, by_layer=False, fixed={"recompute": "none"}).fastest
            assert found.step_seconds == min(each.values()), seed
            chosen.add(found.plan.whole_experts)
    assert chosen == {False, True}


def test_nothing_fits_and_more_nodes_cannot_be_split_as_asked():
    """Some numbers of nodes that are tried have no legal plan at all."""
    job = random_job(np.random.default_rng(208), experts=True)
    with pytest.raises(HeddleError, match="none fits"):
        heddle.plan(job, by_layer=False, fixed={"tensor": 2})


@pytest.mark.parametrize("many", [0, pricing.MANY])
def test_what_a_search_leaves_out_does_not_fit_and_what_is_not_priced_takes_longer(many, monkeypatch):
    monkeypatch.setattr(pricing, "MANY", many)
    left_out = unpriced = 0
    for seed in range(100, 112):
        job = random_job(np.random.default_rng(seed), experts=True)
        every, whole = priced(job, job.cluster, [job.cluster.world], {})
        some, near = priced(job, job.cluster, [job.cluster.world], {}, "near")
        kept = {some.plan(row) for row in range(len(some))}
        left_out += some.left_out
        assert some.left_out == sum(
            every.plan(row) not in kept for row in np.flatnonzero(every.columns["recompute"] != SOME)
        )
        for row in np.flatnonzero(whole.fits):
            if every.plan(int(row)) not in kept:
                assert simulate_if_fits(replace(job, plan=every.plan(int(row)))) is None
        for row in range(0, len(some), 7):
            exact = simulate(replace(job, plan=some.plan(row)))
            assert near.memory_at_least[row] <= exact.worst * (1 + 1e-9)
            if np.isfinite(near.at_least[row]):
                assert near.at_least[row] <= exact.step_seconds * (1 + 1e-9)
            unpriced += not near.fits[row]
    assert left_out > 20 or many
    assert unpriced > 20


def test_seconds_that_a_search_does_not_ask_for_are_bounded_from_below(monkeypatch):
    monkeypatch.setattr(pricing, "NEAR", 4)
    unknown = 0
    for seed in range(100, 104):
        job = random_job(np.random.default_rng(seed), experts=seed % 2 > 0)
        found = heddle.plan(job)
        some, near = priced(job, job.cluster, [job.cluster.world], {}, "near")
        for row in np.flatnonzero(~near.known)[::15]:
            assert near.at_least[row] <= simulate(replace(job, plan=some.plan(int(row)))).step_seconds * (1 + 1e-9)
            unknown += 1
        monkeypatch.setattr(pricing, "NEAR", 10**9)
        same = heddle.plan(job)
        monkeypatch.setattr(pricing, "NEAR", 4)
        assert found.plans == same.plans
        assert (found.considered, found.feasible) == (same.considered, same.feasible)
        assert [found.rank(each.plan) for each in found.plans] == [same.rank(each.plan) for each in same.plans]
        assert found.front == same.front
    assert unknown > 6


@pytest.mark.slow
def test_no_plan_of_experts_is_faster_on_many_more_jobs():
    check(range(5000, 5400), experts=True)


@pytest.mark.parametrize("zero", [2, 3])
def test_a_level_of_zero_that_is_asked_for_is_found_with_a_pipeline_too(zero):
    check(range(4), zero=zero)
    job = random_job(np.random.default_rng(5))
    roomy = replace(job.cluster, devices=4, nodes=1, device=replace(job.cluster.device, memory_gib=1e4))
    job = replace(job, cluster=replace(roomy, links=(Link(name="inside", gbs=200.0),), cores=None))
    job = replace(job, model=replace(job.model, layers=4, ffn=job.model.shapes[0].ffn, window=0))
    found = heddle.plan(replace(job, train=replace(job.train, global_batch=12)), fixed={"zero": zero, "pipeline": 2})
    assert (found.best.plan.zero, found.best.plan.pipeline) == (zero, 2)


@pytest.mark.slow
@pytest.mark.parametrize("zero", [2, 3])
def test_a_level_of_zero_that_is_asked_for_is_found_on_many_more_jobs(zero):
    check(range(4000, 4300), zero=zero)


@pytest.mark.slow
def test_no_legal_plan_that_fits_is_faster_on_many_more_jobs():
    check(range(1000, 3000))
