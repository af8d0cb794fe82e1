"""Experts that ranks share: what travels, who waits, what each rank holds, and what a search makes of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from heddle.cost import compute, memory, network
from heddle.cost import experts as experts_cost
from heddle.cost.experts import grouped
from heddle.cost.imbalance import chance_above, largest_shares, slowest_of, slowest_share, spread_of
from heddle.cost.model_columns import model_columns
from heddle.cost.work import work_of
from heddle.format import GIB
from heddle.planning.request import PlanRequest
from heddle.planning.search.experts import expert_reasons
from heddle.planning.search.pricing import priced
from heddle.planning.search.search import search
from heddle.simulating.closed_form import closed_form
from heddle.simulating.simulation import simulate, simulate_if_fits
from heddle.spec import Data, Job, Plan, Train
from heddle.spec.ranks import split_in_words
from heddle.spec.shorthand import cluster_from_table, model_from_table
from tests.helpers.small_models import experts

H100 = cluster_from_table({"preset": "dgx-h100", "nodes": 4})
SPREAD = H100.efficiency.expert_spread
MODEL = experts(
    hidden=1024, heads=16, kv_heads=8, head_size=64, layers=8, sequence=1024, experts=64, top_k=4, expert_ffn=512
)


def job(plan: Plan | None, batch: int = 64, **changes: object) -> Job:
    train = Train(global_batch=batch, precision="bf16")
    return Job(model=replace(MODEL, **changes), data=Data(text="-"), train=train, plan=plan, cluster=H100)


def test_an_all_to_all_takes_what_its_slowest_link_takes():
    """Of a group of 32 ranks on four nodes, 24/32 of the bytes leave the node, 7/32 go to its other devices."""
    inside, outside = H100.links[0], H100.links[-1]
    count = 1e9

    def speed(link):
        return link.gbs * 1e9 * link.efficiency * network.ALL_TO_ALL

    near = float(network.all_to_all(H100, count, 8))
    assert near == pytest.approx(7 / 8 * count / speed(inside), rel=0.03)
    far = float(network.all_to_all(H100, count, 32))
    assert far == pytest.approx(24 / 32 * count / speed(outside), rel=0.01)
    apart = float(network.all_to_all(H100, count, 4, stride=8))  # one rank on each node
    assert apart == pytest.approx(3 / 4 * count / speed(outside), rel=0.01)
    assert float(network.all_to_all(H100, count, 1)) == 0
    both = network.all_to_all(H100, count, np.array([8, 32]))
    assert both == pytest.approx([near, far])


def test_a_token_crosses_to_each_node_once_and_its_links_spread_it():
    inside, outside = H100.links[0], H100.links[-1]
    count = 1e9
    rows = network.all_to_all(H100, count, 32)
    once = network.all_to_all(H100, count, 32, crossing=0.5)
    assert float(once) == pytest.approx(0.5 * 24 / 32 * count / (outside.gbs * 1e9 * outside.efficiency), rel=0.01)
    assert float(network.all_to_all(H100, count, 32, crossing=0.0)) == float(rows)
    spread = network.all_to_all(
        H100, count, 32, crossing=1e-6
    )  # next to nothing leaves, and all is spread all the same
    assert float(spread) == pytest.approx(7 / 8 * count / (inside.gbs * 1e9 * inside.efficiency), rel=0.1)


@pytest.mark.parametrize(("groups", "top", "nodes"), [(0, 0, 4), (4, 1, 1), (4, 2, 2), (8, 4, 2), (4, 4, 4)])
def test_a_router_that_is_limited_to_groups_limits_the_nodes(groups, top, nodes):
    """Drawn: each token chooses its groups, then experts among theirs."""
    plan = Plan(data=32, expert=32)
    work = replace(work_of(job(plan), H100), router_groups=groups, router_top_groups=top)
    mean = float(experts_cost.nodes_of_a_token(H100, work, 1))
    draw = np.random.default_rng(0)
    visited = [len(set(draw.integers(0, nodes, MODEL.top_k))) for _ in range(4000)]
    assert mean == pytest.approx(np.mean(visited), rel=0.02)


def test_software_may_send_less_and_hide_most_of_it():
    work = replace(work_of(job(Plan(data=32, expert=32)), H100), fp8=1)
    plain = sum(experts_cost.exchange(H100, work))
    by_node = sum(experts_cost.exchange(H100, replace(work, expert_by_node=1)))
    short = sum(experts_cost.exchange(H100, replace(work, expert_by_node=1, dispatch_fp8=1)))
    assert short < by_node < plain
    assert sum(experts_cost.exchange(H100, replace(work, fp8=0, dispatch_fp8=1))) == plain  # not without 8-bit training
    hides = replace(work, expert_overlap=1.0)
    gained = H100.efficiency.overlap
    assert float(experts_cost.beside_another(H100, hides, plain, 1e9)) == pytest.approx(1 - gained)
    assert float(experts_cost.beside_another(H100, hides, plain, plain / 2)) == pytest.approx(1 - gained / 2)
    assert float(experts_cost.beside_another(H100, replace(hides, microbatch=2), plain, 1e9)) == 1.0  # nobody is beside
    wide = replace(work_of(job(Plan(data=4), hidden=4096, expert_ffn=4096, experts=4), H100), fp8=1, casts_per_step=1)
    assert compute.layer(H100, replace(wide, expert_fp8=1)).forward < compute.layer(H100, wide).forward


# groups, rows, columns, summed: share of peak of a forward product, measured on a B200 (SimuMax, b200_bf16_ceperm)
GROUPED = [
    ((160, 154, 3072, 5120), 0.1997),
    ((256, 128, 7168, 2048), 0.1782),
    ((128, 256, 4096, 7168), 0.2714),
    ((40, 616, 5120, 1536), 0.3258),
    ((20, 1232, 3072, 5120), 0.5134),
    ((32, 1024, 7168, 2048), 0.3842),
]


def test_grouped_products_take_what_was_measured():
    cluster = cluster_from_table({"preset": "dgx-b200"})
    off = []
    for (groups, rows, columns, summed), share in GROUPED:
        seconds = compute.matmul(cluster, "bf16", rows, summed, columns, groups)
        seconds = float(seconds * grouped(np.array(rows), *experts_cost.GROUPED))
        off.append(2 * groups * rows * columns * summed / seconds / 2250e12 / share - 1)
    assert np.mean(np.abs(off)) < 0.2
    assert max(map(abs, off)) < 0.35


@pytest.mark.parametrize(("number", "ranks"), [(64, 8), (128, 16), (256, 64), (256, 256)])
def test_the_slowest_of_ranks_is_about_as_extreme_values_say(number, ranks):
    """1 + cv·sqrt(2 ln R · R/E), which is an upper estimate for few ranks."""
    formula = 1 + SPREAD * np.sqrt(2 * np.log(ranks) * ranks / number)
    assert slowest_of(number, ranks, SPREAD) - 1 == pytest.approx(formula - 1, rel=0.35)
    assert slowest_of(number, ranks, SPREAD) < formula * 1.1


def test_ranks_with_fewer_experts_are_more_uneven():
    each = [slowest_of(256, ranks, SPREAD) for ranks in (1, 2, 8, 32, 128)]
    assert each == sorted(each)
    assert each[0] == 1.0
    shares = slowest_share(256, np.array([1, 8, 128]), SPREAD)
    assert shares.tolist() == [each[0], each[2], each[4]]


@pytest.mark.parametrize(("number", "ranks", "spread"), [(64, 8, 0.2), (128, 32, 0.5), (256, 64, 0.2)])
def test_the_fullest_rank_is_that_of_tokens_that_choose(number, ranks, spread):
    """Tokens drawn one by one: the same mean, the same probability of more, and the spread read off their counts."""
    draw, layers, tokens, told = np.random.default_rng(7), 4, 200_000, []
    fullest = []
    for _ in range(150):
        shares = np.zeros(ranks)
        for _ in range(layers):
            liked = draw.lognormal(0, np.sqrt(np.log(1 + spread**2)), number)
            counts = draw.multinomial(tokens, liked / liked.sum())
            told.append(spread_of(counts))
            shares += counts.reshape(ranks, -1).sum(axis=1) / (tokens / ranks) / layers
        fullest.append(shares.max())
    drawn = largest_shares(number, ranks, spread, layers)
    assert np.mean(fullest) - 1 == pytest.approx(drawn.mean() - 1, rel=0.1)
    assert np.mean(told) == pytest.approx(spread, rel=0.1)
    edge = float(np.quantile(fullest, 0.8))
    assert chance_above(edge, number, ranks, spread, layers) == pytest.approx(0.2, abs=0.1)
    assert chance_above(3.0, number, ranks, spread, layers) == 0


def test_tokens_that_choose_evenly_make_nobody_wait():
    assert slowest_of(64, 8, 0.0) == 1
    assert chance_above(1.01, 64, 8, 0.0, 4) == 0
    assert spread_of([7, 7, 7]) == 0


@pytest.mark.parametrize(("expert", "tensor"), list(product((1, 2, 8), (1, 2))))
def test_a_rank_holds_its_part_of_the_experts(expert, tensor):
    work = work_of(job(Plan(data=8, expert=expert, tensor=tensor)), H100)
    layer = MODEL.layer(0)
    dense = layer.layer_parameters - 64 * 3 * 1024 * 512
    whole = (dense - layer.replicated_parameters) / tensor + layer.replicated_parameters
    assert float(memory.layer_parameters(work)) == whole + 64 // expert * 3 * 1024 * 512 / tensor


@pytest.mark.parametrize("expert", [1, 2, 8])
def test_all_ranks_together_keep_the_optimizers_state_once(expert):
    """ZeRO-1: what a rank keeps is its share of all, however experts are split."""
    work = work_of(job(Plan(data=8, expert=expert, zero=1)), H100)
    held = MODEL.layers * memory.layer_parameters(work) + memory.end_parameters(work, True, True)
    _, _, optimizer, _ = memory.states(work, held, 0.0)
    assert 8 * float(optimizer) == pytest.approx(12 * MODEL.parameters, rel=1e-6)


CASES = [
    Plan(data=8, expert=8, microbatch=2, zero=1),
    Plan(data=8, expert=2, microbatch=2, recompute="full"),
    Plan(tensor=2, data=4, expert=4, microbatch=1),
    Plan(pipeline=2, data=8, expert=8, microbatch=2, zero=1),
    Plan(pipeline=2, virtual=2, data=4, expert=4, microbatch=2, schedule="interleaved"),
    Plan(context=2, data=4, expert=8, microbatch=2, zero=1, recompute="full"),
]


@pytest.mark.parametrize("plan", CASES, ids=split_in_words)
@pytest.mark.parametrize("dense", ["", "0-1"])
def test_closed_form_and_replay_agree(plan, dense):
    a_job = job(plan, vocab=128, layers=16, dense_layers=dense)
    exact, quick = simulate(a_job), closed_form(work_of(a_job, H100), H100)
    assert float(quick.seconds) == pytest.approx(exact.step_seconds, rel=0.1 if dense else 0.01)
    assert float(quick.at_least) <= exact.step_seconds * (1 + 1e-9)
    assert float(quick.memory_at_least) <= max(float(held.total) for held in exact.memory) * (1 + 1e-9)
    for breakdown, whole in ((quick.breakdown, float(quick.seconds)), (exact.breakdown, exact.step_seconds)):
        assert sum(map(float, breakdown)) == pytest.approx(whole)
    assert float(exact.breakdown.expert) == pytest.approx(float(quick.breakdown.expert), rel=0.02)
    assert float(exact.breakdown.expert) > 0
    spans = [span for span in exact.trace.spans if span.lane == "expert"]
    assert spans
    assert {span.name for span in spans} == {"all-to-all"}


def test_bounds_hold_for_every_plan_of_a_space():
    a_job = job(None, dense_layers="0", layers=4)
    space, step = priced(a_job, H100, [8], {})
    assert set(space.columns["expert"].tolist()) == {1, 2, 4, 8}
    chosen = np.random.default_rng(0).choice(len(space), 40, replace=False)
    for row in chosen.tolist():
        exact = simulate(a_job.with_plan(space.plan(row).resolved(a_job.model)))
        assert step.at_least[row] <= exact.step_seconds * (1 + 1e-9)
        assert step.memory_at_least[row] <= max(float(held.total) for held in exact.memory) * (1 + 1e-9)


def test_the_search_finds_the_best_of_all_plans():
    """Exhaustively: every legal plan of a small space, priced by itself."""
    a_job = job(None, batch=8, layers=4, experts=16)
    fixed = {"recompute": "none", "zero": 1, "microbatch": 1, "virtual": 1, "schedule": "1f1b"}
    machine = replace(H100, nodes=1)
    found = search(replace(a_job, cluster=machine), PlanRequest(fixed=fixed))
    space, _ = priced(a_job, machine, [8], fixed)
    every = [simulate_if_fits(replace(a_job, cluster=machine).with_plan(space.plan(row))) for row in range(len(space))]
    best = min(each.step_seconds for each in every if each is not None)
    assert found.best.step_seconds <= best * 1.005


def test_experts_that_do_not_fit_are_split():
    """235 billion parameters on 128 devices of 80 GB: over the ranks of a node, and not beyond it."""
    model = model_from_table({"preset": "qwen3-235b-a22b"})
    cluster = cluster_from_table({"preset": "dgx-h100", "nodes": 16})
    train = Train(global_batch=256, sequence=4096, precision="bf16")
    a_job = Job(model=model, data=Data(text="-"), train=train, cluster=cluster)
    space, step = priced(a_job, cluster, [128], {})
    fits = step.memory <= 80 * GIB
    seconds = {degree: step.seconds[fits & (space.columns["expert"] == degree)].min() for degree in (1, 2, 4, 8, 16)}
    assert min(seconds, key=seconds.__getitem__) == 8
    assert seconds[16] > 1.2 * seconds[8]


def test_columns_follow_from_a_model():
    columns = model_columns(replace(MODEL, dense_layers="0"))
    held = MODEL.layer(0).expert_parameters
    assert columns["expert_share"] == pytest.approx(7 * held / replace(MODEL, dense_layers="0").parameters)
    assert columns["expert_parameters"] == pytest.approx(7 / 8 * held)


def test_an_explanation_says_what_uneven_use_costs_and_risks():
    told = " ".join(expert_reasons(simulate(job(Plan(data=32, expert=32, zero=1, microbatch=2)))))
    assert "expert_spread = 0.2" in told
    assert "the others wait" in told
    assert "in 0.0% of 500 drawn routings" in told
    even, uneven = (replace(H100, efficiency=replace(H100.efficiency, expert_spread=spread)) for spread in (0.0, 1.0))
    planned = job(Plan(data=32, expert=32, zero=1, microbatch=2))
    hardly_enough = simulate(replace(planned, cluster=even)).worst * 1.01 / GIB
    room = replace(uneven, device=replace(uneven.device, memory_gib=hardly_enough))
    risky = " ".join(expert_reasons(simulate(replace(planned, cluster=room))))
    assert float(risky.split("in ")[-1].split("%")[0]) > 90
