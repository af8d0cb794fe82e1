"""The transformer, written for one device: the decoders of the field from the same few classes.

Activations are a list of tokens, [tokens, hidden] with tokens = batch × sequence; only attention looks at which
token belongs to which sequence. Parallelism is applied from outside: a module takes its local sizes from its
weights, so that a slice of the heads or of the MLP runs through the same lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.models import random
from heddle.models.activations import ACTIVATIONS, gated
from heddle.models.chunk import Chunk, ChunkPart
from heddle.models.documents import Documents
from heddle.models.experts import ExpertMLP
from heddle.models.loss import Scores, Vocabulary, head_loss, token_losses
from heddle.models.norms import make_norm
from heddle.models.preference import PreferencePairs
from heddle.models.rotary import Rotary, at
from heddle.models.self_attention import Attention as Attention
from heddle.models.self_attention import Cache as Cache
from heddle.models.self_attention import make_attention
from heddle.spec.model import LayerSpec, ModelSpec
from heddle.spec.rope import Turns


@dataclass(frozen=True)
class Microbatch:
    """What layers must know of a microbatch beyond its activations."""

    sequence: int  # tokens of each sample, as many as are held here
    keys: Tensor | None = None  # of every token, for dropout; None: no dropout
    targets: Tensor | None = None  # what follows each token, where the loss is wanted rather than logits
    count: float | None = None  # what the sum of losses is divided by where some targets are ignored; None: all tokens
    scale: float = 1.0  # that losses will be multiplied by before their backward pass
    rope: Mapping[Turns, tuple[Tensor, Tensor]] | None = None  # cosines and sines of the positions
    cache: Cache | None = None
    mask: Tensor | None = None  # added to scores, where a cache has more places than tokens
    positions: Tensor | None = None  # of the tokens held here, [sequence] or [samples, sequence]; None: from 0 on
    length: int = 0  # that positions are below, where they are given
    documents: Documents = ()  # of which whole samples are made; see heddle.models.documents
    samples: tuple[Tensor, Tensor] | None = None  # tokens and targets again, one sample in a row, for own modules
    first: int | None = None  # the number of the first sample, where these learn
    pairs: PreferencePairs | None = None  # where documents come in pairs, of which one is preferred


class Transformer(Chunk):
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
        self.head = nn.Linear(spec.hidden, spec.vocab, bias=spec.head_bias) if last else None
        self.scores = Scores(spec.logit_scale, spec.logit_cap)
        self.rotary = Rotary(spec) if spec.positions == "rotary" else None
        self.vocabulary = Vocabulary()  # whose logits the head computes
        self.tie()

    def tie(self) -> None:
        """Make a tied output layer share the embedding's weight; moving a module between devices parts them."""
        if self.embed is not None and self.head is not None and self.spec.tied:
            self.head.weight = self.embed.tokens.weight

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Its parameters by their names in the whole model: a tied output layer is the embedding."""
        for name, parameter in self.named_parameters():
            yield ("embed.tokens.weight" if self.spec.tied and name == "head.weight" else name), parameter

    def parts(self) -> list[ChunkPart]:
        """What it calls one after the other.

        The head's weight is used by the loss, outside of its module. Neither end needs its weights for the backward
        pass: the gradient of a lookup has no weights in it, and the loss has made its own already.
        """
        tied = self.spec.tied and self.embed is not None and self.head is not None
        found = []
        if self.embed is not None:
            found.append(
                ChunkPart("embed", self.embed, self if tied else self.embed, False, list(self.embed.parameters()))
            )
        for name, layer in self.layers.items():
            found.append(ChunkPart(name, layer, layer, True, list(layer.parameters())))
        if self.norm is not None and self.head is not None:
            found.append(ChunkPart("head", self.norm, self, False, [*self.norm.parameters(), *self.head.parameters()]))
        return found

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        """Token ids [tokens] (or, in a later chunk, activations) to logits (or, in an earlier one, activations).

        Where the microbatch has targets, logits become the mean loss.
        """
        if self.rotary is not None:
            start = batch.cache.length if batch.cache else 0
            stop = start + batch.sequence if batch.positions is None else batch.length
            tables = self.rotary(start, stop, x.device)
            batch = replace(batch, rope={turns: at(table, batch.positions) for turns, table in tables.items()})
        if self.embed is not None:
            x = self.embed(x, batch)
        for layer in self.layers.values():
            x = layer(x, batch)
        if self.norm is not None and self.head is not None:
            x = self.norm(x)
            if batch.targets is None:
                return self.scores.of(self.head(x))
            weight, bias = self.head.weight, self.head.bias
            if batch.pairs is not None and batch.pairs.reference is None:
                full = self.vocabulary.inputs(x)
                losses = token_losses(full, weight, batch.targets, self.vocabulary, self.scores, bias)
                return batch.pairs.log_probabilities(losses)
            return head_loss(
                x,
                weight,
                batch.targets,
                batch.scale,
                self.vocabulary,
                scores=self.scores,
                bias=bias,
                count=batch.count,
                weigh=None if batch.pairs is None else batch.pairs.weigh(batch.count),
            )
        return x


class Embedding(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.tokens = nn.Embedding(spec.vocab, spec.hidden)
        self.positions = nn.Embedding(spec.sequence, spec.hidden) if spec.positions == "learned" else None
        self.dropout = Dropout(spec.dropout, "embed")
        self.scale = spec.embedding_scale

    def forward(self, ids: Tensor, batch: Microbatch) -> Tensor:
        x: Tensor = self.tokens(ids)
        if self.scale != 1:
            x = x * self.scale
        if self.positions is not None:
            start = batch.cache.length if batch.cache else 0
            if batch.positions is None:
                place = self.positions.weight[start : start + batch.sequence]
            else:
                place = F.embedding(batch.positions, self.positions.weight)
            x = (x.view(-1, batch.sequence, x.shape[-1]) + place).view_as(x)
        return self.dropout(x, batch)


class Layer(nn.Module):
    """Attention and MLP, each normalized before, after or both, and added to the residual stream."""

    def __init__(self, spec: LayerSpec, index: int) -> None:
        super().__init__()
        before, after = spec.norm_place != "after", spec.norm_place != "before"
        self.parallel, self.scale = spec.branches != "serial", spec.residual_scale
        self.attention_norm = make_norm(spec) if before else None
        self.attention = make_attention(spec)
        self.attention_after_norm = make_norm(spec) if after else None
        self.attention_dropout = Dropout(spec.dropout, f"layers.{index}.attention")
        self.mlp_norm = make_norm(spec) if before and spec.branches != "parallel" else None
        self.mlp = make_mlp(spec)
        self.mlp_after_norm = make_norm(spec) if after else None
        self.mlp_dropout = Dropout(spec.dropout, f"layers.{index}.mlp")

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        normed = x if self.attention_norm is None else self.attention_norm(x)
        y = self.add(x, self.attend(normed, batch))
        if self.mlp_norm is not None:
            normed = self.mlp_norm(x if self.parallel else y)
        elif not self.parallel:
            normed = y
        return self.add(y, self.transform(normed, batch))

    # Two functions, so that nothing of the first branch is held while the second is computed.
    def attend(self, normed: Tensor, batch: Microbatch) -> Tensor:
        """What attention adds to the residual stream."""
        branch = self.attention(normed, batch)
        if self.attention_after_norm is not None:
            branch = self.attention_after_norm(branch)
        return self.attention_dropout(branch, batch)

    def transform(self, normed: Tensor, batch: Microbatch) -> Tensor:
        """What the MLP adds to it."""
        branch = self.mlp(normed, batch) if isinstance(self.mlp, ExpertMLP) else self.mlp(normed)
        if self.mlp_after_norm is not None:
            branch = self.mlp_after_norm(branch)
        return self.mlp_dropout(branch, batch)

    def add(self, x: Tensor, branch: Tensor) -> Tensor:
        """The residual stream with what a branch adds to it."""
        return x + branch if self.scale == 1 else torch.add(x, branch, alpha=self.scale)


class MLP(nn.Module):
    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.up = nn.Linear(spec.hidden, spec.ffn, bias="mlp" in spec.biased)
        self.down = nn.Linear(spec.ffn, spec.hidden, bias="mlp" in spec.biased)
        self.activate = ACTIVATIONS[spec.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activate(self.up(x)))


class GatedMLP(nn.Module):
    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.gate = nn.Linear(spec.hidden, spec.ffn, bias="mlp" in spec.biased)
        self.up = nn.Linear(spec.hidden, spec.ffn, bias="mlp" in spec.biased)
        self.down = nn.Linear(spec.ffn, spec.hidden, bias="mlp" in spec.biased)
        self.gated = gated(spec)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.gated(*self.widen(x)))

    def widen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The two first products, of the same input."""
        return self.gate(x), self.up(x)


def make_mlp(spec: LayerSpec) -> nn.Module:
    """What a layer has behind attention: one MLP, or experts."""
    if spec.experts:
        shared = GatedMLP(replace(spec, experts=0, ffn=spec.shared_ffn)) if spec.shared_ffn else None
        return ExpertMLP(spec, shared)
    return GatedMLP(spec) if spec.gated else MLP(spec)


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
