"""The vocabulary split over tensor-parallel ranks: embedding and cross-entropy; nobody ever holds full logits.

A vocabulary that the ranks do not divide is padded at its end. The padding is no token: it is never looked up, and
it takes no part in the softmax.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.parallel.collectives import all_reduce, sum_partial
from heddle.parallel.mesh import Axis
from heddle.parallel.place import split_parameter


class VocabularyParallelEmbedding(nn.Module):
    """Each rank looks up the ids of its own rows; the others contribute zero."""

    def __init__(self, embedding: nn.Embedding, axis: Axis) -> None:
        super().__init__()
        self.axis = axis
        self.weight = split_parameter(embedding.weight, 0, axis.rank, axis.size)

    def forward(self, ids: Tensor) -> Tensor:
        rows = len(self.weight)
        local = ids - self.axis.rank * rows
        elsewhere = (local < 0) | (local >= rows)
        x = F.embedding(local.masked_fill(elsewhere, 0), self.weight)
        return sum_partial(x.masked_fill(elsewhere[:, None], 0.0), self.axis)


class VocabularyParallelLoss(nn.Module):
    """Mean cross-entropy of logits whose columns are split over the axis."""

    def __init__(self, axis: Axis, vocab: int) -> None:
        super().__init__()
        self.axis, self.vocab = axis, vocab

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return _CrossEntropy.apply(logits, targets, self.axis, self.vocab)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, axis: Axis, vocab: int) -> Tensor:
        columns = logits.shape[1]
        start = axis.rank * columns
        valid = min(columns, max(0, vocab - start))
        scores = logits[:, :valid].float()
        highest = scores.amax(1) if valid else scores.new_full((len(scores),), -torch.inf)
        all_reduce(highest, axis, dist.ReduceOp.MAX)
        exps = (scores - highest[:, None]).exp_()
        local = targets - start
        elsewhere = (local < 0) | (local >= valid)
        local = local.masked_fill(elsewhere, 0)
        own = scores.gather(1, local[:, None])[:, 0] - highest if valid else torch.zeros_like(highest)
        # both sums in one message
        sums = torch.stack([exps.sum(1), own.masked_fill(elsewhere, 0.0)])
        all_reduce(sums, axis)
        ctx.save_for_backward(exps.div_(sums[0][:, None]), local, elsewhere)
        ctx.padding, ctx.dtype = columns - valid, logits.dtype
        return (sums[0].log() - sums[1]).mean()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        probabilities, local, elsewhere = ctx.saved_tensors
        grad = probabilities  # its memory is not needed again
        if grad.shape[1]:
            grad.scatter_add_(1, local[:, None], elsewhere[:, None].float() - 1)
        grad = grad.mul_(gradient / len(grad)).to(ctx.dtype)
        return F.pad(grad, (0, ctx.padding)) if ctx.padding else grad, None, None, None
