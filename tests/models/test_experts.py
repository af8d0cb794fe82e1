"""Experts by brute force: every token by itself, through each of its experts, and both losses written out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.models.experts import ExpertMLP
from heddle.models.grouped import grouped
from heddle.models.transformer import Microbatch, make_mlp
from tests.helpers.small_models import experts

SAMPLES, SEQUENCE = 3, 5
GATED = {"shared_experts": 1, "shared_ffn": 16, "shared_gate": True}
KINDS = {
    "mixtral": {},
    "olmoe": {"router_normalized": False},
    "qwen2": {"router_normalized": False, **GATED},
    "sigmoid": {"router": "sigmoid", "shared_experts": 1},
    "one": {"top_k": 1, "experts": 3},
    "deepseek-v2": {"router_normalized": False, "router_groups": 3, "router_top_groups": 1, "router_scale": 2.5},
    "deepseek-v3": {
        "router": "sigmoid",
        "router_bias": "choice",
        "router_groups": 3,
        "router_top_groups": 2,
        "router_scale": 1.5,
    },
    "gpt-oss": {"router_bias": "score", "bias": "all", "activation": "clamped-swiglu", "gate_limit": 0.5},
    "all": {"top_k": 6},
}


def made(dtype: torch.dtype = torch.float64, **changes: object) -> ExpertMLP:
    torch.manual_seed(0)
    mlp = make_mlp(experts(**changes).layer(0)).to(dtype)
    assert isinstance(mlp, ExpertMLP)
    for parameter in mlp.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return mlp


def by_hand(mlp: ExpertMLP, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What a token gets of its experts, one after the other; probabilities, and the numbers of the chosen."""
    scores = x @ mlp.router.weight.t() + (0 if mlp.router.bias is None else mlp.router.bias)
    probabilities = scores.softmax(-1) if mlp.router.kind == "softmax" else scores.sigmoid()
    rows, numbers = [], []
    for token, row in zip(x, probabilities, strict=True):
        chosen = chosen_by_hand(mlp, row.detach())
        total = sum(row[expert] for expert in chosen) if mlp.router.normalized else 1.0
        total = total / mlp.router.scale
        out = torch.zeros_like(token)
        for expert in chosen:
            gate, up, down = (matrix[expert] for matrix in (mlp.experts.gate, mlp.experts.up, mlp.experts.down))
            out = out + row[expert] / total * one_expert(mlp, expert, token, gate, up, down)
        if mlp.shared is not None:
            factor = 1.0 if mlp.shared_gate is None else torch.sigmoid(mlp.shared_gate(token))
            out = out + factor * mlp.shared(token[None])[0]
        rows.append(out)
        numbers.append(chosen)
    return torch.stack(rows), probabilities, torch.tensor(numbers)


def chosen_by_hand(mlp: ExpertMLP, row: Tensor) -> list[int]:
    router = mlp.router
    ranks = row if router.choice_bias is None else row + router.choice_bias.detach()
    experts = list(range(len(row)))
    if router.groups:
        size, best = len(row) // router.groups, 1 if router.kind == "softmax" else 2
        groups = [experts[at : at + size] for at in range(0, len(row), size)]
        groups.sort(key=lambda group: -sum(sorted((float(ranks[each]) for each in group), reverse=True)[:best]))
        experts = [expert for group in groups[: router.top_groups] for expert in group]
    return sorted(experts, key=lambda expert: -float(ranks[expert]))[: router.top_k]


def one_expert(mlp: ExpertMLP, expert: int, token: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    own = mlp.experts
    if own.gate_bias is None or own.up_bias is None or own.down_bias is None:
        return down @ (F.silu(gate @ token) * (up @ token))
    wide = (gate @ token + own.gate_bias[expert]).clamp(max=0.5)
    other = (up @ token + own.up_bias[expert]).clamp(-0.5, 0.5)
    return down @ (wide * torch.sigmoid(1.702 * wide) * (other + 1)) + own.down_bias[expert]


def losses(mlp: ExpertMLP, x: Tensor, probabilities: Tensor, chosen: Tensor) -> Tensor:
    count = mlp.router.weight.shape[0]
    shares = probabilities / probabilities.sum(-1, keepdim=True)
    balance = x.new_zeros(())
    for sample in range(SAMPLES):
        own = slice(sample * SEQUENCE, (sample + 1) * SEQUENCE)
        for expert in range(count):
            used = float((chosen[own] == expert).sum()) / chosen[own].numel()
            balance = balance + count * used * shares[own, expert].mean() / SAMPLES
    bias = 0 if mlp.router.bias is None else mlp.router.bias
    z = (x @ mlp.router.weight.t() + bias).exp().sum(-1).log().square().mean()
    return mlp.router.balance_loss * balance + mlp.router.z_loss * z


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_of_experts_is_what_each_token_gets_by_itself(kind):
    """Outputs and all gradients, those of the router's losses among them."""
    mlp = made(**KINDS[kind])
    x = torch.randn(SAMPLES * SEQUENCE, 16, dtype=torch.float64, requires_grad=True)
    wanted = torch.randn_like(x)
    given = [x, *mlp.parameters()]

    out = mlp(x, Microbatch(sequence=SEQUENCE, scale=0.7))
    found = torch.autograd.grad((out * wanted).sum(), given)
    expected, probabilities, chosen = by_hand(mlp, x)
    total = (expected * wanted).sum() + 0.7 * losses(mlp, x, probabilities, chosen)
    assert torch.allclose(out, expected, rtol=1e-12, atol=1e-12)
    wanted_all = torch.autograd.grad(total, given, allow_unused=True)
    for given_one, one, other in zip(given, found, wanted_all, strict=True):
        if given_one is mlp.router.choice_bias:  # which does not follow the loss
            assert other is None
            assert not one.any()
            continue
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-12)


def test_the_gradient_of_a_bias_of_choice_is_the_use_of_its_expert():
    mlp = made(router="sigmoid", router_bias="choice", balance_rate=0.1)
    x = torch.randn(SAMPLES * SEQUENCE, 16, dtype=torch.float64)
    (2.5 * mlp(x, Microbatch(sequence=SEQUENCE))).sum().backward()
    used = torch.bincount(by_hand(mlp, x)[2].flatten(), minlength=6)
    bias = mlp.router.choice_bias
    assert bias is not None
    assert bias.grad is not None
    assert torch.equal(bias.grad, (6 * used - used.sum()).double())


def test_no_token_is_dropped_however_uneven_the_choice():
    mlp = made(top_k=1)
    with torch.no_grad():
        mlp.router.weight.zero_()
        mlp.router.weight[4, 0] = 100.0
    x = torch.randn(40, 16, dtype=torch.float64)
    x[:, 0] = 1.0
    out = mlp(x, Microbatch(sequence=40))
    assert torch.allclose(out, by_hand(mlp, x)[0])
    assert (out.abs().sum(1) > 0).all()


def test_the_router_computes_in_full_precision():
    """In bf16 two scores would be equal that are not."""
    mlp = made(torch.bfloat16, experts=2, top_k=1, balance_loss=0.0, z_loss=0.0)
    with torch.no_grad():
        mlp.router.weight.zero_()
        mlp.router.weight[0, :2] = torch.tensor([256.0, 0.0])
        mlp.router.weight[1, :2] = torch.tensor([256.0, 0.5])
    x = torch.zeros(1, 16, dtype=torch.bfloat16)
    x[0, :2] = 1.0
    weights, chosen = mlp.router(x, Microbatch(sequence=1))
    assert chosen.tolist() == [[1]]
    assert weights.dtype == torch.bfloat16


def test_the_balance_loss_is_one_where_all_is_even():
    mlp = made(experts=4, top_k=2, balance_loss=1.0, z_loss=0.0)
    even = torch.full((8, 4), 0.25, dtype=torch.float64)
    chosen = torch.tensor([[0, 1], [2, 3]] * 4)
    assert float(mlp.router.losses(even.log(), even, chosen, 8)) == pytest.approx(1.0)
    uneven = torch.tensor([[1.0, 0, 0, 0]] * 8, dtype=torch.float64)
    assert float(mlp.router.losses(uneven, uneven, torch.zeros_like(chosen), 8)) == pytest.approx(4.0)


def test_no_loss_hangs_on_an_evaluation():
    mlp = made(**GATED)
    x = torch.randn(10, 16, dtype=torch.float64)
    with torch.no_grad():
        quiet = mlp(x, Microbatch(sequence=5))
    assert torch.equal(quiet, mlp(x, Microbatch(sequence=5)).detach())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(3, 0, 4, 3), (0, 0, 0, 9), (1, 1, 1, 1)])
@pytest.mark.parametrize("width", [16, 6])  # what PyTorch's kernel takes, and what it does not
def test_grouped_products_are_products_block_by_block(dtype, sizes, width):
    torch.manual_seed(1)
    rows = torch.randn(sum(sizes), 8, dtype=dtype, requires_grad=True)
    weights = torch.randn(4, width, 8, dtype=dtype, requires_grad=True)
    ends = torch.tensor(sizes).cumsum(0).to(torch.int32)
    one = grouped(rows, weights, ends)
    other = torch.cat([block @ weight.t() for block, weight in zip(rows.split(sizes), weights, strict=True)])
    given = torch.randn_like(other)
    close = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}[dtype]
    assert torch.allclose(one, other, rtol=close, atol=close)
    for mine, theirs in zip(
        torch.autograd.grad(one, (rows, weights), given),
        torch.autograd.grad(other, (rows, weights), given),
        strict=True,
    ):
        assert torch.allclose(mine, theirs, rtol=close, atol=close)


def test_frozen_experts_get_no_gradient():
    mlp = made()
    mlp.experts.requires_grad_(False)
    x = torch.randn(10, 16, dtype=torch.float64, requires_grad=True)
    mlp(x, Microbatch(sequence=5)).sum().backward()
    assert mlp.experts.gate.grad is None
    assert x.grad is not None


def test_a_layer_without_experts_has_an_mlp():
    spec = experts(layers=2, dense_layers="1")
    assert isinstance(make_mlp(spec.layer(0)), ExpertMLP)
    assert not isinstance(make_mlp(spec.layer(1)), ExpertMLP)
    assert replace(spec, layers=2) == spec
