from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from heddle.parallel.mesh import Mesh
from heddle.parallel.replicas.reducer import Reducer
from heddle.spec import Train
from heddle.training.step.optimizer import LossScale, Optimizer


def parameters(dtype=torch.float32) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return {
        "weight": nn.Parameter(torch.randn(4, 3, generator=generator).to(dtype)),
        "bias": nn.Parameter(torch.randn(3, generator=generator).to(dtype)),
    }


def setup(named: dict[str, nn.Parameter], train: Train) -> tuple[Optimizer, Callable[[float], float]]:
    """An optimizer of these parameters on one device, and its whole step, given a rate."""
    reducer = Reducer({0: list(named.items())}, Mesh(), lambda _: 0)
    optimizer = Optimizer(reducer.pieces, train)

    def step(rate: float) -> float:
        reducer.finish()
        norm = float(optimizer.step(rate, optimizer.squared_norm()))
        optimizer.settle(norm)
        reducer.clear()
        return norm

    return optimizer, step


def set_gradients(named: dict[str, nn.Parameter], seed: int, size: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    loss = sum((p * (size * torch.randn(p.shape, generator=generator)).to(p.dtype)).sum() for p in named.values())
    loss.backward()


def test_a_bias_of_choice_follows_use_and_nothing_else():
    """By the rate, against the sign of its gradient, however large that is; the norm and the others do not see it."""
    name = "layers.0.mlp.router.choice_bias"
    alone, beside = parameters(), parameters() | {name: nn.Parameter(torch.zeros(4))}
    _, plain = setup(alone, Train(clip=0.5))
    reducer = Reducer({0: list(beside.items())}, Mesh(), lambda _: 0)
    optimizer = Optimizer(reducer.pieces, Train(clip=0.5), balance_rate=0.25)
    for step in range(3):
        set_gradients(alone, step)
        set_gradients({key: p for key, p in beside.items() if key != name}, step)
        beside[name].grad = torch.tensor([1e6, -3.0, 0.0, 0.5])
        reducer.finish()
        assert float(optimizer.step(0.01, optimizer.squared_norm())) == plain(0.01)
        reducer.clear()
    assert beside[name].tolist() == [-0.75, 0.75, 0.0, -0.75]
    assert all(torch.equal(alone[key], beside[key]) for key in alone)
    beside[name].grad = torch.ones(4)
    reducer.finish()
    optimizer.step(0.01, torch.tensor(math.inf))
    assert beside[name].tolist() == [-0.75, 0.75, 0.0, -0.75]  # of a step that is left out, nothing


def test_steps_equal_adamw_written_out():
    train = Train(clip=0.5, weight_decay=0.1, beta1=0.9, beta2=0.95, epsilon=1e-8)
    ours, theirs = parameters(), {name: p.detach().double() for name, p in parameters().items()}
    _, step_with = setup(ours, train)
    first = {name: torch.zeros_like(p) for name, p in theirs.items()}
    second = {name: torch.zeros_like(p) for name, p in theirs.items()}
    for step in range(1, 6):
        set_gradients(ours, step)
        gradients = {name: p.grad.double() for name, p in ours.items()}
        norm = math.sqrt(sum(float((g * g).sum()) for g in gradients.values()))
        assert step_with(0.01) == pytest.approx(norm, rel=1e-6)
        for name, p in theirs.items():
            g = gradients[name] * min(1, 0.5 / norm)
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.95 * second[name] + 0.05 * g * g
            p *= 1 - 0.01 * (0.1 if name == "weight" else 0)  # no decay of biases
            p -= 0.01 * (first[name] / (1 - 0.9**step)) / ((second[name] / (1 - 0.95**step)).sqrt() + 1e-8)
    for name, p in ours.items():
        torch.testing.assert_close(p.detach().double(), theirs[name], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("clip", [0.0, 1e9])
def test_gradients_below_the_limit_are_left_alone(clip):
    ours, plain = parameters(), parameters()
    _, step_with = setup(ours, Train(clip=clip, weight_decay=0.0))
    reference = torch.optim.AdamW(plain.values(), lr=0.1, betas=(0.9, 0.95), weight_decay=0.0)
    for named in (ours, plain):
        set_gradients(named, 1, size=50.0)
    step_with(0.1)
    reference.step()
    for name, p in ours.items():
        torch.testing.assert_close(p, plain[name])


def test_masters_remember_updates_too_small_for_bfloat16():
    named = {"weight": nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))}
    optimizer, step_with = setup(named, Train(weight_decay=0.0, clip=0.0, precision="bf16"))
    for _ in range(100):
        named["weight"].sum().backward()
        step_with(1e-4)  # an update that bfloat16 alone would round away: 1 - 1e-4 == 1
    assert named["weight"].dtype == torch.bfloat16
    assert float(named["weight"][0, 0].detach()) == pytest.approx(1 - 100 * 1e-4, abs=4e-3)
    assert float(optimizer.pieces[0].master[0]) == pytest.approx(0.99, abs=1e-5)


def test_low_precision_gradients_are_added_up_in_full_precision():
    named = {"weight": nn.Parameter(torch.zeros(1, 1, dtype=torch.bfloat16))}
    reducer = Reducer({0: list(named.items())}, Mesh(), lambda _: 0)
    for _ in range(1000):
        (named["weight"] * 1.0).sum().backward()  # in bfloat16, 256 + 1 == 256
    assert named["weight"].grad is None
    reducer.finish()
    assert reducer.pieces[0].master.grad.item() == 1000


def test_loss_scale_halves_on_overflow_and_skips_the_step():
    named = parameters()
    before = {name: p.detach().clone() for name, p in named.items()}
    optimizer, step_with = setup(named, Train(precision="fp16"))
    set_gradients(named, 1, size=math.inf)
    assert not math.isfinite(step_with(0.1))
    assert all(torch.equal(p, before[name]) for name, p in named.items())
    assert all(p.grad is None for p in named.values())
    assert optimizer.scale.value == 2**15


def test_scaled_gradients_give_the_same_step():
    plain, scaled = parameters(), parameters()
    (_, one), (optimizer, other) = setup(plain, Train(clip=0.3)), setup(scaled, Train(clip=0.3, precision="fp16"))
    set_gradients(plain, 1)
    set_gradients(scaled, 1, size=optimizer.scale.value)
    assert one(0.1) == pytest.approx(other(0.1))
    for name, p in plain.items():
        torch.testing.assert_close(p, scaled[name])


def test_loss_scale_grows_after_a_quiet_stretch():
    scale = LossScale(enabled=True)
    for _ in range(LossScale.GROWTH_INTERVAL - 1):
        scale.update(overflow=False)
    assert scale.value == 2**16
    scale.update(overflow=False)
    assert scale.value == 2**17
    scale.update(overflow=True)
    assert (scale.value, scale.quiet) == (2**16, 0)


def test_a_step_reads_no_number_from_its_device():
    """Reading one waits until the device has done all it was given; then it idles while it is given the update."""
    named = parameters()
    optimizer, _ = setup(named, Train(clip=0.1))
    set_gradients(named, 1)
    for piece, parameter in zip(optimizer.pieces, named.values(), strict=True):
        piece.master.grad = parameter.grad.view(-1)
    with Reads() as reads:
        optimizer.step(0.1, optimizer.squared_norm())
    assert reads.count == 0


class Reads(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_a_norm_that_is_not_finite_changes_neither_weights_nor_moments():
    named = parameters()
    optimizer, step_with = setup(named, Train())
    set_gradients(named, 1)
    step_with(0.1)
    before = [{kind: value.clone() for kind, value in optimizer.adam.state[p.master].items()} for p in optimizer.pieces]
    weights = [p.master.clone() for p in optimizer.pieces]
    set_gradients(named, 2, size=math.inf)
    assert not math.isfinite(step_with(0.1))
    assert optimizer.updates == 1
    for piece, state, weight in zip(optimizer.pieces, before, weights, strict=True):
        assert torch.equal(piece.master, weight)
        assert all(torch.equal(optimizer.adam.state[piece.master][kind], value) for kind, value in state.items())
