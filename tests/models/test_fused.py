"""The kernels for CPUs give the bits that PyTorch's operations give, forwards and backwards."""

import pytest
import torch

from heddle.models import fused, random
from heddle.models.rotary import rotate

pytest.importorskip("llvmlite", reason="the kernels are compiled by llvmlite (the extra lanes)")


@pytest.fixture
def eager(monkeypatch):
    """Runs something as PyTorch does it."""

    def run(work, *arguments):
        with monkeypatch.context() as patched:
            patched.setattr(fused, "usable", lambda _: False)
            return work(*arguments)

    return run


def same(a, b):
    return torch.equal(a.view(torch.int32), b.view(torch.int32)) or torch.equal(a, b)


SHAPES = {"plain": ((2, 3, 7, 16), False), "heads inside": ((2, 5, 3, 12), True), "one": ((1, 1, 1, 2), False)}
SHAPES["as a model has it"] = ((2, 33, 4, 64), True)


@pytest.mark.parametrize("name", SHAPES)
def test_rotation_has_the_same_bits(name, eager):
    torch.manual_seed(0)
    shape, inside = SHAPES[name]
    x = torch.randn(shape).transpose(1, 2) if inside else torch.randn(shape)
    angle = torch.randn(x.shape[2] + 3, shape[-1] // 2).repeat(1, 2)
    cos, sin = angle.cos()[2 : x.shape[2] + 2], angle.sin()[2 : x.shape[2] + 2]
    ours, theirs = (x.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2))
    made, wanted = rotate(ours, cos, sin), eager(rotate, theirs, cos, sin)
    assert "Rotate" in type(made.grad_fn).__name__
    assert "Rotate" not in type(wanted.grad_fn).__name__
    gradient = torch.randn(made.shape)
    made.backward(gradient)
    wanted.backward(gradient)
    assert same(made.detach().contiguous(), wanted.detach().contiguous())
    assert made.stride() == wanted.stride()
    assert torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize(("rows", "width"), [(5, 19), (1, 8), (64, 128)])
def test_dropout_has_the_same_bits(rows, width, eager):
    torch.manual_seed(0)
    x, keys = torch.randn(rows, width), random.token_keys(3, torch.arange(rows), 1)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    made, wanted = random.dropout(ours, 0.3, 77, keys), eager(random.dropout, theirs, 0.3, 77, keys)
    assert "Drop" in type(made.grad_fn).__name__
    gradient = torch.randn(made.shape)
    made.backward(gradient)
    wanted.backward(gradient)
    assert torch.equal(made, wanted)
    assert torch.equal(ours.grad, theirs.grad)
    assert width < 100 or 0.2 < (made == 0).float().mean() < 0.4


def test_others_are_left_to_pytorch(monkeypatch):
    x = torch.randn(2, 8)
    assert fused.usable(x)
    assert not fused.usable(x.double())
    assert not fused.usable(x.to("meta"))
    assert not fused.usable(x.t())
    assert not fused.usable(x[:0])
    with torch._subclasses.FakeTensorMode():
        assert not fused.usable(torch.empty(2, 8))
    monkeypatch.setattr(fused, "kernels", lambda: None)  # as where llvmlite is not installed
    assert not fused.usable(x)
