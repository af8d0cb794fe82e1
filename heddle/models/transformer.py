"""The transformer, written for one device: GPT-2 style and Llama style from the same few classes.

Activations are a list of tokens, [tokens, hidden] with tokens = batch × sequence; only attention looks at which
token belongs to which sequence. Parallelism is applied from outside: a module takes its local sizes from its
weights, so that a slice of the heads or of the MLP runs through the same lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.models import random
from heddle.models.attention import attend, attend_masked
from heddle.models.loss import Vocabulary, head_loss
from heddle.models.rotary import Rotary, rotate
from heddle.spec.model import LayerSpec, ModelSpec


class Cache(Protocol):
    """Keys and values of the tokens generated so far."""

    length: int

    def extend(self, owner: nn.Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append to what `owner` remembers; give back all of it."""
        ...


@dataclass(frozen=True)
class Microbatch:
    """What layers must know of a microbatch beyond its activations."""

    sequence: int  # tokens per sample
    keys: Tensor | None = None  # of every token, for dropout; None: no dropout
    targets: Tensor | None = None  # what follows each token, where the loss is wanted rather than logits
    scale: float = 1.0  # that the loss will be multiplied by before its backward pass
    rope: tuple[Tensor, Tensor] | None = None  # cosines and sines of the positions
    cache: Cache | None = None
    mask: Tensor | None = None  # added to scores, where a cache has more places than tokens


class Transformer(nn.Module):
    """A decoder-only transformer, or a chunk of one: some of its layers, with the embedding or the head or neither.

    Parameters are named as in the whole model whatever the chunk holds: `layers.7.attention.qkv.weight`.
    """

    def __init__(
        self, spec: ModelSpec, layers: Iterable[int] | None = None, first: bool = True, last: bool = True
    ) -> None:
        super().__init__()
        self.spec = spec
        self.embed = Embedding(spec) if first else None
        indices = range(spec.layers) if layers is None else layers
        self.layers = nn.ModuleDict({str(i): Layer(spec.layer(i), i) for i in indices})
        self.norm = make_norm(spec) if last else None
        self.head = nn.Linear(spec.hidden, spec.vocab, bias=False) if last else None
        self.rotary = Rotary(spec) if spec.positions == "rotary" else None
        self.vocabulary = Vocabulary()  # whose logits the head computes
        self.tie()

    def tie(self) -> None:
        """Make a tied output layer share the embedding's weight; moving a module between devices parts them."""
        if self.embed is not None and self.head is not None and self.spec.tied:
            self.head.weight = self.embed.tokens.weight

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        """Token ids [tokens] (or, in a later chunk, activations) to logits (or, in an earlier one, activations).

        Where the microbatch has targets, logits become the mean loss.
        """
        if self.rotary is not None:
            start = batch.cache.length if batch.cache else 0
            batch = replace(batch, rope=self.rotary(start, start + batch.sequence, x.device))
        if self.embed is not None:
            x = self.embed(x, batch)
        for layer in self.layers.values():
            x = layer(x, batch)
        if self.norm is not None and self.head is not None:
            x = self.norm(x)
            if batch.targets is None:
                return self.head(x)
            return head_loss(x, self.head.weight, batch.targets, batch.scale, self.vocabulary)
        return x


class Embedding(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.tokens = nn.Embedding(spec.vocab, spec.hidden)
        self.positions = nn.Embedding(spec.sequence, spec.hidden) if spec.positions == "learned" else None
        self.dropout = Dropout(spec.dropout, "embed")

    def forward(self, ids: Tensor, batch: Microbatch) -> Tensor:
        x: Tensor = self.tokens(ids)
        if self.positions is not None:
            start = batch.cache.length if batch.cache else 0
            place = self.positions.weight[start : start + batch.sequence]
            x = (x.view(-1, batch.sequence, x.shape[-1]) + place).view_as(x)
        return self.dropout(x, batch)


class Layer(nn.Module):
    """Attention and MLP, each normalised before and added to the residual stream after."""

    def __init__(self, spec: LayerSpec, index: int) -> None:
        super().__init__()
        self.attention_norm = make_norm(spec)
        self.attention = Attention(spec)
        self.attention_dropout = Dropout(spec.dropout, f"layers.{index}.attention")
        self.mlp_norm = make_norm(spec)
        self.mlp = GatedMLP(spec) if spec.activation == "swiglu" else MLP(spec)
        self.mlp_dropout = Dropout(spec.dropout, f"layers.{index}.mlp")

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        x = x + self.attention_dropout(self.attention(self.attention_norm(x), batch), batch)
        return x + self.mlp_dropout(self.mlp(self.mlp_norm(x)), batch)


class Attention(nn.Module):
    """Causal self-attention with grouped queries.

    The rows of `qkv` go group by group: the queries that share a key/value head, then that key, then that value.
    A slice of whole groups is then a slice of rows, and one product makes all three.
    """

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.group, self.head_size, self.window = spec.group, spec.head_size, spec.window
        rows = spec.kv_heads * (spec.group + 2) * spec.head_size
        self.qkv = nn.Linear(spec.hidden, rows, bias=spec.bias != "none")
        self.out = nn.Linear(spec.heads * spec.head_size, spec.hidden, bias=spec.bias == "all")
        self.q_norm = nn.RMSNorm(spec.head_size, spec.norm_epsilon) if spec.qk_norm else None
        self.k_norm = nn.RMSNorm(spec.head_size, spec.norm_epsilon) if spec.qk_norm else None

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        qkv = self.qkv(x).view(-1, batch.sequence, self.qkv_groups, self.group + 2, self.head_size)
        q, k, v = qkv.split([self.group, 1, 1], dim=3)
        q, k, v = (part.flatten(2, 3).transpose(1, 2) for part in (q, k, v))  # [batch, heads, sequence, head size]
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if batch.rope is not None:
            q, k = rotate(q, *batch.rope), rotate(k, *batch.rope)
        if batch.cache is not None:
            k, v = batch.cache.extend(self, k, v)
        y = self.attend(q, k, v) if batch.mask is None else attend_masked(q, k, v, batch.mask)
        return self.out(y.transpose(1, 2).flatten(2).flatten(0, 1))

    @property
    def qkv_groups(self) -> int:
        """Key/value heads held here: all of them, or this rank's slice."""
        return self.qkv.weight.shape[0] // ((self.group + 2) * self.head_size)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What each query finds among the keys it may see; apart, because it may be recomputed alone."""
        return attend(q, k, v, self.window)


class MLP(nn.Module):
    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.up = nn.Linear(spec.hidden, spec.ffn, bias=spec.bias == "all")
        self.down = nn.Linear(spec.ffn, spec.hidden, bias=spec.bias == "all")

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class GatedMLP(nn.Module):
    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.gate = nn.Linear(spec.hidden, spec.ffn, bias=spec.bias == "all")
        self.up = nn.Linear(spec.hidden, spec.ffn, bias=spec.bias == "all")
        self.down = nn.Linear(spec.ffn, spec.hidden, bias=spec.bias == "all")

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.widen(x)
        return self.down(F.silu(gate) * up)

    def widen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The two first products, of the same input."""
        return self.gate(x), self.up(x)


class Dropout(nn.Module):
    """Dropout that depends on the token and the site, not on who computes it or when."""

    site: Tensor  # a tensor, not a number: compiled code takes it as an input, and so serves every layer

    def __init__(self, p: float, site: str) -> None:
        super().__init__()
        self.p, self.number = p, random.site(site)
        self.reset()

    def reset(self, device: torch.device | None = None) -> None:
        """Put the site on the device that computes."""
        self.register_buffer("site", torch.tensor(self.number, dtype=torch.int32, device=device), persistent=False)

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        if self.p == 0 or batch.keys is None:
            return x
        return random.dropout(x, self.p, self.site, batch.keys)


def make_norm(spec: ModelSpec) -> nn.Module:
    """The normalisation over the hidden size."""
    if spec.norm == "rmsnorm":
        return nn.RMSNorm(spec.hidden, spec.norm_epsilon)
    return nn.LayerNorm(spec.hidden, spec.norm_epsilon, bias=spec.bias == "all")
