"""A mixture of experts in place of an MLP: a router sends every token to a few of them, and none is ever dropped.

Experts are stacked: one tensor holds the same matrix of all of them, by their numbers in the whole model. Tokens are
sorted by expert, so that each expert's are one block of rows, and their results are added in the order in which the
router chose, whoever computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.models.grouped import grouped
from heddle.spec.model import LayerSpec


class RoutedBatch(Protocol):
    """What a router asks of a microbatch."""

    @property
    def sequence(self) -> int: ...
    @property
    def scale(self) -> float: ...


class ExpertMLP(nn.Module):
    """A router, the experts it chooses from, and those that all tokens go to."""

    def __init__(self, spec: LayerSpec, shared: nn.Module | None) -> None:
        super().__init__()
        self.router = Router(spec)
        self.experts = Experts(spec)
        self.shared = shared
        self.shared_gate = nn.Linear(spec.hidden, 1, bias=False) if spec.shared_gate else None
        self.enter: Callable[[Tensor], Tensor] = whole  # where ranks hold a part of each expert, all tokens come to all
        self.leave: Callable[[Tensor], Tensor] = whole  # and what each has computed of them is summed

    def forward(self, x: Tensor, batch: RoutedBatch) -> Tensor:
        x = self.enter(x)
        weights, chosen = self.router(x, batch)
        out = self.experts(x, weights, chosen)
        if self.shared is not None:
            extra = self.shared(x)
            out = out + (extra if self.shared_gate is None else torch.sigmoid(self.shared_gate(x)) * extra)
        return self.leave(out)


def whole(x: Tensor) -> Tensor:
    """What one device has is all there is."""
    return x


class Router(nn.Module):
    """Which experts each token goes to, and how much each counts, in full precision.

    Losses of the router are means over tokens, as the model's loss is: whoever holds some of a batch's tokens adds
    their part. Only how often each expert is used in a sample must be known of the whole sample.
    """

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(spec.experts, spec.hidden))
        self.top_k, self.kind, self.normalized = spec.top_k, spec.router, spec.router_normalized
        self.balance_loss, self.z_loss = spec.balance_loss, spec.z_loss
        self.uses: Callable[[Tensor], Tensor] = whole  # of experts in whole samples, from those by the tokens held here
        self.share = 1.0  # of the losses, where several ranks compute them for the same tokens

    def forward(self, x: Tensor, batch: RoutedBatch) -> tuple[Tensor, Tensor]:
        """Weights and numbers of the chosen experts, [tokens, top_k] each."""
        wide = torch.promote_types(x.dtype, torch.float32)
        scores = F.linear(x.to(wide), self.weight.to(wide))
        probabilities = scores.softmax(-1) if self.kind == "softmax" else scores.sigmoid()
        weights, chosen = probabilities.topk(self.top_k, dim=-1)
        if self.normalized:
            weights = weights / weights.sum(-1, keepdim=True)
        if (self.balance_loss or self.z_loss) and torch.is_grad_enabled():
            loss = self.losses(scores, probabilities, chosen, batch.sequence)
            weights = _WithLoss.apply(weights, loss, batch.scale * self.share)
        return weights.to(x.dtype), chosen

    def losses(self, scores: Tensor, probabilities: Tensor, chosen: Tensor, sequence: int) -> Tensor:
        """What uneven use and large scores cost, as means over tokens.

        The balance loss of a sample is E · Σ fₑ · pₑ: the share of its choices that fell on each expert, and its mean
        probability (arXiv 2101.03961 §2.2, sample by sample as in arXiv 2412.19437 §2.1.2). It is 1 where all are even.
        """
        loss = scores.new_zeros(())
        if self.balance_loss:
            experts = scores.shape[-1]
            samples = chosen.view(-1, sequence * self.top_k)
            used = self.uses(scores.new_zeros(len(samples), experts).scatter_add_(1, samples, _ones(samples, scores)))
            share = used / used.sum(-1, keepdim=True)
            if self.kind == "sigmoid":
                probabilities = probabilities / probabilities.sum(-1, keepdim=True)
            mean = probabilities.view(len(samples), sequence, experts).mean(1)
            loss = loss + self.balance_loss * experts * (share * mean).sum(-1).mean()
        if self.z_loss:
            loss = loss + self.z_loss * scores.logsumexp(-1).square().mean()
        return loss


def _ones(like: Tensor, of: Tensor) -> Tensor:
    return of.new_ones(()).expand_as(like)


class _WithLoss(torch.autograd.Function):
    """A tensor that a loss hangs on: when its gradient comes back, so does the loss's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor, scale: float) -> Tensor:
        ctx.scale, ctx.like = scale, loss.new_empty(0)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradients[0], ctx.like.new_full((), ctx.scale), None


class Experts(nn.Module):
    """Gated MLPs side by side, each for its own tokens."""

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.number = spec.experts  # of all, whoever holds them
        self.note: Callable[[Tensor], object] | None = None  # told how many tokens each has, in training
        self.gate = nn.Parameter(torch.empty(spec.experts, spec.expert_ffn, spec.hidden))
        self.up = nn.Parameter(torch.empty(spec.experts, spec.expert_ffn, spec.hidden))
        self.down = nn.Parameter(torch.empty(spec.experts, spec.hidden, spec.expert_ffn))

    def forward(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """The sum over its chosen experts of what each makes of a token, [tokens, hidden]."""
        top_k = chosen.shape[1]
        numbers = chosen.flatten()
        order = numbers.argsort(stable=True)
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        counts = torch.zeros(self.number, dtype=torch.int64, device=x.device)
        counts = counts.scatter_add_(0, numbers, torch.ones_like(numbers))
        if self.note is not None and torch.is_grad_enabled():
            self.note(counts)
        made = self.compute(x.index_select(0, order // top_k), counts)
        back = made.index_select(0, place).view(-1, top_k, x.shape[1])
        return torch.bmm(weights[:, None], back)[:, 0]

    def compute(self, rows: Tensor, counts: Tensor) -> Tensor:
        """What experts make of rows that are sorted by expert; `counts`: how many each has."""
        ends = counts.cumsum(0).to(torch.int32)
        gate, up = grouped(rows, self.gate, ends), grouped(rows, self.up, ends)
        return grouped(F.silu(gate) * up, self.down, ends)
