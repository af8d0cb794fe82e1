"""Replicas of which neighbors share what ZeRO shards: what it holds, what it sends over which links, when it pays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import heddle
from heddle.cost.memory import states
from heddle.cost.step import layer_cost, shard_exchange
from heddle.cost.work import Work, work_of
from heddle.errors import HeddleError
from heddle.planning.search.describe import headline
from heddle.planning.search.fixed import read_fixed
from heddle.planning.search.space import legal_space
from heddle.spec import Job, Plan
from heddle.spec.cluster import Cluster
from heddle.spec.layer_memory import LayerRun
from heddle.training.prove.shrink import shrink

NODES = 8


def job(plan: Plan | None = None) -> Job:
    made = heddle.job(
        "llama-3.1-8b", cluster="dgx-h100", nodes=NODES, global_batch=256, sequence_length=8192, precision="bf16"
    )
    return replace(made, plan=plan)


def priced(within: int, zero: int = 3) -> tuple[Work, Cluster]:
    some = job(Plan(data=64, zero=zero, zero_within=within))
    assert some.cluster is not None
    return work_of(some, some.cluster), some.cluster


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_a_rank_keeps_its_share_of_a_group(zero):
    all_share, eight_share = (states(priced(within, zero)[0], 1e9, 1e8) for within in (0, 8))
    assert eight_share[2] == pytest.approx(8 * all_share[2])  # the optimizer's state
    if zero > 1:
        assert eight_share[0] == pytest.approx(8 * all_share[0])
        assert eight_share[3] == all_share[3]  # what is gathered is whole layers, whoever has them


def test_weights_travel_inside_a_node_and_a_share_of_gradients_between_nodes():
    work, cluster = priced(8)
    whole, _ = priced(0)
    inside = shard_exchange(cluster, work, 1e10)
    assert inside < shard_exchange(cluster, whole, 1e10) / 2
    link, outer = cluster.links[0], cluster.links[-1]
    gathered = 1e10 * (2 * 2 + 4) * 7 / 8 / (link.gbs * 1e9 * link.efficiency)  # two gathers in bf16, a sum in fp32
    # once per step: an all-reduce of an eighth over eight nodes, each rank over its own card
    between = 2 * 1e10 * 4 / 8 * 7 / 8 / (outer.gbs * 1e9 * outer.efficiency)
    assert inside == pytest.approx(gathered + between / work.microbatches, rel=0.05)


def test_the_planner_takes_the_node_where_that_is_faster():
    fixed = {"zero": 3, "tensor": 1, "pipeline": 1, "microbatch": 1, "recompute": "none"}
    found = heddle.plan(job(), fixed=fixed)
    assert found.best.plan.zero_within == 8
    every = {
        within: heddle.simulate(job(Plan(data=64, zero=3, zero_within=within, microbatch=1))).step_seconds
        for within in (0, 2, 4, 8, 16, 32)
    }
    assert found.best.step_seconds == pytest.approx(every[8])
    assert every[8] < every[0]
    assert min(every[0], every[8]) <= min(every.values()) * 1.01
    assert "zero 3 within 8" in headline(found.best.plan)
    kept = heddle.plan(job(), fixed=read_fixed({"zero_within": 16, "zero": 2, "tensor": 1, "pipeline": 1}))
    assert kept.best.plan.zero_within == 16


def test_every_plan_is_there_once():
    some = job()
    space = legal_space(some.model, some.sequence, 256, [64], {}, node=8)
    rows = np.stack(list(space.columns.values()), axis=1)
    assert len(np.unique(rows, axis=0)) == len(rows)
    within = space.columns["zero_within"] > 0
    assert within.any()
    assert (space.columns["zero"][within] >= 2).all()
    assert (space.columns["zero_within"][within] * space.columns["tensor"][within] == 8).all()
    plain = legal_space(some.model, some.sequence, 256, [64], {})
    assert len(plain) == (~within).sum()
    for row in np.flatnonzero(within)[:5]:
        assert space.where(space.plan(int(row))) == row


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        ({"data": 4, "zero_within": 2}, "zero_within = 2 needs zero"),
        ({"data": 4, "zero": 1, "zero_within": 3}, "zero_within = 3 cannot divide 4 replicas"),
        ({"data": 4, "zero": 1, "zero_within": 1}, "zero_within = 1 cannot divide 4 replicas"),
        ({"zero": 1, "zero_within": 2}, "zero_within = 2 cannot divide 1 replicas"),
        ({"data": 4, "zero": 1, "zero_within": 2, "compress_gradients": "int8"}, "cannot be combined with compressed"),
        ({"data": 4, "zero": 1, "zero_within": 2, "expert": 2}, "cannot be combined with expert = 2"),
    ],
)
def test_what_does_not_go_together_is_refused(plan, what):
    with pytest.raises(HeddleError, match=what):
        Plan(**plan)


def test_a_proof_keeps_several_groups():
    plan = Plan(data=64, zero=1, zero_within=8, layers=(LayerRun(layers="0-3", zero=3),))
    small = shrink(job(plan)).job.plan
    assert (small.data, small.zero_within) == (4, 2)
    assert shrink(job(Plan(data=64, zero=3))).job.plan.zero_within == 0


def test_chunks_hide_exchange_and_cost_efficiency():
    """One chunk is never hidden, and each has a start of its own."""

    def cost(chunks: int) -> tuple[float, float]:
        some = job(Plan(tensor=8, sequence=True, tensor_chunks=chunks, data=8))
        assert some.cluster is not None
        found = layer_cost(some.cluster, work_of(some, some.cluster))
        return float(found.forward), float(found.tensor_forward)

    (whole, exposed), (two, less) = cost(1), cost(2)
    assert exposed / 2 < less < exposed
    assert two < whole
    assert cost(64)[0] > two  # tiny products, and sixty-four starts
