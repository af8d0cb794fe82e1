"""A module of one's own: a small decoder that shares its embedding with its head, and keeps its logits small.

`heddle train job.toml` runs this file. It asks for `make` and `loss`; `plan` is needed for pipelines and tensor
parallelism only.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB, HIDDEN, HEADS, LAYERS, LONGEST = 257, 64, 4, 5, 128


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads  # each tensor rank has its share of them
        self.q, self.k, self.v = (nn.Linear(hidden, hidden, bias=False) for _ in range(3))
        self.o = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        samples, tokens, _ = x.shape
        q, k, v = (part(x).view(samples, tokens, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(samples, tokens, -1))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.relu(self.up(self.norm2(x))).square())


class Decoder(nn.Module):
    def __init__(self, vocab: int, hidden: int, heads: int, layers: int, longest: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.places = nn.Parameter(0.02 * torch.randn(longest, hidden))
        self.layers = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.embed.weight  # shared: both ends of a pipeline hold it
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.places[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def make(small: bool = False) -> nn.Module:
    """The module; `heddle prove` asks for a small one."""
    return Decoder(61, 16, 4, 3, LONGEST) if small else Decoder(VOCAB, HIDDEN, HEADS, LAYERS, LONGEST)


def loss(module: nn.Module, batch) -> tuple[Tensor, Tensor]:
    """The sum over all targets, and how many they are: cross-entropy, and a second loss that keeps logits small."""
    logits, targets = module(batch.ids).flatten(0, 1).float(), batch.targets.flatten()
    learned = targets.ne(-100)
    total = F.cross_entropy(logits, targets, reduction="sum", ignore_index=-100)
    spread = (logits.logsumexp(-1).square() * learned).sum()
    return total + 1e-4 * spread, learned.sum()


plan = {
    "blocks": "layers.*",
    "column": ["*.q", "*.k", "*.v", "*.up"],
    "row": ["*.o", "*.down"],
    "vocabulary": ["embed"],
    "replicated": ["*norm*", "places"],
}
