"""Attention over tokens that ranks share, against PyTorch's over the whole sample in float64."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.parallel.context.attention import EXCHANGES, Shared
from heddle.parallel.context.cut import as_held
from heddle.parallel.mesh import Mesh
from heddle.spec import Plan
from tests.helpers.world import World

pytestmark = pytest.mark.dist


class Case(NamedTuple):
    heads: int
    kv_heads: int
    sequence: int
    window: int | None = None
    documents: tuple[tuple[int, ...], ...] = ()


CASES = {
    "plain": Case(4, 4, 64),
    "groups": Case(8, 4, 64),
    "window": Case(8, 4, 64, window=5),
    "window-of-blocks": Case(4, 4, 256, window=70),
    "documents": Case(8, 4, 64, documents=((10, 1, 30, 23), (64,), (5, 59))),
    "documents-window": Case(4, 4, 64, window=7, documents=((20, 44), (64,), (1, 1, 1, 61))),
}
SAMPLES, SIZE = 3, 8


def tensors(case: Case, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    shapes = [(SAMPLES, heads, case.sequence, SIZE) for heads in (case.heads, case.kv_heads, case.kv_heads, case.heads)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def shared(mesh: Mesh, case: Case, exchange: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """This rank's output, and the gradients of its queries, keys and values."""
    axis = mesh.context
    *inputs, gradient = (as_held(x, 2, axis.size)[axis.rank].clone() for x in tensors(case, dtype))
    inputs = [x.requires_grad_() for x in inputs]
    y = EXCHANGES[exchange](*inputs, Shared(axis, case.sequence, case.window, case.documents))  # type: ignore[call-arg]
    y.backward(gradient)
    return y.detach(), *(x.grad for x in inputs)


def whole(case: Case, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    q, k, v, gradient = (x.to(dtype) for x in tensors(case, torch.float64))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    place = torch.arange(case.sequence)
    back = place[:, None] - place
    mask = (back >= 0) & (back < (case.window or case.sequence))
    documents = case.documents or ((case.sequence,),) * SAMPLES
    numbers = [torch.repeat_interleave(torch.arange(len(each)), torch.tensor(each)) for each in documents]
    masks = torch.stack([mask & (number[:, None] == number) for number in numbers])[:, None]
    y = F.scaled_dot_product_attention(*inputs, attn_mask=masks, enable_gqa=True)
    y.backward(gradient)
    return y.detach(), *(x.grad for x in inputs)


@pytest.mark.parametrize("name", CASES)
def test_all_exchanges_give_what_one_device_gives(world: World, name):
    case = CASES[name]
    exact = whole(case)
    for exchange, size in product(EXCHANGES, (2, 4)):
        ranks = world.run(shared, Plan(context=size), case, exchange, torch.float64)
        for rank, found in enumerate(ranks):
            for ours, theirs in zip(found, exact, strict=True):
                torch.testing.assert_close(ours, as_held(theirs, 2, size)[rank], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_rounding_is_that_of_one_device(world: World, exchange, dtype):
    """No farther from float64 than twice what PyTorch's own attention in the same precision is."""
    case = Case(8, 4, 256)
    exact, usual = whole(case), whole(case, dtype)
    ranks = world.run(shared, Plan(context=4), case, exchange, dtype)
    for number, (theirs, plain) in enumerate(zip(exact, usual, strict=True)):
        limit = 2 * (plain.double() - theirs).abs().max()
        far = max(
            (found[number].double() - as_held(theirs, 2, 4)[rank]).abs().max() for rank, found in enumerate(ranks)
        )
        assert far <= limit
