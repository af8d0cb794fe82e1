"""Text from a transformer tile by tile: the prompt in one call, then token by token where that beats PyTorch.

Tiles want shapes that do not change, so keys and values are kept in caches of a few sizes, whose empty places a mask
hides. One token reads every weight once: memory decides, and whether tiles or PyTorch read it faster is measured on the
first tokens of each size. Weights of int8 are a quarter to read; how far off they are is measured, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.errors import HeddleError
from heddle.models.generate import KeyValueCache, newest_logits
from heddle.models.transformer import Attention, Layer, Microbatch, Transformer
from heddle.tiles.compiled import Compiled
from heddle.tiles.engine.pool import worker_count

SMALLEST = 128  # places of a cache; each larger one has twice as many
TESTED = 128  # tokens of a text on which weights of int8 are held against float32
TRIALS = 3  # tokens that both engines compute before one is chosen


class _Collected:
    """Gives each layer the keys and values that it had so far with the new ones behind, and keeps the new ones."""

    length = 0

    def __init__(self, before: dict[nn.Module, tuple[Tensor, Tensor]]) -> None:
        self.before, self.new = before, list[Tensor]()

    def extend(self, owner: nn.Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.new += [keys, values]
        if owner not in self.before:
            return keys, values
        k, v = self.before[owner]
        return torch.cat((k, keys), 2), torch.cat((v, values), 2)


class _Body(nn.Module):
    """All layers and the head, which only the last token passes: logits, then keys and values of each layer."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, tables: list[Tensor], mask: Tensor | None, kept: list[Tensor]) -> list[Tensor]:
        kinds = [] if self.model.rotary is None else self.model.rotary.kinds
        rope = dict(zip(kinds, zip(tables[::2], tables[1::2], strict=True), strict=True))
        owners = attentions(self.model)[: len(kept) // 2]
        cache = _Collected(dict(zip(owners, zip(kept[::2], kept[1::2], strict=True), strict=True)))
        batch = Microbatch(sequence=x.shape[0], rope=rope, mask=mask, cache=cache)
        for layer in self.model.layers.values():
            x = layer(x, batch)
        assert self.model.norm is not None
        assert self.model.head is not None
        return [self.model.scores.of(self.model.head(self.model.norm(x[-1:])))[0], *cache.new]


def attentions(model: Transformer) -> list[Attention]:
    """Who keeps keys and values."""
    return [cast(Layer, layer).attention for layer in model.layers.values()]


class TileEngine:
    """What `heddle.models.generate.generate` takes as its engine."""

    def __init__(self, model: Transformer, threads: int | None = None, int8: bool = False) -> None:
        kind = next(model.parameters())
        if kind.device.type != "cpu" or kind.dtype != torch.float32:
            raise HeddleError(
                f"The model is in {str(kind.dtype).removeprefix('torch.')} on {kind.device}.",
                "Tiles compute in float32 on CPU cores.",
                "Generate without --tiles.",
            )
        if int8 and isinstance(model.spec.window, tuple):
            raise HeddleError(
                "The layers of this model see windows of different sizes.",
                "Its tokens are decoded by PyTorch, which does not read weights of int8.",
                "Generate without --int8.",
            )
        self.model, self.int8 = model, int8
        self.compiled = Compiled(_Body(model), worker_count(threads), int8=int8)
        self.faster: dict[int, bool] = {}  # by the size of a cache: whether tiles were faster than PyTorch
        self.seconds: dict[int, dict[str, list[float]]] = {}

    def __call__(self, ids: Tensor, cache: KeyValueCache) -> Tensor:
        """Logits of the last token; keys and values of all of them go to the cache."""
        torch_engine = partial(newest_logits, self.model, ids, cache)
        self._make_room(cache, cache.length + len(ids))
        if len(ids) > 1:
            return torch_engine() if cache.length else self._tiles(ids, cache)
        tile_engine = partial(self._tiles, ids, cache)
        choice = True if self.int8 else self.faster.get(cache.capacity)
        if isinstance(self.model.spec.window, tuple):  # one mask for all layers would not do
            choice = False
        if choice is None:
            return self._trial(cache.capacity, tile_engine, torch_engine)
        return tile_engine() if choice else torch_engine()

    def _make_room(self, cache: KeyValueCache, tokens: int) -> None:
        """Let the cache have the smallest of our sizes that holds so many tokens."""
        size = SMALLEST
        while size < tokens:
            size *= 2
        owners = attentions(self.model)
        if cache.kept and cache.capacity >= tokens:
            return
        before, cache.capacity = dict(cache.kept), size
        for owner in owners:
            heads, head = owner.qkv_groups, owner.head_size
            # Zeros: what a mask hides is multiplied by zero, which only numbers survive.
            new = torch.zeros(2, cache.batch, heads, size, head)
            for place, old in zip(new, before.get(owner, ()), strict=False):
                place[:, :, : cache.length] = old[:, :, : cache.length]
            cache.kept[owner] = (new[0], new[1])

    def _tiles(self, ids: Tensor, cache: KeyValueCache) -> Tensor:
        start, stop = cache.length, cache.length + len(ids)
        model = self.model
        assert model.embed is not None
        x = model.embed(ids, Microbatch(sequence=len(ids), cache=cache))
        rope = {} if model.rotary is None else model.rotary(start, stop, ids.device)
        tables = [table for pair in rope.values() for table in pair]
        owners = attentions(model)
        kept: list[Tensor] = []
        mask = None
        if len(ids) == 1:
            kept = [each for owner in owners for each in cache.kept[owner]]
            mask = torch.zeros(1, 1, 1, cache.capacity + 1)
            mask[..., start : cache.capacity] = -math.inf
            if isinstance(model.spec.window, int):
                mask[..., : max(0, stop - model.spec.window)] = -math.inf
        logits, *new = self.compiled(x, tables, mask, kept)
        for owner, keys, values in zip(owners, new[::2], new[1::2], strict=True):
            for place, value in zip(cache.kept[owner], (keys, values), strict=True):
                place[:, :, start:stop] = value
        return logits

    def _trial(self, size: int, tile_engine: Callable[[], Tensor], torch_engine: Callable[[], Tensor]) -> Tensor:
        """Time both on the same token; after some, choose. Where PyTorch won at a smaller size it stays."""
        if any(not won for known, won in self.faster.items() if known < size):
            self.faster[size] = False
            return torch_engine()
        seconds = self.seconds.get(size)
        if seconds is None:
            tile_engine()  # compiles
            seconds = self.seconds[size] = {"tiles": [], "torch": []}
        for name, engine in (("torch", torch_engine), ("tiles", tile_engine)):
            start = time.perf_counter()
            logits = engine()
            seconds[name].append(time.perf_counter() - start)
        if len(seconds["tiles"]) >= TRIALS:
            self.faster[size] = min(seconds["tiles"]) <= min(seconds["torch"])
        return logits


@dataclass(frozen=True)
class Int8Error:
    """What weights of int8 change, on some tokens of a text."""

    tokens: int
    logits: float  # the largest difference from float32's, of the largest logit
    loss: float  # nats per token: how much more than float32's
    float32_loss: float

    def __str__(self) -> str:
        return (
            f"int8 weights, on {self.tokens} tokens: logits off by at most {100 * self.logits:.2g} % of the largest, "
            f"loss {self.loss:+.2g} nats per token on {self.float32_loss:.4g} (perplexity × {math.exp(self.loss):.4f})"
        )


@torch.no_grad()
def int8_error(engine: TileEngine, ids: Sequence[int], tokens: int = TESTED) -> Int8Error | None:
    """Read a text token by token with int8 weights, and at once with float32: what differs; None of a single token."""
    model = engine.model
    text = torch.tensor(list(ids)[: min(tokens, model.spec.sequence)])
    if len(text) < 2:
        return None
    wanted = model(text, Microbatch(sequence=len(text))).double()
    cache, rows = KeyValueCache(1, model.spec.sequence), []
    for place in range(len(text)):
        rows.append(engine(text[place : place + 1], cache))
        cache.length += 1
    found = torch.stack(rows).double()
    losses = [float(F.cross_entropy(each[:-1], text[1:])) for each in (found, wanted)]
    largest = float((found - wanted).abs().max() / wanted.abs().max())
    return Int8Error(len(text), largest, losses[0] - losses[1], losses[1])
