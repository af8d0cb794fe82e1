"""The split vocabulary against plain torch: values and gradients, whatever the padding."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import heddle.models.loss
from heddle.models.loss import head_loss
from heddle.parallel.collectives import slice_of
from heddle.parallel.mesh import Mesh
from heddle.parallel.tensor.vocabulary import SplitVocabulary, VocabularyParallelEmbedding
from heddle.spec import Plan
from heddle.spec.model import IGNORE

pytestmark = pytest.mark.dist

TOKENS, HIDDEN = 10, 6


def run_embedding(mesh: Mesh, vocab: int) -> None:
    axis = mesh.tensor
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(vocab, HIDDEN, generator=generator, requires_grad=True)
    ids = torch.cat([torch.tensor([0, vocab - 1]), torch.randint(0, vocab, (TOKENS - 2,), generator=generator)])
    gradient = torch.randn(TOKENS, HIDDEN, generator=generator)
    expected = F.embedding(ids, weight)
    expected.backward(gradient)
    layer = VocabularyParallelEmbedding(nn.Embedding(vocab, HIDDEN), axis)
    rows = -(-vocab // axis.size)
    assert layer.weight.shape == (rows, HIDDEN)
    padded = F.pad(weight.detach(), (0, 0, 0, rows * axis.size - vocab), value=torch.nan)  # must never be looked up
    layer.weight.data = padded[axis.rank * rows : (axis.rank + 1) * rows].clone()
    y = layer(ids)
    y.backward(gradient)
    assert torch.equal(y, expected)
    whole = F.pad(weight.grad, (0, 0, 0, rows * axis.size - vocab))
    torch.testing.assert_close(layer.weight.grad, whole[axis.rank * rows : (axis.rank + 1) * rows])


@pytest.mark.parametrize("vocab", [5, 16, 17, 61])
def test_embedding(world, vocab):
    world.run(run_embedding, Plan(tensor=4), vocab)


def run_loss(mesh: Mesh, vocab: int, size: float, dtype: torch.dtype, sequence: bool = False, ignored: int = 0) -> None:
    axis = mesh.tensor
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TOKENS, HIDDEN, generator=generator).to(dtype).requires_grad_()
    weight = (size * torch.randn(vocab, HIDDEN, generator=generator)).to(dtype).requires_grad_()
    targets = torch.cat([torch.tensor([0, vocab - 1]), torch.randint(0, vocab, (TOKENS - 2,), generator=generator)])
    targets[:ignored] = IGNORE
    expected = F.cross_entropy((x @ weight.t()).float(), targets)
    (3 * expected).backward()
    rows = -(-vocab // axis.size)
    padding = rows * axis.size - vocab
    # were the padding's logits in the softmax, nothing else would count
    padded = F.pad(weight.detach(), (0, 0, 0, padding), value=100 * size)
    local = padded[axis.rank * rows : (axis.rank + 1) * rows].clone().requires_grad_()
    slice_ = (slice_of(x, axis) if sequence else x).detach().clone().requires_grad_()
    count = float(TOKENS - ignored) if ignored else None
    with patch.object(heddle.models.loss, "CHUNK", 4 * rows):  # tokens four at a time, the last two alone
        loss = head_loss(slice_, local, targets, 3.0, SplitVocabulary(axis, vocab, sequence), count=count)
    (3 * loss).backward()
    torch.testing.assert_close(loss, expected)
    whole = F.pad(weight.grad, (0, 0, 0, padding))
    close = {"rtol": 1e-5, "atol": 1e-5 * size} if dtype == torch.float32 else {"rtol": 2**-6, "atol": 2**-7}
    torch.testing.assert_close(local.grad, whole[axis.rank * rows : (axis.rank + 1) * rows], **close)
    torch.testing.assert_close(slice_.grad, slice_of(x.grad, axis) if sequence else x.grad, **close)
    assert local.grad.dtype == slice_.grad.dtype == dtype


@pytest.mark.parametrize("vocab", [5, 16, 17, 61, 127])  # of 5 the last of four ranks has nothing at all
def test_cross_entropy(world, vocab):
    world.run(run_loss, Plan(tensor=4), vocab, 1.0, torch.float32)


@pytest.mark.parametrize(("size", "dtype"), [(1e4, torch.float32), (4.0, torch.bfloat16)], ids=["huge", "bf16"])
def test_cross_entropy_of_other_numbers(world, size, dtype):
    world.run(run_loss, Plan(tensor=2), 61, size, dtype)


def test_cross_entropy_of_slices_of_the_tokens(world):
    world.run(run_loss, Plan(tensor=2), 61, 1.0, torch.float32, True)


@pytest.mark.parametrize("vocab", [5, 61])
@pytest.mark.parametrize("sequence", [False, True])
def test_cross_entropy_of_some_of_the_tokens(world, vocab, sequence):
    world.run(run_loss, Plan(tensor=2), vocab, 1.0, torch.float32, sequence, 3)
