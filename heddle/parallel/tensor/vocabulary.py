"""The vocabulary split over tensor-parallel ranks: embedding and cross-entropy; nobody ever holds full logits.

A vocabulary that the ranks do not divide is padded at its end. The padding is no token: it is never looked up, and
it takes no part in the softmax.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.models.loss import Vocabulary
from heddle.parallel.collectives import all_reduce, gather, sum_partial
from heddle.parallel.mesh import Axis
from heddle.parallel.parameter_layout import split_parameter
from heddle.parallel.tensor.linear import start_sum


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


class SplitVocabulary(Vocabulary):
    """This rank's share of the words: what the loss needs to know of the others' it gets by sums over the axis."""

    def __init__(self, axis: Axis, vocab: int, sequence: bool) -> None:
        self.axis, self.vocab, self.sequence = axis, vocab, sequence

    def held(self, rows: int) -> tuple[int, int]:
        """This rank's words, without those that only pad."""
        start = self.axis.rank * rows
        return start, min(rows, max(0, self.vocab - start))

    def inputs(self, x: Tensor) -> Tensor:
        """All tokens, from everybody's slice of them where there is sequence parallelism."""
        return gather(x, self.axis) if self.sequence else x

    def losses(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """As of a whole vocabulary, by the largest score and two sums over the axis."""
        tokens, words = scores.shape
        highest = scores.amax(1) if words else scores.new_full((tokens,), -torch.inf)
        all_reduce(highest, self.axis, dist.ReduceOp.MAX)
        elsewhere = (targets < 0) | (targets >= words)
        local = targets.masked_fill(elsewhere, 0)[:, None]
        own = scores.gather(1, local)[:, 0] - highest if words else torch.zeros_like(highest)
        scores.sub_(highest[:, None]).exp_()
        # both sums in one message
        sums = all_reduce(torch.stack([scores.sum(1), own.masked_fill(elsewhere, 0.0)]), self.axis)
        scores.div_(sums[0][:, None])
        if words:
            scores.scatter_add_(1, local, elsewhere[:, None].to(scores.dtype) - 1)
        return sums[0].log() - sums[1], scores

    def input_gradients(self, x: Tensor) -> Tensor:
        """Summed over the axis: every rank's words have added to them."""
        return start_sum(x, self.axis, self.sequence).wait()
