"""The split vocabulary against plain torch: values and gradients, whatever the padding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heddle.parallel.mesh import Mesh
from heddle.parallel.vocabulary import VocabularyParallelEmbedding, VocabularyParallelLoss
from heddle.spec import Plan

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


def run_loss(mesh: Mesh, vocab: int, size: float, dtype: torch.dtype) -> None:
    axis = mesh.tensor
    generator = torch.Generator().manual_seed(0)
    logits = (size * torch.randn(TOKENS, vocab, generator=generator)).to(dtype).requires_grad_()
    targets = torch.cat([torch.tensor([0, vocab - 1]), torch.randint(0, vocab, (TOKENS - 2,), generator=generator)])
    expected = F.cross_entropy(logits.float(), targets)
    (3 * expected).backward()
    columns = -(-vocab // axis.size)
    padding = columns * axis.size - vocab
    # the padding's logits are the largest of all: were they in the softmax, nothing else would count
    padded = F.pad(logits.detach(), (0, padding), value=100 * size)
    local = padded[:, axis.rank * columns : (axis.rank + 1) * columns].clone().requires_grad_()
    loss = VocabularyParallelLoss(axis, vocab)(local, targets)
    (3 * loss).backward()
    torch.testing.assert_close(loss, expected)
    whole = F.pad(logits.grad, (0, padding))
    torch.testing.assert_close(local.grad, whole[:, axis.rank * columns : (axis.rank + 1) * columns])
    assert local.grad.dtype == dtype


@pytest.mark.parametrize("vocab", [5, 16, 17, 61, 127])  # of 5 the last of four ranks has nothing at all
def test_cross_entropy(world, vocab):
    world.run(run_loss, Plan(tensor=4), vocab, 1.0, torch.float32)


@pytest.mark.parametrize(("size", "dtype"), [(1e4, torch.float32), (4.0, torch.bfloat16)], ids=["huge", "bf16"])
def test_cross_entropy_of_other_numbers(world, size, dtype):
    world.run(run_loss, Plan(tensor=2), 61, size, dtype)
