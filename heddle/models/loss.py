"""The output layer and its cross-entropy as one: the logits of all tokens never exist at once.

A token's gradient with respect to its logits, softmax minus one-hot, is known as soon as its logits are. So the forward
pass takes some tokens at a time, and makes of them their loss, the gradient of their activations and their part of the
weight's gradient; what is kept for the backward pass has the sizes of the activations and of the weight. All logits,
with copies in full precision, softmax and gradient, would take up to 16 bytes each: 17 GB for 8,192 tokens of 128k
words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.spec.model import IGNORE

CHUNK = 64 << 20  # logits at a time: 256 MiB of them in full precision, and enough for products at full speed


@dataclass(frozen=True)
class Scores:
    """What becomes of the output layer's products: scaled, then capped."""

    scale: float = 1.0
    cap: float = 0.0  # c · tanh(score / c); 0: none

    def of(self, products: Tensor) -> Tensor:
        """The logits."""
        scores = products if self.scale == 1 else products * self.scale
        return torch.tanh(scores / self.cap) * self.cap if self.cap else scores

    def slope(self, scores: Tensor) -> Tensor | None:
        """How logits grow with what is capped, given the logits; None: there is no cap."""
        return 1 - (scores / self.cap).square_() if self.cap else None


PLAIN = Scores()


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


Weigh = Callable[[Tensor], tuple[Tensor, Tensor]]


def head_loss(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    scale: float,
    vocabulary: Vocabulary,
    *,
    scores: Scores = PLAIN,
    bias: Tensor | None = None,
    count: float | None = None,
    weigh: Weigh | None = None,
) -> Tensor:
    """The mean cross-entropy in nats per token of the logits x weightᵀ + bias, in full precision.

    `scale` is what the loss will be multiplied by before its backward pass: gradients are computed here, and in fp16
    those without it would vanish. Where some targets are IGNORE, `count` is what the sum over the others is divided by:
    a mean over more than these tokens can only be made by who knows of all.

    `weigh` makes something else of the losses of all tokens: given them, it says what the loss is, and how it grows
    with each. Logits are then computed twice, for a token's part of the gradient depends on those of others.
    """
    return _HeadLoss.apply(x, weight, bias, targets, scale, vocabulary, scores, torch.is_grad_enabled(), count, weigh)


def token_losses(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    vocabulary: Vocabulary,
    scores: Scores = PLAIN,
    bias: Tensor | None = None,
) -> Tensor:
    """The cross-entropy of each token, given those of all ranks; 0 where the target is IGNORE. Without gradients."""
    start, words = vocabulary.held(len(weight))
    step, found = max(1, CHUNK // len(weight)), []
    for begin in range(0, len(x), step):
        tokens, wanted = x[begin : begin + step], targets[begin : begin + step]
        products = torch.mm(tokens, weight.t()) if bias is None else torch.addmm(bias, tokens, weight.t())
        known = wanted != IGNORE
        losses, _ = vocabulary.losses(scores.of(products[:, :words].float()), wanted.where(known, 0) - start)
        found.append(losses.view(-1).where(known, 0.0))
    return torch.cat(found)


def weight_product(gradient: Tensor, x: Tensor, rounded: bool) -> Tensor:
    """gradientᵀ x: a weight's gradient, or what some tokens add to it, which is rounded when all have been added up."""
    if rounded or x.dtype == torch.float32:
        return torch.mm(gradient.t(), x)
    if x.is_cuda:
        return torch.mm(gradient.t(), x, out_dtype=torch.float32)
    return torch.mm(gradient.t().float(), x.float())  # most CPUs compute low precision in full anyway


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        scale: float,
        vocabulary: Vocabulary,
        scores: Scores,
        backward: bool,
        count: float | None,
        weigh: Weigh | None,
    ) -> Tensor:
        full = vocabulary.inputs(x)
        loss: Tensor | None = None
        factors: Tensor | None = None
        if weigh is not None:
            loss, factors = weigh(token_losses(full, weight, targets, vocabulary, scores, bias))
            if not backward:
                return loss
        divisor = len(full) if count is None else count
        start, words = vocabulary.held(len(weight))
        step = max(1, CHUNK // len(weight))
        total = full.new_zeros((), dtype=torch.float32)
        grad_full, grad_weight, grad_bias = (torch.empty_like(full) if backward else None), None, None
        for begin in range(0, len(full), step):
            tokens = full[begin : begin + step]
            products = torch.mm(tokens, weight.t()) if bias is None else torch.addmm(bias, tokens, weight.t())
            logits = scores.of(products[:, :words].float())
            slope = scores.slope(logits)  # before the memory of the logits is used up
            wanted = targets[begin : begin + step]
            known = None if count is None else wanted != IGNORE
            wanted = wanted if known is None else wanted.where(known, 0)
            losses, gaps = vocabulary.losses(logits, wanted - start)
            del logits  # the largest tensor of all: its memory is needed for the gradients
            if known is not None:
                losses = losses.view(-1).where(known, 0.0)
                gaps.mul_(known[:, None])
            total += losses.sum()
            if grad_full is None:
                continue
            if factors is None:
                gaps.mul_(scale * scores.scale / divisor)
            else:
                gaps.mul_(factors[begin : begin + step, None].to(gaps.dtype) * (scale * scores.scale))
            gradient = (gaps if slope is None else gaps.mul_(slope)).to(products.dtype)
            if words < len(weight):
                gradient = F.pad(gradient, (0, len(weight) - words))
            torch.mm(gradient, weight, out=grad_full[begin : begin + step])
            if not ctx.needs_input_grad[1]:  # a frozen output layer
                continue
            if grad_weight is None:
                grad_weight = weight_product(gradient, tokens, rounded=step >= len(full))
            elif grad_weight.dtype == tokens.dtype:
                grad_weight.addmm_(gradient.t(), tokens)
            else:
                grad_weight += weight_product(gradient, tokens, rounded=False)
            if bias is not None:
                grad_bias = gradient.sum(0) if grad_bias is None else grad_bias.add_(gradient.sum(0))
        if grad_full is not None:
            if grad_weight is not None:
                grad_weight = grad_weight.to(weight.dtype)  # rounded once, where all chunks are summed
            ctx.save_for_backward(vocabulary.input_gradients(grad_full), grad_weight, grad_bias)
            ctx.scale = scale
        return total / divisor if loss is None else loss

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        factor = gradient / ctx.scale  # one, where the loss was multiplied by what was said
        grads = [grad if grad is None else grad.mul_(factor) for grad in ctx.saved_tensors]
        return *grads, None, None, None, None, None, None, None
