"""The output layer and its cross-entropy as one: the logits of all tokens never exist at once.

A token's gradient with respect to its logits, softmax minus one-hot, is known as soon as its logits are. So the forward
pass takes some tokens at a time, and makes of them their loss, the gradient of their activations and their part of the
weight's gradient; what is kept for the backward pass has the sizes of the activations and of the weight. All logits,
with copies in full precision, softmax and gradient, would take up to 16 bytes each: 17 GB for 8,192 tokens of 128k
words.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 64 << 20  # logits at a time: 256 MiB of them in full precision, and enough for products at full speed


class Vocabulary:
    """The words whose logits are computed here: all of them. Who holds but a part has others to ask for the rest."""

    def held(self, rows: int) -> tuple[int, int]:
        """The first word of an output layer of so many rows, and how many of them are words."""
        return 0, rows

    def inputs(self, x: Tensor) -> Tensor:
        """The activations of all tokens."""
        return x

    def losses(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each token, given its logits in full precision; and softmax minus one-hot.

        Targets are counted from the first word that is held. The memory of the scores is used up.
        """
        logs, targets = torch.log_softmax(scores, dim=1), targets[:, None]
        losses = -logs.gather(1, targets)
        return losses, logs.exp_().scatter_add_(1, targets, torch.full_like(losses, -1.0))

    def input_gradients(self, x: Tensor) -> Tensor:
        """The gradient of what `inputs` was given, from everybody's part of that of what it gave."""
        return x


def head_loss(x: Tensor, weight: Tensor, targets: Tensor, scale: float, vocabulary: Vocabulary) -> Tensor:
    """The mean cross-entropy in nats per token of the logits x weightᵀ, in full precision.

    `scale` is what the loss will be multiplied by before its backward pass: gradients are computed here, and in fp16
    those without it would vanish.
    """
    return _HeadLoss.apply(x, weight, targets, scale, vocabulary, torch.is_grad_enabled())


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, scale: float, vocabulary: Vocabulary, backward: bool
    ) -> Tensor:
        full = vocabulary.inputs(x)
        start, words = vocabulary.held(len(weight))
        step = max(1, CHUNK // len(weight))
        total = full.new_zeros((), dtype=torch.float32)
        grad_full, grad_weight = (torch.empty_like(full) if backward else None), None
        for begin in range(0, len(full), step):
            tokens = full[begin : begin + step]
            logits = torch.mm(tokens, weight.t())
            losses, scores = vocabulary.losses(logits[:, :words].float(), targets[begin : begin + step] - start)
            total += losses.sum()
            if grad_full is None:
                continue
            gradient = scores.mul_(scale / len(full)).to(logits.dtype)
            if words < len(weight):
                gradient = F.pad(gradient, (0, len(weight) - words))
            torch.mm(gradient, weight, out=grad_full[begin : begin + step])
            if grad_weight is None:
                grad_weight = torch.mm(gradient.t(), tokens)
            else:
                grad_weight.addmm_(gradient.t(), tokens)
        if grad_full is not None:
            ctx.save_for_backward(vocabulary.input_gradients(grad_full), grad_weight)
            ctx.scale = scale
        return total / len(full)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        factor = gradient / ctx.scale  # one, where the loss was multiplied by what was said
        grad_x, grad_weight = ctx.saved_tensors
        return grad_x.mul_(factor), grad_weight.mul_(factor), None, None, None, None
