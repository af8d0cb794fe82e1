"""Tensor-parallel layers against plain torch: the same outputs, the same gradients, a slice of the memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from heddle.parallel.collectives import Handle, gather, reduce_scatter, slice_of, sum_partial, take_slice
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.parameter_layout import place_of
from heddle.parallel.tensor import linear as linear_module
from heddle.parallel.tensor.linear import ColumnParallelLinear, RowParallelLinear, column_parallel
from heddle.spec import Plan

pytestmark = pytest.mark.dist

TOKENS, WIDE, NARROW = 8, 12, 8


def whole_linear(inputs: int, outputs: int, bias: bool) -> tuple[nn.Linear, Tensor, Tensor]:
    """The same layer, input and gradient of the output on every rank."""
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(inputs, outputs, bias=bias)
    for parameter in linear.parameters():
        parameter.data.normal_(generator=generator)
    x = torch.randn(TOKENS, inputs, generator=generator, requires_grad=True)
    return linear, x, torch.randn(TOKENS, outputs, generator=generator)


def fill(local: Tensor, whole: Tensor) -> None:
    """Give a split parameter its part of the whole one's values."""
    box = tuple(slice(start, start + size) for start, size in zip(place_of(local).offset, local.shape, strict=True))
    local.data = whole.detach()[box].clone()


def columns(x: Tensor, axis: Axis) -> Tensor:
    return x.chunk(axis.size, dim=-1)[axis.rank]


def run_column(mesh: Mesh, bias: bool, sequence: bool) -> None:
    axis = mesh.tensor
    linear, x, gradient = whole_linear(NARROW, WIDE, bias)
    expected = linear(x)
    expected.backward(gradient)
    with torch.device("meta"):
        layer = ColumnParallelLinear(nn.Linear(NARROW, WIDE, bias=bias), axis, sequence)
    layer.weight, layer.bias = made(layer.weight), made(layer.bias)
    assert layer.weight.shape == (WIDE // axis.size, NARROW)
    fill(layer.weight, linear.weight)
    if bias:
        fill(layer.bias, linear.bias)
    local = (slice_of(x, axis) if sequence else x).detach().clone().requires_grad_()
    y = layer(local)
    y.backward(columns(gradient, axis).contiguous())
    torch.testing.assert_close(y, columns(expected, axis))
    torch.testing.assert_close(local.grad, slice_of(x.grad, axis) if sequence else x.grad)
    torch.testing.assert_close(layer.weight.grad, linear.weight.grad.chunk(axis.size)[axis.rank])
    if bias:
        torch.testing.assert_close(layer.bias.grad, linear.bias.grad.chunk(axis.size)[axis.rank])


def run_row(mesh: Mesh, bias: bool, sequence: bool) -> None:
    axis = mesh.tensor
    linear, x, gradient = whole_linear(WIDE, NARROW, bias)
    expected = linear(x)
    expected.backward(gradient)
    with torch.device("meta"):
        layer = RowParallelLinear(nn.Linear(WIDE, NARROW, bias=bias), axis, sequence)
    layer.weight, layer.bias = made(layer.weight), made(layer.bias)
    assert layer.weight.shape == (NARROW, WIDE // axis.size)
    fill(layer.weight, linear.weight)
    if bias:
        fill(layer.bias, linear.bias)
    local = columns(x, axis).detach().clone().requires_grad_()
    y = layer(local)
    y.backward(slice_of(gradient, axis) if sequence else gradient)
    torch.testing.assert_close(y, slice_of(expected, axis) if sequence else expected)
    torch.testing.assert_close(local.grad, columns(x.grad, axis))
    torch.testing.assert_close(layer.weight.grad, columns(linear.weight.grad, axis))
    if bias:
        # with sequence parallelism each rank has seen its tokens only; the reducer adds the parts up
        own = slice_of(gradient, axis).sum(0) if sequence else linear.bias.grad
        torch.testing.assert_close(layer.bias.grad, own)


def made(parameter: nn.Parameter | None) -> nn.Parameter | None:
    """Memory for a parameter of the meta device, in the same place."""
    if parameter is None:
        return None
    real = nn.Parameter(torch.full_like(parameter, torch.nan, device="cpu"))
    real.__dict__.update(parameter.__dict__)
    return real


@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("tensor", [2, 4])
@pytest.mark.parametrize("run", [run_column, run_row], ids=["column", "row"])
def test_a_layer_is_its_share_of_the_whole(world, run, tensor, bias, sequence):
    world.run(run, Plan(tensor=tensor), bias, sequence)


def keeps(mesh: Mesh, sequence: bool) -> int:
    """Elements that a column-parallel layer keeps for its backward, its weight aside."""
    axis = mesh.tensor
    layer = ColumnParallelLinear(nn.Linear(NARROW, WIDE, bias=False), axis, sequence)
    x = torch.randn(TOKENS // axis.size if sequence else TOKENS, NARROW, requires_grad=True)
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(x)
    return sum(tensor.numel() for tensor in saved) - layer.weight.numel()


def test_sequence_parallelism_keeps_only_the_slice(world):
    assert world.run(keeps, Plan(tensor=4), False) == 4 * [TOKENS * NARROW]
    assert world.run(keeps, Plan(tensor=4), True) == 4 * [TOKENS * NARROW // 4]


class Products(TorchDispatchMode):
    """Notes products, between what is begun and what is waited for."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.name in ("aten::mm", "aten::addmm"):
            self.log.append("product")
        return func(*args, **(kwargs or {}))


class Noted(Handle):
    """An exchange of one rank with itself that is noted."""

    def __init__(self, log: list[str], what: str, x: Tensor) -> None:
        super().__init__([], x)
        self.log, self.what = log, what
        log.append(f"begin the {what}")

    def wait(self) -> Tensor:
        self.log.append(f"wait for the {self.what}")
        return self.result


def test_exchanges_of_a_backward_run_beside_its_products(monkeypatch):
    """The input is gathered beside the product of its gradient, which is summed beside that of the weight's."""
    log: list[str] = []
    monkeypatch.setattr(linear_module, "start_gather", lambda x, _axis: Noted(log, "gather", x))
    monkeypatch.setattr(linear_module, "start_sum", lambda x, _axis, _sequence: Noted(log, "sum", x))
    first, x, gradient = whole_linear(NARROW, WIDE, bias=False)
    layer = ColumnParallelLinear(first, Axis(), sequence=True)
    (y,) = column_parallel((layer,), x)
    with Products(log):
        y.backward(gradient)
    assert log == [
        *("begin the gather", "product", "wait for the gather"),
        *("begin the sum", "product", "wait for the sum"),
    ]


def run_collectives(mesh: Mesh) -> None:
    axis = mesh.tensor
    whole = torch.arange(24.0).view(8, 3)
    assert torch.equal(gather(slice_of(whole, axis), axis), whole)
    assert torch.equal(reduce_scatter(whole.clone(), axis), axis.size * slice_of(whole, axis))
    # a slice's gradient is gathered: each rank contributes what its slice learned
    x = whole.clone().requires_grad_()
    (take_slice(x, axis) * (axis.rank + 1)).sum().backward()
    factors = torch.arange(1.0, axis.size + 1).repeat_interleave(8 // axis.size)
    assert torch.equal(x.grad, factors[:, None].expand(8, 3))
    # a sum is the same on all ranks, so its gradient is, too: no second sum
    x = torch.full((2,), float(axis.rank), requires_grad=True)
    total = sum_partial(x, axis)
    assert total.tolist() == 2 * [sum(range(axis.size))]
    total.backward(torch.tensor([1.0, 2.0]))
    assert x.grad.tolist() == [1.0, 2.0]
    assert x.tolist() == 2 * [axis.rank], "the input was changed"


def test_collectives_and_their_gradients(world):
    world.run(run_collectives, Plan(tensor=4))
