"""A mixture of experts in place of an MLP: a router sends every token to a few of them, and none is ever dropped.

Experts are stacked: one tensor holds the same matrix of all of them, by their numbers in the whole model. Tokens are
sorted by expert, so that each expert's are one block of rows, and their results are added in the order in which the
router chose, whoever computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.models.activations import gated
from heddle.models.grouped import grouped
from heddle.spec.model import LayerSpec


class RoutedBatch(Protocol):
    """What a router asks of a microbatch."""

    @property
    def sequence(self) -> int: ...
    @property
    def scale(self) -> float: ...


Beside = Callable[[], Tensor | None]


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
        self.apart = False  # shared experts see all tokens where the others see those of this rank

    def forward(self, x: Tensor, batch: RoutedBatch) -> Tensor:
        mine = self.enter(x)
        weights, chosen = self.router(mine, batch)
        out, extra = self.experts(mine, weights, chosen, partial(self.from_shared, x if self.apart else mine))
        if extra is None:
            return self.leave(out)
        return self.leave(out) + extra if self.apart else self.leave(out + extra)

    def from_shared(self, x: Tensor) -> Tensor | None:
        """What shared experts add."""
        if self.shared is None:
            return None
        found: Tensor = self.shared(x)
        return found if self.shared_gate is None else torch.sigmoid(self.shared_gate(x)) * found


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
        self.bias = nn.Parameter(torch.empty(spec.experts)) if spec.router_bias == "score" else None
        self.choice_bias = nn.Parameter(torch.empty(spec.experts)) if spec.router_bias == "choice" else None
        self.top_k, self.kind, self.normalized = spec.top_k, spec.router, spec.router_normalized
        self.scale, self.groups, self.top_groups = spec.router_scale, spec.router_groups, spec.router_top_groups
        self.balances = spec.balance_rate > 0
        self.balance_loss, self.z_loss = spec.balance_loss, spec.z_loss
        self.uses: Callable[[Tensor], Tensor] = whole  # of experts in whole samples, from those by the tokens held here
        self.share = 1.0  # of the losses, where several ranks compute them for the same tokens
        self.slices = (0, 1)  # which of how many equal slices of a microbatch's tokens are held here

    def forward(self, x: Tensor, batch: RoutedBatch) -> tuple[Tensor, Tensor]:
        """Weights and numbers of the chosen experts, [tokens, top_k] each."""
        wide = torch.promote_types(x.dtype, torch.float32)
        scores = self.scores(x.to(wide))
        probabilities = self.probabilities(scores)
        if self.choice_bias is None and not self.groups:
            weights, chosen = probabilities.topk(self.top_k, dim=-1)
        else:
            chosen = self.ranked(probabilities.detach()).topk(self.top_k, dim=-1).indices
            weights = probabilities.gather(1, chosen)
        if self.normalized:
            weights = weights / weights.sum(-1, keepdim=True)
        if self.scale != 1:
            weights = weights * self.scale
        if self.choice_bias is not None and torch.is_grad_enabled():
            weights = _WithUse.apply(weights, self.choice_bias, self.overuse(chosen))
        if (self.balance_loss or self.z_loss) and torch.is_grad_enabled():
            loss = self.losses(scores, probabilities, chosen, batch.sequence)
            weights = _WithLoss.apply(weights, loss, batch.scale * self.share)
        return weights.to(x.dtype), chosen

    def scores(self, x: Tensor) -> Tensor:
        """Of all experts, in the precision of the tokens."""
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))

    def probabilities(self, scores: Tensor) -> Tensor:
        """What they come to."""
        return scores.softmax(-1) if self.kind == "softmax" else scores.sigmoid()

    def ranked(self, probabilities: Tensor) -> Tensor:
        """What experts are chosen by: with their biases, and nothing of groups that a token does not use."""
        ranked = self.biased(probabilities)
        if not self.groups:
            return ranked
        of_group = self.of_groups(ranked)
        used = torch.zeros_like(of_group, dtype=torch.bool)
        used.scatter_(1, of_group.topk(self.top_groups, dim=-1).indices, True)
        return ranked.unflatten(1, (self.groups, -1)).masked_fill(~used[..., None], -torch.inf).flatten(1)

    def biased(self, probabilities: Tensor) -> Tensor:
        """With what decides the choice beside them."""
        if self.choice_bias is None:
            return probabilities
        return probabilities + self.choice_bias.detach().to(probabilities.dtype)

    def of_groups(self, ranked: Tensor) -> Tensor:
        """What groups are chosen by: their best expert (DeepSeek-V2), or their two best (DeepSeek-V3)."""
        grouped = ranked.unflatten(1, (self.groups, -1))
        return grouped.amax(-1) if self.kind == "softmax" else grouped.topk(2, dim=-1).values.sum(-1)

    def overuse(self, chosen: Tensor) -> Tensor:
        """By how much more than the mean each expert was chosen; nothing where biases stay as they are.

        Times the number of experts: whole numbers add up to the same however they are split.
        """
        experts = self.weight.shape[0]
        counts = torch.zeros(experts, dtype=torch.float32, device=chosen.device)
        if self.balances:
            flat = chosen.flatten()
            counts = experts * counts.scatter_add_(0, flat, _ones(flat, counts)) - flat.numel()
        return counts

    def losses(self, scores: Tensor, probabilities: Tensor, chosen: Tensor, sequence: int) -> Tensor:
        """What uneven use and large scores cost, as means over tokens.

        The balance loss of a sample is E · Σ fₑ · pₑ: the share of its choices that fell on each expert, and its mean
        probability (arXiv 2101.03961 §2.2, sample by sample as in arXiv 2412.19437 §2.1.2). It is 1 where all are even.
        """
        loss = scores.new_zeros(())
        (number, slices), rows = self.slices, len(scores)
        if self.balance_loss:
            experts = scores.shape[-1]
            # which sample each token is of: those of a slice need not be of whole ones
            sample = (torch.arange(rows, device=scores.device) + number * rows) // sequence
            shape = rows * slices // sequence, experts
            places = (sample[:, None] * experts + chosen).flatten()
            used = scores.new_zeros(shape).view(-1).scatter_add_(0, places, _ones(places, scores)).view(shape)
            used = self.uses(used)
            share = used / used.sum(-1, keepdim=True)
            if self.kind == "sigmoid":
                probabilities = probabilities / probabilities.sum(-1, keepdim=True)
            mean = scores.new_zeros(shape).index_add(0, sample, probabilities) / sequence
            loss = loss + self.balance_loss * experts * (share * mean).sum(-1).mean()
        if self.z_loss:
            loss = loss + self.z_loss * scores.logsumexp(-1).square().mean() / slices
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


class _WithUse(torch.autograd.Function):
    """A tensor beside which the use of experts goes back, as the gradient of the biases that they are chosen by.

    So it is summed over microbatches and ranks as all gradients are, and whoever updates weights knows it of the whole
    batch.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, overuse: Tensor) -> Tensor:
        short = bias.element_size() < 4  # fp16 holds no more than 65504
        ctx.overuse = (overuse / len(bias) if short else overuse).to(bias.dtype)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradients[0], ctx.overuse, None


class Experts(nn.Module):
    """Gated MLPs side by side, each for its own tokens."""

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.number = spec.experts  # of all, whoever holds them
        self.note: Callable[[Tensor], object] | None = None  # told how many tokens each has, in training
        self.gate = nn.Parameter(torch.empty(spec.experts, spec.expert_ffn, spec.hidden))
        self.up = nn.Parameter(torch.empty(spec.experts, spec.expert_ffn, spec.hidden))
        self.down = nn.Parameter(torch.empty(spec.experts, spec.hidden, spec.expert_ffn))
        sizes = (spec.expert_ffn, spec.expert_ffn, spec.hidden)
        made = (nn.Parameter(torch.empty(spec.experts, size)) if "mlp" in spec.biased else None for size in sizes)
        self.gate_bias, self.up_bias, self.down_bias = made
        self.bias_share = 1.0  # of the last one, where several ranks add theirs
        self.gated = gated(spec)

    def forward(self, x: Tensor, weights: Tensor, chosen: Tensor, beside: Beside) -> tuple[Tensor, Tensor | None]:
        """The sum over its chosen experts of what each makes of a token, [tokens, hidden]; and what `beside` gives.

        Where experts are elsewhere, that is computed while tokens travel.
        """
        top_k = chosen.shape[1]
        numbers = chosen.flatten()
        order = numbers.argsort(stable=True)
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        counts = torch.zeros(self.number, dtype=torch.int64, device=x.device)
        counts = counts.scatter_add_(0, numbers, torch.ones_like(numbers))
        if self.note is not None and torch.is_grad_enabled():
            self.note(counts)
        made, extra = self.dispatch(x.index_select(0, order // top_k), counts, beside)
        back = made.index_select(0, place).view(-1, top_k, x.shape[1])
        return torch.bmm(weights[:, None], back).squeeze(1), extra

    def dispatch(self, rows: Tensor, counts: Tensor, beside: Beside) -> tuple[Tensor, Tensor | None]:
        """What experts make of rows, wherever they are: here."""
        return self.compute(rows, counts), beside()

    def compute(self, rows: Tensor, counts: Tensor) -> Tensor:
        """What experts make of rows that are sorted by expert; `counts`: how many each has."""
        ends = counts.cumsum(0).to(torch.int32)
        gate, up = self.multiply(rows, self.gate, ends), self.multiply(rows, self.up, ends)
        if self.gate_bias is None or self.up_bias is None or self.down_bias is None:
            return self.multiply(self.gated(gate, up), self.down, ends)
        # whose expert each row is
        owner = torch.arange(len(counts), device=rows.device).repeat_interleave(counts, output_size=len(rows))
        gate, up = gate + self.gate_bias.index_select(0, owner), up + self.up_bias.index_select(0, owner)
        down_bias = self.down_bias * self.bias_share
        return self.multiply(self.gated(gate, up), self.down, ends) + down_bias.index_select(0, owner)

    def multiply(self, rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
        """Each expert's rows times its own matrix; apart, because what it makes may be kept alone."""
        return grouped(rows, weights, ends)
