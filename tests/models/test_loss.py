"""The output layer and its loss as one, against the two apart: the same numbers in far less memory."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import heddle.models.loss
from heddle.models.loss import Vocabulary, head_loss
from heddle.spec.model import IGNORE
from heddle.training.dry_run.observe import Living


def inputs(tokens: int, hidden: int, vocab: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tokens, hidden, generator=generator).to(dtype).requires_grad_()
    weight = (0.1 * torch.randn(vocab, hidden, generator=generator)).to(dtype).requires_grad_()
    return x, weight, torch.randint(0, vocab, (tokens,), generator=generator)


def apart(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy((x @ weight.t()).float(), targets)


@pytest.mark.parametrize("tokens_at_once", [1, 7, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_loss_and_gradients_are_those_of_the_two_apart(dtype, tokens_at_once):
    """fp16 with a loss scale: its gradients would vanish if they were computed without."""
    ours, theirs = inputs(50, 16, 300, dtype), inputs(50, 16, 300, dtype)
    with patch.object(heddle.models.loss, "CHUNK", 300 * tokens_at_once):
        loss = head_loss(*ours, 1024.0, Vocabulary())
    expected = apart(*theirs)
    (1024.0 * loss).backward()
    (1024.0 * expected).backward()
    torch.testing.assert_close(loss, expected)
    precision = torch.finfo(dtype).eps
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        assert one.grad.dtype == dtype
        torch.testing.assert_close(
            one.grad, other.grad, rtol=4 * precision, atol=4 * precision * other.grad.abs().max()
        )


def test_low_precision_is_rounded_once_however_many_chunks_there_are():
    """A sum that is rounded after every chunk loses what is small beside it."""
    x, weight, targets = inputs(512, 16, 300, torch.bfloat16)
    full = [part.detach().double().requires_grad_() for part in (x, weight)]
    F.cross_entropy(full[0] @ full[1].t(), targets).backward()
    errors = []
    for tokens_at_once in (1, 512):
        weight.grad = None
        with patch.object(heddle.models.loss, "CHUNK", 300 * tokens_at_once):
            head_loss(x, weight, targets, 1.0, Vocabulary()).backward()
        errors.append(float((weight.grad - full[1].grad).norm() / full[1].grad.norm()))
    assert errors[0] < 1.1 * errors[1] < 0.01


def test_another_factor_than_the_one_told_is_right_as_well():
    ours, theirs = inputs(5, 4, 7), inputs(5, 4, 7)
    (6.0 * head_loss(*ours, 2.0, Vocabulary())).backward()
    (6.0 * apart(*theirs)).backward()
    torch.testing.assert_close(ours[1].grad, theirs[1].grad)


def test_without_a_backward_pass_there_are_no_gradients():
    x, weight, targets = inputs(50, 16, 300)
    with torch.no_grad(), Living() as living:
        loss = head_loss(x, weight, targets, 1.0, Vocabulary())
    torch.testing.assert_close(loss, apart(x, weight, targets).detach())
    seen = sum(tensor.nbytes for tensor in (x, weight, targets))
    assert living.now <= seen + loss.nbytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_logits_of_all_tokens_never_live_at_once(dtype):
    """Not even one byte of each, beside the gradients of activations and weight, which every way has to make."""
    tokens, hidden, vocab = 2048, 16, 4096
    x, weight, targets = inputs(tokens, hidden, vocab, dtype)
    with patch.object(heddle.models.loss, "CHUNK", 64 * vocab), Living() as living:
        head_loss(x, weight, targets, 1.0, Vocabulary()).backward()
    gradients = (tokens + vocab) * hidden * dtype.itemsize
    assert living.most - gradients < tokens * vocab
    with Living() as plain:
        apart(x, weight, targets).backward()
    assert plain.most > 12 * tokens * vocab


@pytest.mark.parametrize("tokens_at_once", [1, 7, 1000])
def test_ignored_targets_count_neither_in_the_sum_nor_in_the_gradient(tokens_at_once):
    """Against PyTorch's own ignore_index, whose mean is over the targets that are left."""
    ours, theirs = inputs(50, 16, 300), inputs(50, 16, 300)
    for x in (ours, theirs):
        x[2][[0, 3, 4, 5, 49]] = IGNORE
    with patch.object(heddle.models.loss, "CHUNK", 300 * tokens_at_once):
        loss = head_loss(*ours, 1.0, Vocabulary(), count=45)
    loss.backward()
    expected = apart(*theirs)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert (ours[0].grad[[0, 3, 49]] == 0).all()


def test_a_microbatch_without_a_target_adds_nothing():
    x, weight, targets = inputs(5, 4, 7)
    loss = head_loss(x, weight, torch.full_like(targets, IGNORE), 1.0, Vocabulary(), count=12.0)
    loss.backward()
    assert loss == 0
    assert (weight.grad == 0).all()


def test_a_frozen_output_layer_has_no_gradient_made():
    x, weight, targets = inputs(2048, 16, 4096)
    weight.requires_grad_(False)
    with patch.object(heddle.models.loss, "CHUNK", 64 * 4096), Living() as living:
        head_loss(x, weight, targets, 1.0, Vocabulary()).backward()
    trained, weight_again, _ = inputs(2048, 16, 4096)
    apart(trained, weight_again, targets).backward()
    torch.testing.assert_close(x.grad, trained.grad)
    with patch.object(heddle.models.loss, "CHUNK", 64 * 4096), Living() as other:
        head_loss(trained, weight_again, targets, 1.0, Vocabulary()).backward()
    assert other.most - living.most > 0.9 * weight.nbytes
