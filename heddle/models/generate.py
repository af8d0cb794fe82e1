"""Sampling from a model, one token at a time, remembering keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from heddle.errors import HeddleError
from heddle.models.transformer import Microbatch, Transformer

COLDEST = 1e-30  # a temperature that fp32 still holds


class KeyValueCache:
    """Keys and values of every layer, in memory laid out once."""

    def __init__(self, batch: int, capacity: int) -> None:
        self.batch, self.capacity = batch, capacity
        self.length = 0  # tokens that all layers have seen
        self.kept: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def extend(self, owner: nn.Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append to what a layer remembers; give back all of it."""
        if owner not in self.kept:
            heads, size = keys.shape[1], keys.shape[3]
            empty = keys.new_empty(2, self.batch, heads, self.capacity, size)
            self.kept[owner] = (empty[0], empty[1])
        end = self.length + keys.shape[2]
        for kept, new in zip(self.kept[owner], (keys, values), strict=True):
            kept[:, :, self.length : end] = new
        k, v = self.kept[owner]
        return k[:, :, :end], v[:, :, :end]


Engine = Callable[[Tensor, KeyValueCache], Tensor]  # logits of the last of some tokens; what they leave is cached


@torch.no_grad()
def generate(
    model: Transformer,
    prompt: Sequence[int],
    *,
    engine: Engine | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Iterator[int]:
    """Continue a prompt forever; the caller stops.

    When the model's positions run out, the second half of the text so far becomes the new beginning. The engine is
    what computes logits: the model itself by default.
    """
    engine = engine or partial(newest_logits, model)
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    capacity = model.spec.sequence
    text = list(prompt)
    cache, unseen = KeyValueCache(1, capacity), text[-capacity:]
    while True:
        if cache.length + len(unseen) > capacity:
            cache, unseen = KeyValueCache(1, capacity), text[-max(1, capacity // 2) :]
        length = cache.length + len(unseen)
        if cache.length and model.rotary is not None and model.rotary.reach(cache.length) != model.rotary.reach(length):
            cache, unseen = KeyValueCache(1, capacity), text[-length:]
        ids = torch.tensor(unseen, device=device)
        logits = engine(ids, cache)
        cache.length += len(unseen)
        token = sample(logits.float(), temperature, top_k, top_p, generator)
        text.append(token)
        unseen = [token]
        yield token


def newest_logits(model: Transformer, ids: Tensor, cache: KeyValueCache) -> Tensor:
    """What follows the last token, by the model as it is."""
    logits: Tensor = model(ids, Microbatch(sequence=len(ids), cache=cache))[-1]
    return logits


def sample(logits: Tensor, temperature: float, top_k: int, top_p: float, generator: torch.Generator) -> int:
    """Draw one token: from the k likeliest, and from the smallest set of likeliest whose probabilities reach p."""
    likeliest = logits.max()
    if not bool(torch.isfinite(likeliest)):
        raise HeddleError(
            "The model's logits are not numbers.",
            "A weight is NaN or infinite, or the numbers grow beyond what the precision holds: training diverged.",
            "Use an earlier checkpoint, RUN/checkpoints/step-…, or train again with a lower learning rate.",
        )
    if temperature == 0:
        return int(logits.argmax())
    # The likeliest becomes 0, so that no temperature, however low, makes infinities.
    cooled = (logits - likeliest) / max(temperature, COLDEST)
    probabilities = torch.softmax(cooled, dim=-1)
    order = None
    if top_k or top_p < 1:  # sorting a large vocabulary takes longer than a small model
        probabilities, order = probabilities.topk(min(top_k or len(logits), len(logits)))
        before = probabilities.cumsum(0) - probabilities  # the likeliest always stays
        probabilities[before > top_p * probabilities.sum()] = 0
    ends = probabilities.double().cumsum(0)
    drawn = torch.rand(1, generator=generator, dtype=torch.float64, device=ends.device) * ends[-1]
    place = torch.searchsorted(ends, drawn, right=True).clamp_max(len(ends) - 1)
    return int(place if order is None else order[place])
