"""Direct preference optimization (arXiv 2305.18290): of two answers to a prompt, one is preferred.

The loss of a pair is -log σ(β · ((log π(c) - log ρ(c)) - (log π(r) - log ρ(r)))) (its Eq. 7): how much more likely the
model π makes the chosen answer c than the reference ρ does, against the same of the rejected one r. Log-probabilities
are sums over an answer's tokens; the loss is a mean over pairs, as many as the whole batch has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.models.loss import Weigh


def alone(x: Tensor) -> Tensor:
    """What one device has is all there is."""
    return x


@dataclass(frozen=True)
class PreferencePairs:
    """The documents of a microbatch: each pair's chosen one, then its rejected one."""

    document: Tensor  # the number of each token's document, [tokens held here]; padding has that of none
    count: int  # documents
    beta: float
    reference: Tensor | None = None  # log-probability of each document; None: this is the reference, which is asked
    summed: Callable[[Tensor], Tensor] = alone  # over the ranks that hold the rest of each document
    ranks: int = 1  # as many
    note: Callable[[Tensor], None] | None = None  # told the rewards of both answers and how many pairs are right

    def log_probabilities(self, losses: Tensor) -> Tensor:
        """Of each document, given the loss of each token: sums in double precision, in the same order on every rank."""
        own = torch.arange(self.count, device=losses.device)[:, None] == self.document
        return self.summed(-(own.double() @ losses.double()))

    def weigh(self, count: float | None) -> Weigh:
        """The loss of the pairs, and how it grows with the loss of each token.

        `count`: what a sum over pairs is divided by on each of the ranks that share samples, for a mean over these.
        """

        def loss_of(losses: Tensor) -> tuple[Tensor, Tensor]:
            assert self.reference is not None
            assert count is not None
            gains = (self.log_probabilities(losses) - self.reference).view(-1, 2)
            margins = self.beta * (gains[:, 0] - gains[:, 1])
            if self.note is not None:
                right = (margins > 0).sum(dtype=margins.dtype)
                rewards = self.beta * gains.sum(0)
                self.note(torch.stack([*rewards, right]) / (count * self.ranks))
            slope = self.beta * torch.sigmoid(-margins) / count
            each = torch.stack([slope, -slope], dim=1).flatten()
            factors = torch.cat([each, each.new_zeros(1)])[self.document]
            return (-F.logsigmoid(margins).sum() / (count * self.ranks)).float(), factors.float()

        return loss_of


def document_numbers(lengths: Sequence[Sequence[int]], sequence: int) -> tuple[Tensor, int]:
    """The number of each token's document, [samples, sequence], and how many documents there are: padding's number."""
    count = sum(map(len, lengths))
    numbers = np.full((len(lengths), sequence), count, np.int64)
    first = 0
    for row, own in zip(numbers, lengths, strict=True):
        row[: sum(own)] = np.repeat(np.arange(first, first + len(own)), own)
        first += len(own)
    return torch.from_numpy(numbers), count
