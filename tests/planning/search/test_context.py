"""The search over ranks that share samples: where it looks, what it chooses, and what it says of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heddle.errors import HeddleError
from heddle.planning.search.context import context_reasons, hidden_from
from heddle.planning.search.space import legal_space
from heddle.simulating.simulation import simulate
from heddle.spec import Job, Plan, Train
from heddle.spec.shorthand import cluster_from_table, model_from_table
from heddle.spec.software import CONTEXT_EXCHANGES

MODEL = model_from_table({"preset": "llama-3.1-8b"})
H100 = cluster_from_table({"preset": "dgx-h100", "nodes": 2})


def found(sequence: int, devices: int = 16, **fixed: object) -> set[tuple[int, str]]:
    space = legal_space(replace(MODEL, sequence=sequence), sequence, 16, [devices], fixed)
    columns = zip(space.columns["context"].tolist(), space.columns["context_exchange"].tolist(), strict=True)
    return {(context, CONTEXT_EXCHANGES[exchange]) for context, exchange in columns}


def test_short_samples_are_shared_only_where_that_is_asked_for():
    assert found(8192) == {(1, "ring")}
    assert {context for context, _ in found(8192, context=2)} == {2}


def test_long_samples_are_shared_in_every_legal_way():
    ways = found(131_072)
    assert {context for context, _ in ways} == {1, 2, 4, 8, 16}
    assert (8, "all-to-all") in ways  # 8 heads of keys and values
    assert (16, "all-to-all") not in ways
    assert {(4, "2d"), (8, "2d"), (16, "2d")} <= ways
    assert (2, "2d") not in ways  # which has no groups
    assert {exchange for _, exchange in found(131_072, context_exchange="gather", context=4)} == {"gather"}
    assert max(context for context, _ in found(16_384)) == 8  # 2,048 tokens each
    assert {context for context, _ in found(16_386)} == {1}  # no even number of equal blocks


def test_every_plan_of_the_space_is_legal_and_found_again():
    space = legal_space(MODEL, 131_072, 16, [16], {"context": 4, "microbatch": 1, "virtual": 1})
    for row in range(0, len(space), 7):
        plan = space.plan(row)
        plan.check(replace(MODEL, sequence=131_072), 16, 131_072)
        assert space.where(plan) == row


def inner(**fixed: object) -> set[tuple[int, int]]:
    """Tensor degrees and groups of 2d exchanges over 16 ranks that share samples."""
    space = legal_space(replace(MODEL, sequence=131_072), 131_072, 16, [64], {"context": 16, **fixed}, 8)
    two = space.columns["context_exchange"] == CONTEXT_EXCHANGES.index("2d")
    return set(zip(space.columns["tensor"][two].tolist(), space.columns["context_inner"][two].tolist(), strict=True))


def test_groups_are_as_large_as_a_node_and_the_heads_allow():
    assert inner() == {(1, 8), (2, 4), (4, 2)}
    assert inner(context_inner=2) == {(1, 2), (2, 2), (4, 2)}
    assert inner(context_exchange="ring") == set()
    for row in range(0, 40, 3):
        space = legal_space(replace(MODEL, sequence=131_072), 131_072, 16, [64], {"context_exchange": "2d"}, 8)
        plan = space.plan(row)
        plan.check(replace(MODEL, sequence=131_072), 16, 131_072)
        assert 1 < plan.context_inner < plan.context
        assert space.where(plan) == row


def test_between_nodes_two_dims_wait_less_than_a_ring_and_an_all_to_all_is_no_longer_legal():
    short = replace(job(16), model=replace(MODEL, sequence=16_384))
    ring = simulate(short)
    two = simulate(replace(short, plan=replace(short.plan, context_exchange="2d", context_inner=8)))
    assert float(two.breakdown.context) < 0.7 * float(ring.breakdown.context)
    assert "8 neighbors exchange by all-to-all" in list(context_reasons(two))[-1]
    assert "1 turns instead of 15" in list(context_reasons(two))[-1]
    assert len(list(context_reasons(ring))) == 2


def job(context: int, tensor: int = 1, exchange: str = "ring") -> Job:
    plan = Plan(tensor=tensor, context=context, context_exchange=exchange, data=16 // (context * tensor), zero=3)
    train = Train(global_batch=16 // (context * tensor), precision="bf16")
    return Job(model=replace(MODEL, sequence=131_072), train=train, plan=plan, cluster=H100)


def test_the_bound_is_that_of_the_formula():
    """Bytes × kv_heads / heads × FLOP/s ÷ bytes per second: a slower link needs longer sequences."""
    inside, across = (hidden_from(simulate(job(context))) for context in (8, 16))
    assert across > 4 * inside
    slow = replace(H100, links=tuple(replace(link, gbs=link.gbs / 2) for link in H100.links))
    assert hidden_from(simulate(replace(job(8), cluster=slow))) == pytest.approx(2 * inside, rel=0.01)
    ring, swaps = context_reasons(simulate(job(8)))
    assert f"from {inside:,.0f} tokens per rank" in ring
    assert "divides 8 (kv_heads / tensor)" in swaps
    assert "1 + heads / kv_heads = 5" in swaps


def test_what_attention_waits_for_is_an_item_of_its_own():
    waits = {
        name: float(simulate(job(8, exchange=name)).breakdown.context) for name in ("ring", "gather", "all-to-all")
    }
    assert 0 <= waits["ring"] < waits["gather"]
    assert waits["all-to-all"] < waits["gather"]  # 8 ranks are more than 1 + 32 / 8
    assert float(simulate(job(1)).breakdown.context) == 0


@pytest.mark.parametrize(
    ("plan", "sequence", "words"),
    [
        (Plan(context=4), 1020, "a sequence of 1016, or context = 3"),
        (Plan(context=16, context_exchange="all-to-all"), 1024, "'ring' or 'gather', or a context that divides 8"),
        (Plan(tensor=4, context=4, context_exchange="all-to-all"), 1024, "a context that divides 2"),
        (Plan(tensor=4, context=8, context_exchange="2d", context_inner=4), 1024, "Use context_inner = 2"),
        (Plan(tensor=8, context=4, context_exchange="2d", context_inner=2), 1024, "'ring' or 'gather'"),
        (Plan(tensor=8, sequence=True, context=2), 1020, "a sequence of 1008"),
    ],
)
def test_what_cannot_be_shared_is_refused(plan, sequence, words):
    with pytest.raises(HeddleError) as caught:
        plan.check(MODEL, plan.data, sequence)
    assert words in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"context": 4, "context_inner": 2}, "Use context_exchange = '2d'"),
        ({"context": 8, "context_exchange": "2d"}, "context_inner = 2 and 4"),
        ({"context": 6, "context_exchange": "2d", "context_inner": 4}, "context_inner = 2 and 3"),
        ({"context": 2, "context_exchange": "2d", "context_inner": 2}, "context_exchange = 'ring', or context = 4"),
    ],
)
def test_groups_that_do_not_cut_the_ranks_are_refused(fields, words):
    with pytest.raises(HeddleError) as caught:
        Plan(**fields)
    assert words in caught.value.hint
