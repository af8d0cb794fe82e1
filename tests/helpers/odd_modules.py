"""Modules of the kinds that research brings: recurrent, hybrid, weights used twice, experts, two losses, two towers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers.own_modules import TOKENS, VOCAB

SIZE = 32


def loss(module: nn.Module, batch) -> tuple[Tensor, Tensor]:
    logits, targets = module(batch.ids).flatten(0, 1), batch.targets.flatten()
    return F.cross_entropy(logits, targets, reduction="sum", ignore_index=-100), targets.ne(-100).sum()


class Decoder(nn.Module):
    """Words, blocks, words."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCAB, SIZE)
        self.blocks = nn.ModuleList(blocks)
        self.end = nn.LayerNorm(SIZE)
        self.head = nn.Linear(SIZE, VOCAB, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.end(x))


class TimeMix(nn.Module):
    """RWKV's idea: each channel is a decaying mean of values, weighed by exp(key), and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.shift = nn.Parameter(torch.rand(3, SIZE))
        self.decay = nn.Parameter(torch.linspace(-3.0, 1.0, SIZE))  # of each channel that is held here
        self.r, self.k, self.v, self.o = (nn.Linear(SIZE, SIZE, bias=False) for _ in range(4))
        self.wide, self.narrow = nn.Linear(SIZE, 80, bias=False), nn.Linear(80, SIZE, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        before = F.pad(y, (0, 0, 1, -1))
        r, k, v = (made(y + (before - y) * mix) for made, mix in zip((self.r, self.k, self.v), self.shift, strict=True))
        keep, top, bottom = torch.exp(-torch.exp(self.decay)), 0.0, 1e-6
        means = []
        for key, value in zip(k.clamp(max=5).exp().unbind(1), v.unbind(1), strict=True):
            top, bottom = top * keep + key * value, bottom * keep + key
            means.append(top / bottom)
        x = x + self.o(r.sigmoid() * torch.stack(means, dim=1))
        return x + self.narrow(F.relu(self.wide(self.norm2(x))).square())


class Convolution(nn.Module):
    """Every channel looks back three tokens, by weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(SIZE)
        self.wide, self.narrow = nn.Linear(SIZE, 2 * SIZE), nn.Linear(2 * SIZE, SIZE)
        self.back = nn.Parameter(torch.randn(2 * SIZE, 1, 3) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.pad(self.wide(self.norm(x)).transpose(1, 2), (2, 0))
        return x + self.narrow(F.silu(F.conv1d(y, self.back, groups=len(self.back))).transpose(1, 2))


class Looks(nn.Module):
    """Plain attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(SIZE)
        self.q, self.k, self.v, self.o = (nn.Linear(SIZE, SIZE) for _ in range(4))

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        y = self.norm(x)
        other = y if seen is None else seen
        q, k, v = (each.unflatten(-1, (-1, 8)).transpose(1, 2) for each in (self.q(y), self.k(other), self.v(other)))
        made = F.scaled_dot_product_attention(q, k, v, is_causal=seen is None)
        return x + self.o(made.transpose(1, 2).flatten(2))


class Mixture(nn.Module):
    """Four experts, of which each token takes the two that its gate likes best."""

    def __init__(self) -> None:
        super().__init__()
        self.look, self.norm, self.choose = Looks(), nn.LayerNorm(SIZE), nn.Linear(SIZE, 4, bias=False)
        self.up = nn.ModuleList(nn.Linear(SIZE, 48, bias=False) for _ in range(4))
        self.down = nn.ModuleList(nn.Linear(48, SIZE, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.look(x)
        y = self.norm(x)
        scores, chosen = self.choose(y).softmax(-1).topk(2)
        weights = torch.zeros_like(y[..., :4]).scatter(-1, chosen, scores)
        for number, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            x = x + down(F.gelu(up(y))) * weights[..., number : number + 1]
        return x


def rwkv() -> nn.Module:
    return Decoder([TimeMix() for _ in range(3)])


def hybrid() -> nn.Module:
    return Decoder([Looks() if number % 3 == 1 else Convolution() for number in range(5)])


def mixture() -> nn.Module:
    return Decoder([Mixture() for _ in range(3)])


class Universal(Decoder):
    """One block, run three times (arXiv 1807.03819)."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for _ in range(3):
            x = self.blocks[0](x)
        return self.head(self.end(x))


def universal() -> nn.Module:
    return Universal([Mixture()])


class TwoAhead(Decoder):
    """A second head says the token after the next; the first head's words are the embedding's."""

    def __init__(self) -> None:
        super().__init__([nn.Sequential(Looks(), Convolution()) for _ in range(4)])
        self.head.weight = self.words.weight
        self.second = nn.Linear(SIZE, VOCAB)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        x = self.end(x)
        return self.head(x), self.second(x)


def two_ahead() -> nn.Module:
    return TwoAhead()


def loss_of_two(module: nn.Module, batch) -> tuple[Tensor, Tensor]:
    """Both heads learn, of as many tokens as each has, and large logits cost a little."""
    near, far = module(batch.ids)
    one, other = batch.targets.flatten(), batch.targets[:, 1:].flatten()
    total = F.cross_entropy(near.flatten(0, 1), one, reduction="sum")
    total = total + 0.3 * F.cross_entropy(far[:, :-1].flatten(0, 1), other, reduction="sum")
    return total + 1e-3 * near.logsumexp(-1).square().sum(), torch.tensor(one.numel() + other.numel())


class Towers(nn.Module):
    """An encoder of the first half of the tokens, and a decoder of the others that looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCAB, SIZE)
        self.encoder = nn.ModuleList(Looks() for _ in range(2))
        self.decoder = nn.ModuleList(Looks() for _ in range(2))
        self.across = nn.ModuleList(Looks() for _ in range(2))
        self.head = nn.Linear(SIZE, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        given, x = self.words(ids).split(TOKENS // 2, dim=1)
        for block in self.encoder:
            given = block(given)
        for block, across in zip(self.decoder, self.across, strict=True):
            x = across(block(x), given)
        return self.head(x)


def towers() -> nn.Module:
    return Towers()


def loss_of_half(module: nn.Module, batch) -> tuple[Tensor, Tensor]:
    logits, targets = module(batch.ids).flatten(0, 1), batch.targets[:, TOKENS // 2 :].flatten()
    return F.cross_entropy(logits, targets, reduction="sum"), torch.tensor(targets.numel())
