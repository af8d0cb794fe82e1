"""Text from a transformer tile by tile: the prompt in one call, then token by token.

Tiles want shapes that do not change, so keys and values are kept in caches of a few sizes, whose empty places a mask
hides. One token reads every weight once: memory decides, and weights in fewer bits are less to read. How far off they
are is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.errors import HeddleError, nearest
from heddle.models.generate import KeyValueCache, newest_logits
from heddle.models.transformer import Microbatch, Transformer
from heddle.tiles.compiled import Compiled
from heddle.tiles.decode import Body, Decoder, TokenStep, attentions, room
from heddle.tiles.engine.pool import worker_count
from heddle.tiles.operators.narrow import BITS

SMALLEST = 512  # places of a cache; each larger one has twice as many
TESTED = 128  # tokens of a text on which weights in fewer bits are held against float32


class TileEngine:
    """What `heddle.models.generate.generate` takes as its engine. Logits are valid until the next call."""

    def __init__(self, model: Transformer, threads: int | None = None, weights: str = "float32") -> None:
        kind = next(model.parameters())
        if kind.device.type != "cpu" or kind.dtype != torch.float32:
            raise HeddleError(
                f"The model is in {str(kind.dtype).removeprefix('torch.')} on {kind.device}.",
                "Tiles compute in float32 on CPU cores.",
                "Generate without --tiles.",
            )
        if weights not in BITS:
            raise HeddleError(
                f"There are no weights of {weights!r}.", "It says how tiles keep them.", nearest(weights, BITS)
            )
        self.model, self.weights = model, weights
        self.prompt = Compiled(Body(model), worker_count(threads))
        self.step = Compiled(TokenStep(model), worker_count(threads), bits=BITS[weights])
        self.step.weights = self.prompt.weights  # what both pack is packed once
        self.decoder: Decoder | None = None  # of the cache that was used last

    def __call__(self, ids: Tensor, cache: KeyValueCache) -> Tensor:
        """Logits of the last token; keys and values of all of them go to the cache.

        A cache of several samples takes one token of each, and gives logits of each.
        """
        self._make_room(cache, cache.length + len(ids) // cache.batch)
        if len(ids) == cache.batch and self._decodes(cache):
            assert self.decoder is not None
            logits = self.decoder(ids)
            return logits if cache.batch > 1 else logits[0]
        if cache.length or cache.batch > 1:
            return newest_logits(self.model, ids, cache)
        return self._read(ids, cache)

    def _decodes(self, cache: KeyValueCache) -> bool:
        """Whether tiles take the next token of this cache."""
        if isinstance(self.model.spec.window, tuple):  # one mask for all layers would not do
            self._refuse("The layers of this model see windows of different sizes.")
            return False
        decoder = self.decoder
        if decoder is None or decoder.cache is not cache or decoder.capacity != cache.capacity:
            decoder = self.decoder = Decoder(self.step, self.model, cache)
        if not decoder.runs:
            self._refuse(self.step.whole or "")
        return decoder.runs

    def _refuse(self, why: str) -> None:
        if self.weights != "float32":
            raise HeddleError(
                why,
                f"PyTorch decodes it, which does not read weights of {self.weights}.",
                "Generate without --weights.",
            )

    def _make_room(self, cache: KeyValueCache, tokens: int) -> None:
        """Let the cache have the smallest of our sizes that holds so many tokens."""
        size = SMALLEST
        while size < tokens:
            size *= 2
        if not cache.kept or cache.capacity < tokens:
            room(self.model, cache, size)

    def _read(self, ids: Tensor, cache: KeyValueCache) -> Tensor:
        """A prompt at once."""
        model, stop = self.model, len(ids)
        assert model.embed is not None
        x = model.embed(ids, Microbatch(sequence=stop, cache=cache))
        rope = {} if model.rotary is None else model.rotary(0, stop, ids.device)
        logits, *new = self.prompt(x, [table for pair in rope.values() for table in pair])
        for owner, keys, values in zip(attentions(model), new[::2], new[1::2], strict=True):
            for place, value in zip(cache.kept[owner], (keys, values), strict=True):
                place[:, :, :stop] = value
        return logits[-1]


@dataclass(frozen=True)
class WeightError:
    """What weights in fewer bits change, on some tokens of a text."""

    weights: str
    tokens: int
    logits: float  # the largest difference from float32's, of the largest logit
    loss: float  # nats per token: how much more than float32's
    float32_loss: float

    def __str__(self) -> str:
        return (
            f"{self.weights} weights, on {self.tokens} tokens: logits off by at most {100 * self.logits:.2g} % "
            f"of the largest, loss {self.loss:+.2g} nats per token on {self.float32_loss:.4g} "
            f"(perplexity × {math.exp(self.loss):.4f})"
        )


@torch.no_grad()
def weight_error(engine: TileEngine, ids: Sequence[int], tokens: int = TESTED) -> WeightError | None:
    """Read a text token by token with the engine's weights, and at once with float32; None of a single token."""
    model = engine.model
    text = torch.tensor(list(ids)[: min(tokens, model.spec.sequence)])
    if len(text) < 2:
        return None
    wanted = model(text, Microbatch(sequence=len(text))).double()
    cache, rows = KeyValueCache(1, model.spec.sequence), []
    for place in range(len(text)):
        rows.append(engine(text[place : place + 1], cache).clone())
        cache.length += 1
    found = torch.stack(rows).double()
    losses = [float(F.cross_entropy(each[:-1], text[1:])) for each in (found, wanted)]
    largest = float((found - wanted).abs().max() / wanted.abs().max())
    return WeightError(engine.weights, len(text), largest, losses[0] - losses[1], losses[1])
