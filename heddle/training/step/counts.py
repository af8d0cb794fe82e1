"""How many losses the user's own loss functions have summed: what their sums are divided by is known after the fact."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from heddle.models.own.chunk import OwnChunk


class Counts:
    """Of a rank's chunks; only the last one of a model counts."""

    def __init__(self, chunks: Iterable[object]) -> None:
        self.chunks = [chunk for chunk in chunks if isinstance(chunk, OwnChunk)]

    def taken(self, device: torch.device) -> Tensor:
        """The mean over the microbatches since it was last asked: counted losses over expected ones."""
        found = [count for chunk in self.chunks for count in chunk.counted]
        for chunk in self.chunks:
            chunk.counted.clear()
        return torch.stack(found).mean() if found else torch.zeros((), dtype=torch.float64, device=device)
