"""Products in 8 bits: what they round, that all three are rounded, and that a device that can is asked to."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.replicas.bucket import Bucket
from heddle.parallel.tensor import linear, products
from heddle.parallel.tensor.linear import ColumnParallelLinear, RowParallelLinear
from heddle.parallel.tensor.products import EXACT, Float8Products, product
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.strict.pretended import pretended_gpu

SCALINGS = ("row", "tensor")


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def three(how: products.Products, x: Tensor, weight: Tensor, gradient: Tensor) -> list[Tensor]:
    made = how.forward(how.operand(x, None), weight, None)
    return [made, how.to_input(gradient, weight), how.to_weight(gradient, x)]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_all_three_are_off_by_what_their_formats_round(scaling):
    """A number with m bits behind the point is off by 2^-(m+1) / sqrt(3) or less, as a mean, and a product by both."""
    x, weight, gradient = noise(64, 96), noise(48, 96, seed=1), noise(64, 48, seed=2)
    exact = three(EXACT, *(part.double() for part in (x, weight, gradient)))
    e4m3, e5m2 = 2.0**-4 / 3**0.5, 2.0**-3 / 3**0.5
    back = e4m3 if scaling == "row" else e5m2
    expected = [(2 * e4m3**2) ** 0.5, *2 * [(e4m3**2 + back**2) ** 0.5]]
    for found, whole, most in zip(three(Float8Products(scaling), x, weight, gradient), exact, expected, strict=True):
        assert found.dtype == torch.bfloat16
        assert most / 3 < error(found, whole) < most


def test_scales_of_rows_are_powers_of_two_and_let_nothing_overflow():
    """So that the same number becomes the same 8 bits by rows and by columns."""
    x = noise(64, 96) * torch.logspace(-3, 3, 64)[:, None]
    how = Float8Products("row")
    by_row, by_column = how.rounded(x, torch.float8_e4m3fn), how.rounded(x.t(), torch.float8_e4m3fn)
    assert by_row.scale is not None
    assert torch.equal(by_row.scale.log2(), by_row.scale.log2().round())
    assert by_row.values.float().abs().max() <= 448
    assert (by_row.values.float().abs().amax(1) >= 224).all()
    whole = [part.values.float() * part.scale for part in (by_row, by_column)]
    usual = x.abs() > 2.0**-6 * by_column.scale.t()  # what is smaller has fewer bits there
    torch.testing.assert_close(whole[0][usual], whole[1].t()[usual], rtol=0, atol=0)


def test_a_row_of_small_numbers_keeps_its_bits():
    """One scale for all would leave them to what is smallest in the format."""
    x = noise(2, 64)
    x[1] *= 1e-6
    weight = noise(32, 64, seed=1)
    exact = x.double() @ weight.double().t()
    by_row, by_tensor = (
        how.forward(how.operand(x, None), weight, None)[1] for how in (Float8Products("row"), Float8Products("tensor"))
    )
    assert error(by_row, exact[1]) < 0.06
    assert error(by_tensor, exact[1]) > 0.5
    nothing = Float8Products("row")
    assert not nothing.forward(nothing.operand(torch.zeros_like(x), None), weight, None).any()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_device_with_units_for_it_gets_what_they_ask_for(monkeypatch, scaling):
    """Rows of the first operand and columns of the second lie one after the other; scales are fp32."""
    asked = []

    def scaled_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype) -> Tensor:
        asked.append((a.dtype, b.dtype))
        assert a.is_contiguous()
        assert b.t().is_contiguous()
        assert scale_a.dtype == scale_b.dtype == torch.float32
        if scaling == "row":
            assert scale_a.shape == (len(a), 1)
            assert scale_b.shape == (1, b.shape[1])
        else:
            assert scale_a.dim() == scale_b.dim() == 0
        return ((a.float() @ b.float()) * scale_a * scale_b).to(out_dtype)

    x, weight, gradient = noise(32, 64), noise(48, 64, seed=1), noise(32, 48, seed=2)
    expected = three(Float8Products(scaling), x, weight, gradient)
    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    found = three(Float8Products(scaling, native=True), x, weight, gradient)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    back = e4m3 if scaling == "row" else e5m2
    assert asked == [(e4m3, e4m3), (back, e4m3), (back, e4m3)]
    odd = Float8Products(scaling)
    product(odd.rounded(noise(3, 64), e4m3), odd.rounded(weight, e4m3), native=True)
    assert len(asked) == 3  # sizes that the units do not take


MODEL = ModelSpec(
    layers=2, hidden=32, heads=4, vocab=64, sequence=32, ffn=64, activation="swiglu", norm="rmsnorm", tied=True
)


def job(precision: str, steps: int = 40, **train: Any) -> Job:
    settings = Train(global_batch=4, steps=steps, learning_rate=1e-2, precision=precision, **train)
    return Job(model=MODEL, data=Data(text="-"), train=settings, plan=Plan(microbatch=4))


def test_the_layers_products_and_no_others_are_in_8_bits():
    layers = Trainer(job("fp8", fp8_scaling="tensor"), np.zeros(100, "<u2")).parallel.chunks[0]
    found = [m for m in layers.modules() if isinstance(m, ColumnParallelLinear | RowParallelLinear)]
    assert len(found) == 2 * 5
    assert all(isinstance(module.products, Float8Products) and not module.products.by_row for module in found)
    assert isinstance(layers.head, torch.nn.Linear)
    assert layers.head.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("scaling", thinned(SCALINGS, slow=list(SCALINGS)[1:]))
def test_it_learns_what_bf16_learns(scaling):
    """Text with a pattern, over three seeds; more steps: benchmarks/accuracy/float8.py."""
    tokens = (np.arange(4000) ** 2 % 61).astype("<u2")
    gaps = []
    for seed in range(3):
        ends = []
        for precision in ("bf16", "fp8"):
            trainer = Trainer(job(precision, seed=seed, fp8_scaling=scaling), tokens)
            losses = [trainer.train_step().loss for _ in range(40)]
            assert losses[-1] < 0.6 * losses[0]
            ends.append(statistics.mean(losses[-8:]))
        gaps.append(ends[1] - ends[0])
    assert 0 < abs(statistics.mean(gaps)) < 0.1, gaps


def test_chunks_of_what_is_exchanged_are_refused():
    from heddle.errors import HeddleError

    with pytest.raises(HeddleError, match="tensor_chunks = 2 cannot be combined with precision = 'fp8'"):
        replace(job("fp8"), plan=Plan(tensor=2, tensor_chunks=2))


def added_in_full(self: products.Products, gradient: Tensor, x: Tensor, whole: Tensor, first: bool) -> None:
    """As a GPU would: sums in fp32, and nothing is rounded."""
    whole.copy_(torch.zeros_like(whole) if first else whole).addmm_(gradient.t().float(), x.float())


def emulated(stack: ExitStack, on: bool = True) -> None:
    """Let this machine add products to gradients in full precision."""
    stack.enter_context(patch.object(products.Products, "can_add", lambda self, _: self.exact and on))
    stack.enter_context(patch.object(products.Products, "add_to_weight", added_in_full))


def test_a_gpu_adds_products_to_gradients_in_full_precision():
    """Rounded to bf16 before they are added, the gradients of many microbatches would lose bits."""
    weight = torch.nn.Parameter(noise(48, 64).clone())
    bucket = Bucket([("w", weight)], Axis(), [], Mesh(), 0, None)
    parts = [(noise(32, 64, seed=n), noise(32, 48, seed=100 + n)) for n in range(16)]
    whole = sum(gradient.double().t() @ x.double() for x, gradient in parts)
    off = []
    for on in (False, True):
        bucket.clear()
        bucket.expect(len(parts))
        with ExitStack() as stack:
            emulated(stack, on)
            for x, gradient in parts:
                y = linear._ColumnParallel.apply(x, (None, Axis(), EXACT, 1), None, weight, None)[0]
                y.backward(gradient)
        assert bucket.awaited == 0
        assert weight.grad is None
        off.append(error(bucket.views[0], whole))
    assert off[1] < 1e-6 < 1e-4 < off[0]


def test_the_kernels_that_add_are_pytorchs():
    """What `add_to_weight` calls on a GPU."""
    for operator in (torch.ops.aten.mm.dtype_out, torch.ops.aten.addmm.dtype_out):
        assert "ScalarType out_dtype" in str(operator._schema)
    assert not EXACT.can_add(noise(2, 2))
    with pretended_gpu():
        assert EXACT.can_add(noise(2, 2).to("cuda"))
        assert not EXACT.can_add(noise(2, 2).float().to("cuda"))
        assert not Float8Products("row").can_add(noise(2, 2).to("cuda"))


def losses_of(mesh: Mesh, how: Job, on: bool) -> list[float]:
    with ExitStack() as stack:
        emulated(stack, on)
        trainer = Trainer(how, synthetic_tokens(how), mesh)
        return [trainer.train_step().loss for _ in range(3)]


@pytest.mark.dist
@pytest.mark.parametrize("sequence", [False, True])
def test_ranks_learn_the_same_where_products_are_added_at_once(world, sequence):
    """Whatever the sum over replicas waits for has come by then, too."""
    plan = Plan(tensor=2, sequence=sequence, data=2, zero=1, microbatch=1, recompute="full")
    how = replace(job("fp32", steps=3), plan=plan)
    found, expected = (world.run(losses_of, plan, how, on) for on in (True, False))
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
