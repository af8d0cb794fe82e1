"""Causal self-attention: queries, keys and values made of the tokens, or of small vectors that stand for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.models.attention import attend, attend_masked, by_document
from heddle.models.documents import Documents
from heddle.models.norms import make_head_norm
from heddle.models.rotary import rotate
from heddle.models.scored_attention import attend_scored
from heddle.spec.latent import EPSILON, still
from heddle.spec.model import LayerSpec
from heddle.spec.rope import Turns


class Cache(Protocol):
    """Keys and values of the tokens generated so far."""

    length: int

    def extend(self, owner: nn.Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append to what `owner` remembers; give back all of it."""
        ...


class AttendedBatch(Protocol):
    """What attention asks of a microbatch."""

    @property
    def sequence(self) -> int: ...
    @property
    def rope(self) -> Mapping[Turns, tuple[Tensor, Tensor]] | None: ...
    @property
    def cache(self) -> Cache | None: ...
    @property
    def mask(self) -> Tensor | None: ...
    @property
    def documents(self) -> Documents: ...


class Attention(nn.Module):
    """Causal self-attention with grouped queries.

    The rows of `qkv` go group by group: the queries that share a key/value head, then that key, then that value.
    A slice of whole groups is then a slice of rows, and one product makes all three.
    """

    linears: tuple[str, ...] = ("qkv", "out")

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.keep(spec)
        rows = spec.kv_heads * (spec.group + 2) * spec.head_size
        self.qkv = nn.Linear(spec.hidden, rows, bias="qkv" in spec.biased)
        self.out = nn.Linear(spec.heads * spec.head_size, spec.hidden, bias="out" in spec.biased)
        self.q_norm = make_head_norm(spec, spec.heads) if spec.qk_norm else None
        self.k_norm = make_head_norm(spec, spec.kv_heads) if spec.qk_norm else None
        self.sinks = nn.Parameter(torch.empty(spec.heads)) if spec.sinks else None

    def keep(self, spec: LayerSpec) -> None:
        """What of a layer both kinds of attention know."""
        self.group, self.head_size, self.window = spec.group, spec.head_size, spec.window
        self.turns, self.turning = spec.turns, partial(rotate, size=spec.rotated, pairs=spec.rotary_pairs)
        self.score_scale, self.cap = spec.score_scale, spec.attention_cap
        self.scale = None if spec.score_scale == spec.head_size**-0.5 else spec.score_scale
        self.norms_late = spec.qk_norm_late

    def forward(self, x: Tensor, batch: AttendedBatch) -> Tensor:
        q, k, v = self.project(x, batch)
        if batch.cache is not None:
            k, v = batch.cache.extend(self, k, v)
        y = self.attend(q, k, v, batch.documents) if batch.mask is None else self.attend_masked(q, k, v, batch.mask)
        return self.out(self.join(y))

    def project(self, x: Tensor, batch: AttendedBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, turned by their positions, [batch, heads, sequence, head size]."""
        qkv = self.qkv(x).view(-1, batch.sequence, self.qkv_groups, self.group + 2, self.head_size)
        q, k, v = qkv.split([self.group, 1, 1], dim=3)
        q, k, v = (part.flatten(2, 3).transpose(1, 2) for part in (q, k, v))
        if not self.norms_late:
            q, k = self.normalize(q, k)
        if batch.rope is not None and self.turns is not None:
            turn = batch.rope[self.turns]
            q, k = self.turning(q, *turn), self.turning(k, *turn)
        if self.norms_late:
            q, k = self.normalize(q, k)
        return q, k, v

    def join(self, y: Tensor) -> Tensor:
        """What heads found, token by token."""
        return y.transpose(1, 2).flatten(2).flatten(0, 1)

    @property
    def qkv_groups(self) -> int:
        """Key/value heads held here: all of them, or this rank's slice."""
        return self.qkv.weight.shape[0] // ((self.group + 2) * self.head_size)

    def normalize(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, normalized where the model says so."""
        return (q, k) if self.q_norm is None or self.k_norm is None else (self.q_norm(q), self.k_norm(k))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, documents: Documents) -> Tensor:
        """What each query finds among the keys it may see; apart, because it may be recomputed alone."""
        if not self.scored:
            return attend(q, k, v, self.window, documents, self.scale)
        return by_document(self.scores, q, k, v, documents) if documents else self.scores(q, k, v)

    def attend_masked(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """The same where the mask, added to scores, says what is seen."""
        return self.scores(q, k, v, mask=mask) if self.scored else attend_masked(q, k, v, mask, self.scale)

    @property
    def scored(self) -> bool:
        """Whether scores are changed before the softmax, which no fused kernel does."""
        return self.cap > 0 or self.sinks is not None

    def scores(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attention that changes its scores."""
        return attend_scored(q, k, v, self.score_scale, self.window, self.cap, self.sinks, mask)


Parts = tuple[Tensor, ...]


class LatentAttention(Attention):
    """Attention whose keys and values, and mostly its queries, are made of small vectors (DeepSeek, arXiv 2405.04434).

    One product makes the latents of queries and of keys and values, and the part of the key that turns, which all heads
    share. Values are shorter than keys: zeros make them as long, so that every kernel and exchange takes them.
    """

    linears = ("down", "q_up", "kv_up", "out")

    def __init__(self, spec: LayerSpec) -> None:
        nn.Module.__init__(self)
        self.keep(spec)
        self.q_norm = self.k_norm = self.sinks = None
        self.sizes = [size for size in (spec.q_latent, spec.kv_latent, spec.rotary_size) if size]
        self.still, self.value_size = still(spec), spec.valued
        norm = partial(nn.RMSNorm, eps=EPSILON)
        self.down = nn.Linear(spec.hidden, sum(self.sizes), bias="qkv" in spec.biased)
        self.q_latent_norm = norm(spec.q_latent) if spec.q_latent else None
        self.kv_latent_norm = norm(spec.kv_latent)
        self.q_up = nn.Linear(spec.q_latent or spec.hidden, spec.heads * spec.head_size, bias=False)
        self.kv_up = nn.Linear(spec.kv_latent, spec.heads * (self.still + self.value_size), bias=False)
        self.out = nn.Linear(spec.heads * self.value_size, spec.hidden, bias="out" in spec.biased)
        self.enter: Callable[[Parts], Parts] = _as_they_are  # where ranks split heads, all of them need the latents

    def project(self, x: Tensor, batch: AttendedBatch) -> tuple[Tensor, Tensor, Tensor]:
        """See the base class."""
        *queries, kv_latent, k_turning = self.down(x).split(self.sizes, dim=-1)
        if self.q_latent_norm is not None:
            queries = [self.q_latent_norm(queries[0])]
        *queries, kv_latent, k_turning = self.enter((*queries, self.kv_latent_norm(kv_latent), k_turning))
        q = self.by_head(self.q_up(queries[0] if queries else x), batch.sequence, self.head_size)
        kv = self.by_head(self.kv_up(kv_latent), batch.sequence, self.still + self.value_size)
        q_still, q_turning = q.split([self.still, self.head_size - self.still], dim=-1)
        k_still, v = kv.split([self.still, self.value_size], dim=-1)
        k_turning = self.by_head(k_turning, batch.sequence, self.head_size - self.still)
        if batch.rope is not None and self.turns is not None:
            turn = batch.rope[self.turns]
            q_turning, k_turning = self.turning(q_turning, *turn), self.turning(k_turning, *turn)
        k = torch.cat((k_still, k_turning.expand(-1, k_still.shape[1], -1, -1)), dim=-1)
        return torch.cat((q_still, q_turning), dim=-1), k, F.pad(v, (0, self.head_size - self.value_size))

    @staticmethod
    def by_head(x: Tensor, sequence: int, size: int) -> Tensor:
        """[tokens, heads × size] as [batch, heads, sequence, size]."""
        return x.view(-1, sequence, x.shape[-1] // size, size).transpose(1, 2)

    def join(self, y: Tensor) -> Tensor:
        """Without what was added to values."""
        return super().join(y[..., : self.value_size])


def _as_they_are(parts: Parts) -> Parts:
    return parts


def make_attention(spec: LayerSpec) -> Attention:
    """The attention of a layer."""
    return LatentAttention(spec) if spec.kv_latent else Attention(spec)
