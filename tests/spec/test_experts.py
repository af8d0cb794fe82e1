"""Experts among the fields of a model: what follows from what, what they count, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heddle.errors import HeddleError
from heddle.spec import ModelSpec, Plan, Train
from heddle.spec.ranks import expert_data_groups, expert_groups
from heddle.spec.rules.experts import expert_tensor_degrees
from heddle.spec.shorthand import model_from_table
from heddle.spec.tables import build, to_table
from tests.helpers.small_models import experts, llama

MIXTURE = ModelSpec(
    layers=4,
    hidden=16,
    heads=2,
    vocab=31,
    sequence=8,
    ffn=40,
    activation="swiglu",
    bias="none",
    experts=6,
    top_k=2,
    expert_ffn=12,
)


def test_dense_layers_are_a_list_of_experts():
    mixed = replace(MIXTURE, dense_layers="0-1, 3")
    assert mixed == replace(MIXTURE, experts=(0, 0, 6, 0))
    assert [mixed.layer(i).experts for i in range(4)] == [0, 0, 6, 0]
    assert [mixed.layer(i).active_ffn for i in range(4)] == [40, 40, 24, 40]


def test_a_table_says_the_same_again():
    for model in (MIXTURE, replace(MIXTURE, dense_layers="1", shared_experts=2, shared_gate=True, z_loss=0.1)):
        assert build(ModelSpec, to_table(model), "model") == model
    assert "experts" not in to_table(replace(MIXTURE, experts=0, top_k=0, expert_ffn=0))


def test_parameters_are_all_experts_and_flops_those_that_are_chosen():
    h, one = 16, 3 * 16 * 12
    layer = MIXTURE.layer(0)
    dense = replace(MIXTURE, experts=0, top_k=0, expert_ffn=0).layer(0)
    assert layer.layer_parameters - dense.layer_parameters == 6 * one + 6 * h - 3 * h * 40
    assert MIXTURE.parameters - MIXTURE.active_parameters == 4 * 4 * one
    assert layer.forward_flops(8) - dense.forward_flops(8) == 2 * 8 * (2 * one + 6 * h - 3 * h * 40)
    gated = replace(MIXTURE, shared_experts=2, shared_gate=True).layer(0)
    assert gated.layer_parameters - layer.layer_parameters == 2 * one + h


@pytest.mark.parametrize(("name", "billions"), [("mixtral-8x7b", 12.9), ("mixtral-8x22b", 39.2), ("olmoe-1b-7b", 1.28)])
def test_active_parameters_are_those_that_are_published(name, billions):
    assert model_from_table({"preset": name}).active_parameters / 1e9 == pytest.approx(billions, rel=0.005)


def test_tensor_ranks_split_experts_and_shared_ones():
    assert replace(MIXTURE, kv_heads=2).tensor_degrees == [1, 2]
    assert replace(MIXTURE, heads=4, expert_ffn=10).tensor_degrees == [1, 2]
    assert replace(MIXTURE, heads=4, expert_ffn=12, shared_ffn=6).tensor_degrees == [1, 2]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"top_k": 7}, "top_k = 7 with 6 experts"),
        ({"top_k": 0}, "top_k = 0 with 6 experts"),
        ({"experts": (6, 6, 6, 1)}, "top_k = 2 with 1 experts"),
        ({"experts": 0}, "top_k = 2, but the model has no experts"),
        ({"experts": (6, 6)}, "lists 2 layers"),
        ({"experts": 1_000_000}, "experts must be in"),
        ({"activation": "gelu"}, 'activation = "gelu"'),
        ({"bias": "all", "shared_experts": 1}, 'bias = "all"'),
        ({"shared_gate": True}, "no shared experts"),
        ({"dense_layers": "2-9"}, "layers 0 to 3"),
        ({"dense_layers": "3-1"}, "layers 3-1"),
        ({"dense_layers": "first"}, "is not a list of layers"),
        ({"dense_layers": "0", "experts": (6, 6, 6, 6)}, "one number of experts"),
        ({"dense_layers": "0-3"}, "the model has no experts"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, what):
    with pytest.raises(HeddleError) as caught:
        replace(MIXTURE, **changes)
    assert what in caught.value.what
    assert caught.value.why
    assert caught.value.hint


@pytest.mark.parametrize(
    ("where", "key", "said"),
    [
        ("model", "capacity_factor", "none is dropped"),
        ("model", "moe_expert_capacity_factor", "none is dropped"),
        ("train", "drop_tokens", "none is dropped"),
        ("model", "moe_router_dtype", "full precision"),
        ("plan", "expert_parallel", "expert = "),
        ("plan", "expert_model_parallel_size", "expert = "),
        ("plan", "expert_tensor_parallel_size", "expert_tensor = 1"),
    ],
)
def test_keys_of_other_frameworks_are_answered(where, key, said):
    kinds = {"model": ModelSpec, "plan": Plan, "train": Train}
    with pytest.raises(HeddleError, match=f"has no key '{key}'") as error:
        build(kinds[where], {key: 1}, where)
    assert said in str(error.value)


PLANS = [
    ({"expert": 2}, "does not divide data × context = 1 × 1 = 1", "data = 2"),
    ({"expert": 4, "data": 6}, "does not divide data × context = 6 × 1 = 6", "Use expert = 3, or data = 8"),
    ({"expert": 2, "data": 2, "shares": (3, 1)}, "shares = [3, 1]", "expert = 1"),
    ({"expert": 2, "data": 2, "local_steps": 2}, "local_steps = 2", "expert = 1"),
    ({"expert": 2, "data": 2, "compress_gradients": "int8"}, "gradients in codes", "expert = 1"),
    ({"expert": 2, "data": 2, "pipeline": 2, "update": "ouroboros"}, "update = 'ouroboros'", "expert = 1"),
]


@pytest.mark.parametrize(("fields", "said", "hint"), PLANS)
def test_a_plan_that_cannot_share_experts_is_refused(fields, said, hint):
    with pytest.raises(HeddleError) as error:
        Plan(**fields)
    assert said in str(error.value)
    assert hint in str(error.value)


def test_experts_that_ranks_cannot_share_are_refused():
    with pytest.raises(HeddleError, match="6 experts cannot be split over expert = 4") as error:
        Plan(data=12, expert=4).check(MIXTURE, 12, 8)
    assert "1, 2, 3 and 6 can" in str(error.value)
    with pytest.raises(HeddleError, match=r"expert = 2, but the model has no experts"):
        Plan(data=2, expert=2).check(replace(MIXTURE, experts=0, top_k=0, expert_ffn=0), 4, 8)
    Plan(data=12, expert=6).check(MIXTURE, 12, 8)
    mixed = replace(MIXTURE, experts=(6, 0, 4, 6))
    Plan(data=4, expert=2).check(mixed, 4, 8)
    with pytest.raises(HeddleError, match="4 experts cannot be split over expert = 3"):
        Plan(data=3, expert=3).check(mixed, 3, 8)


WHOLE = {"tensor": 4, "data": 2, "expert_tensor": 1, "sequence": True}


def test_whole_experts_are_shared_by_tensor_ranks_as_well():
    plan = Plan(**WHOLE, expert=4)
    assert expert_groups(plan) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert expert_data_groups(plan) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert plan.expert_replicas == 2
    assert expert_tensor_degrees(4) == [1, 4]
    split = Plan(tensor=4, data=2, expert=2, expert_tensor=4)
    assert not split.whole_experts
    assert expert_groups(split) == expert_groups(Plan(tensor=4, data=2, expert=2))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"expert_tensor": 2}, "expert_tensor = 2 with tensor = 4"),
        ({"expert": 3}, "does not divide tensor × data × context = 4 × 2 × 1 = 8"),
        ({"zero": 1, "zero_within": 2}, "expert_tensor = 1"),
        ({"local_steps": 2}, "expert_tensor = 1 cannot be combined with local_steps"),
    ],
)
def test_degrees_of_whole_experts_that_cannot_be_are_refused(changes, said):
    with pytest.raises(HeddleError) as caught:
        Plan(**WHOLE | changes)
    assert said in caught.value.what
    assert caught.value.hint


def test_tokens_that_tensor_ranks_cannot_share_are_refused():
    with pytest.raises(HeddleError, match="7 tokens cannot be split"):
        Plan(tensor=2, expert_tensor=1).check(experts(sequence=7), 1, 7)
    with pytest.raises(HeddleError, match="the model has no experts"):
        Plan(tensor=2, expert_tensor=1).check(llama(), 1, 8)
