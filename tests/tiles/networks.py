"""Random modules of the operators that networks have, small and with odd sizes."""

import random

import torch
import torch.nn.functional as F
from torch import nn


class RandomTokens(nn.Module):
    """A chain over (batch, tokens, features), with residuals, products of computed matrices and attention."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        self.batch, self.tokens = self.chance.choice([1, 1, 2, 3]), self.chance.choice([1, 5, 17, 40])
        self.heads = self.chance.choice([1, 2, 3])
        self.width = self.heads * self.chance.choice([4, 8, 20])
        self.vocab = 37
        self.embedding = nn.Embedding(self.vocab, self.width)
        self.steps = [self.chance.choice(STEPS) for _ in range(self.chance.randint(2, 6))]
        self.layers = nn.ModuleList(nn.Linear(self.width, self.width, bias=number % 2 == 0) for number in range(8))
        self.norms = nn.ModuleList(nn.LayerNorm(self.width) for _ in range(8))
        self.wide = nn.Linear(self.width, 3 * self.width)

    def example(self) -> tuple[torch.Tensor]:
        return (torch.randint(0, self.vocab, (self.batch, self.tokens)),)

    def forward(self, index):
        x = self.embedding(index)
        for number, step in enumerate(self.steps):
            x = step(self, x, number)
        return x, (x * x).mean(-1)


def _mlp(m, x, n):
    acts = (F.gelu, F.relu, F.silu, torch.tanh, lambda v: F.gelu(v, approximate="tanh"), torch.sigmoid)
    return x + acts[n % len(acts)](m.layers[n](x))


def _norm(m, x, n):
    return m.norms[n](x)


def _rms(m, x, n):
    return m.norms[n].weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def _attention(m, x, n):
    b, s, c = x.shape
    q, k, v = (t.view(b, s, m.heads, -1).transpose(1, 2) for t in m.wide(x).split(c, -1))
    mask = None
    if n % 3 == 1:
        mask = torch.ones(s, s, dtype=torch.bool).tril()
    if n % 3 == 2:
        mask = torch.linspace(-1, 1, s).expand(s, s)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=n % 4 == 0)
    return x + y.transpose(1, 2).reshape(b, s, c)


def _by_hand(m, x, n):
    scores = x @ x.transpose(-1, -2) / x.shape[-1] ** 0.5
    return torch.softmax(scores, -1) @ x


def _rotate(m, x, n):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * 0.5 + turned * torch.linspace(0, 1, x.shape[-1])


def _gate(m, x, n):
    return F.silu(m.layers[n](x)) * m.layers[(n + 1) % 8](x)


def _clip(m, x, n):
    return torch.where(x > 0.5, x * 0.1 + 0.5, x.clamp(-2, 2)) - x.abs().sqrt() * 0.1


def _pure_torch(m, x, n):
    return torch.flip(x, (-1,)) + torch.cumsum(x, 1) * 0.1


STEPS = (_mlp, _mlp, _norm, _rms, _attention, _by_hand, _rotate, _gate, _clip, _pure_torch)


class RandomImages(nn.Module):
    """Convolutions of all kinds, norms, pooling, concatenation and a classifier."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        pick = self.chance.choice
        self.batch, self.size, self.channels = pick([1, 2]), pick([7, 12, 19]), pick([1, 3, 20])
        layers: list[nn.Module] = []
        width = self.channels
        for _ in range(self.chance.randint(2, 4)):
            kind = pick(["conv", "conv", "depthwise", "pool", "grouped"])
            if kind == "conv":
                new = pick([5, 16, 50])
                layers += [
                    nn.Conv2d(width, new, pick([1, 3, 5]), pick([1, 2]), pick([0, 1, 2]), bias=pick([True, False]))
                ]
                width = new
                if pick([True, False]):
                    layers += [nn.BatchNorm2d(width)]
                layers += [pick([nn.ReLU(), nn.ReLU6(), nn.Hardswish(), nn.LeakyReLU(0.2), nn.Identity()])]
            elif kind == "depthwise":
                layers += [
                    nn.Conv2d(width, width, 3, pick([1, 2]), pick([1, 2]), pick([1, 2]), groups=width),
                    nn.ReLU(),
                ]
            elif kind == "grouped" and width % 2 == 0:
                layers += [nn.Conv2d(width, width, 3, 1, 1, groups=2)]
            else:
                layers += [
                    pick([nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2, 1, 1), nn.AvgPool2d(3, 1, 1, count_include_pad=False)])
                ]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(2 * width, 7)

    def example(self) -> tuple[torch.Tensor]:
        return (torch.randn(self.batch, self.channels, self.size, self.size),)

    def forward(self, image):
        x = self.body(F.pad(image, (3, 3, 3, 3)))
        x = torch.cat((x, x.relu() + x), 1)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), x, x.mean((2, 3))


def shaken(module: nn.Module) -> nn.Module:
    """In evaluation mode, with statistics of norms that are not 0 and 1."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -0.5, 0.5)
            nn.init.uniform_(part.running_var, 0.5, 2)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.uniform_(part.bias, -0.5, 0.5)
    return module.eval()


def leaves(value):
    return [each for each in torch.utils._pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]


def largest_error(wanted, found) -> float:
    """Relative to the largest number of each output."""
    pairs = list(zip(leaves(wanted), leaves(found), strict=True))
    assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)
    assert all(a.stride() == b.stride() for a, b in pairs if _is_dense(a))
    return max(float((a - b).abs().max() / a.abs().max().clamp_min(1e-30)) for a, b in pairs)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no gaps; pieces of others are given without theirs."""
    return torch.empty_like(tensor).stride() == tensor.stride()
