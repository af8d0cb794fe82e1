"""Matrices in four bits: bitsandbytes' own, and the same whoever holds which part."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from heddle.models import nf4
from heddle.models.nf4 import NF4Rows, rounded, rows_of, with_rows


def matrix(rows: int, columns: int) -> torch.Tensor:
    torch.manual_seed(rows * columns)
    values = torch.randn(rows, columns) * torch.logspace(-4, 2, rows)[:, None]
    values[rows // 2, : columns // 2] = 0.0  # a block of nothing
    return values


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_are_those_of_bitsandbytes(dtype):
    functional = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed").functional
    values = matrix(24, 192).to(dtype)
    theirs, state = functional.quantize_4bit(values, blocksize=64, compress_statistics=False, quant_type="nf4")
    layout = NF4Rows(0, 192)
    ours = layout.pack(values)
    scales, codes = ours[:, : 4 * 3], ours[:, 4 * 3 :]
    assert torch.equal(codes.flatten(), theirs.flatten())
    assert torch.equal(scales.contiguous().view(torch.float32).flatten(), state.absmax)
    assert torch.equal(layout.numbers(ours, dtype), functional.dequantize_4bit(theirs, state))


@pytest.mark.parametrize("columns", [1, 16, 63, 64, 100, 128, 200])
def test_every_slice_has_the_bits_of_the_whole(columns):
    values = matrix(6, columns)
    whole = rounded(values)
    for first in range(0, columns, 7):
        for last in range(first + 1, columns + 1, 13):
            layout = NF4Rows(first, last - first)
            packed = layout.pack(values[:, layout.begin : layout.end(columns)])
            assert packed.shape[1] == layout.bytes
            assert layout.bytes % 4 == 0
            assert torch.equal(layout.numbers(packed, torch.float32), whole[:, first:last])


def test_what_comes_back_stays_as_it_is():
    once = rounded(matrix(8, 128))
    assert torch.equal(rounded(once), once)
    assert (once - matrix(8, 128)).norm() / once.norm() < 0.15


def test_many_rows_are_made_in_turns(monkeypatch):
    values = matrix(40, 128)
    whole = rounded(values)
    monkeypatch.setattr(nf4, "AT_ONCE", 256)
    assert torch.equal(rounded(values), whole)


def test_a_product_keeps_bytes_alone_and_has_the_gradient_of_plain_numbers():
    layout = NF4Rows(0, 192)
    weight = with_rows(layout.pack(matrix(24, 192)), layout)
    assert rows_of(weight) == layout
    kept: list[torch.Tensor] = []
    x = torch.randn(5, 192, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = nf4.linear(x, weight, None)
    assert [each.dtype for each in kept] == [torch.uint8]
    (gradient,) = torch.autograd.grad(y.square().sum(), x)
    plain = F.linear(x, rounded(matrix(24, 192)))
    assert torch.equal(y, plain)
    torch.testing.assert_close(gradient, torch.autograd.grad(plain.square().sum(), x)[0])
