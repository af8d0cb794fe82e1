"""One token after another: a whole network as one call whose memory is laid out once.

Only addresses move from token to token: new keys and values are written where the cache keeps them, and rows of tables
are read where they are. What is left to Python is a few numbers, so that small networks are not kept waiting for it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from heddle.models.generate import KeyValueCache
from heddle.models.self_attention import Attention, LatentAttention
from heddle.models.transformer import Layer, Microbatch, Transformer
from heddle.tiles.compiled import Compiled


class Collected:
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


class Body(nn.Module):
    """All layers and the head, which only the last token passes: logits, then keys and values of each layer."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, tables: list[Tensor]) -> list[Tensor]:
        batch = Microbatch(sequence=x.shape[0], rope=rope_of(self.model, tables), cache=Collected({}))
        return self.rest(x, batch)

    def rest(self, x: Tensor, batch: Microbatch, last: int = 1) -> list[Tensor]:
        """From the first layer on; of so many tokens the logits."""
        for layer in self.model.layers.values():
            x = layer(x, batch)
        assert self.model.norm is not None
        assert self.model.head is not None
        assert isinstance(batch.cache, Collected)
        return [self.model.scores.of(self.model.head(self.model.norm(x[-last:]))), *batch.cache.new]


class TokenStep(Body):
    """One token of each sample: what `Body` gives, from ids and places, behind keys and values that were kept."""

    def forward(  # type: ignore[override]
        self, ids: Tensor, place: Tensor, tables: list[Tensor], mask: Tensor, kept: list[Tensor]
    ) -> list[Tensor]:
        seen = [each.permute(1, 2, 0, 3) for each in kept]
        owners = zip(attentions(self.model), zip(seen[::2], seen[1::2], strict=True), strict=True)
        rope = rope_of(self.model, tables)
        batch = Microbatch(sequence=1, positions=place, rope=rope, mask=mask, cache=Collected(dict(owners)))
        assert self.model.embed is not None
        return self.rest(self.model.embed(ids, batch), batch, len(ids))


def rope_of(model: Transformer, tables: list[Tensor]) -> dict[tuple[float, bool], tuple[Tensor, Tensor]]:
    """Cosines and sines by the kind of layer, from a flat list."""
    kinds = [] if model.rotary is None else model.rotary.kinds
    return dict(zip(kinds, zip(tables[::2], tables[1::2], strict=True), strict=True))


def attentions(model: Transformer) -> list[Attention]:
    """Who keeps keys and values."""
    found = []
    for layer in model.layers.values():
        assert isinstance(layer, Layer)
        found.append(layer.attention)
    return found


def room(model: Transformer, cache: KeyValueCache, capacity: int) -> None:
    """Let a cache have so many places; what it holds stays. Places are farthest apart: a new one is one stretch."""
    before, cache.capacity = dict(cache.kept), capacity
    for owner in attentions(model):
        # Zeros: what a mask hides is multiplied by zero, which only numbers survive.
        heads = model.spec.heads if isinstance(owner, LatentAttention) else owner.qkv_groups
        memory = torch.zeros(2, capacity, cache.batch, heads, owner.head_size)
        pair = tuple(each.permute(1, 2, 0, 3) for each in memory)
        for new, old in zip(pair, before.get(owner, ()), strict=False):
            new[:, :, : cache.length] = old[:, :, : cache.length]
        cache.kept[owner] = (pair[0], pair[1])


class Decoder:
    """The step of one cache, as long as that does not grow. Logits are valid until the next token."""

    def __init__(self, step: Compiled, model: Transformer, cache: KeyValueCache) -> None:
        self.step, self.model, self.cache, self.capacity = step, model, cache, cache.capacity
        self.ids = torch.zeros(cache.batch, dtype=torch.int64)
        self.place = torch.zeros(1, dtype=torch.int64)
        self.mask = torch.full((1, 1, 1, cache.capacity + 1), -math.inf)
        self.mask[..., -1] = 0
        self.kept = [each.permute(2, 0, 1, 3) for owner in attentions(model) for each in cache.kept[owner]]
        self.tables = self._tables(cache.length)
        rows = [each[:1] for each in self.tables]
        self.program, flat = step.program((self.ids, self.place, rows, self.mask, self.kept), {})
        self.seen = -1  # places that the mask shows
        if self.program is not None:
            self._bind(flat)

    @property
    def runs(self) -> bool:
        """Whether tiles run it, and not PyTorch."""
        return self.program is not None

    def _tables(self, place: int) -> list[Tensor]:
        """Cosines and sines of all places that are known by now."""
        self.covered = min(self.capacity, 2 * place + 64)
        rotary = self.model.rotary
        if rotary is None:
            return []
        self.reach = rotary.reach(place + 1)
        stop = place + 1 if rotary.reach(self.covered) != self.reach else self.covered
        self.covered = stop
        return [each for pair in rotary(0, stop, self.ids.device).values() for each in pair]

    def _bind(self, flat: list[Tensor]) -> None:
        """Which addresses move with the place, from where and how far."""
        program = self.program
        assert program is not None
        self.instance = program.prepared(flat, self.step.pool.threads)
        bases = [program.base_of_result(number) for number in range(1, 1 + len(self.kept))]
        assert None not in bases
        tables = [program.base_of_input(2 + number) for number in range(len(self.tables))]
        self.moving = torch.tensor([*tables, *bases]).numpy()
        self.logits: Tensor = program.results_of(self.instance)[0]
        self._address()

    def _address(self) -> None:
        moving = [*self.tables, *self.kept]
        self.starts = torch.tensor([each.data_ptr() for each in moving], dtype=torch.int64).numpy()
        self.steps = torch.tensor([each.stride(0) * each.element_size() for each in moving]).numpy()

    def _show(self, place: int) -> None:
        """The mask for a token at a place: all before it, or as many as a window has."""
        window = self.model.spec.window
        if place == self.seen + 1 and not isinstance(window, int):
            self.mask.numpy()[0, 0, 0, self.seen] = 0
        else:
            self.mask[..., :-1] = -math.inf
            self.mask[..., max(0, place + 1 - window) if isinstance(window, int) else 0 : place] = 0
        self.seen = place

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits of one token of each sample, whose keys and values go to the cache; batch × vocabulary."""
        assert self.program is not None
        place = self.cache.length
        rotary = self.model.rotary
        if rotary is not None and (place >= self.covered or rotary.reach(place + 1) != self.reach):
            self.tables = self._tables(place)
            self._address()
        self.ids.copy_(ids)
        self.place.numpy()[0] = place
        self._show(place)
        self.instance.bases[self.moving] = self.starts + place * self.steps
        self.program.launch(self.instance, self.step.pool, self.step.level)
        return self.logits
