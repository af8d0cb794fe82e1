"""A rank's share of whole samples: their tokens, and what layers must know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from heddle.models.documents import positions_of, whole_samples
from heddle.models.transformer import Microbatch
from heddle.parallel.context.cut import blocks
from heddle.parallel.mesh import Axis


class Held:
    """What a rank of the context axis holds of every sample of `sequence` tokens."""

    def __init__(self, sequence: int, axis: Axis, device: torch.device) -> None:
        self.sequence, self.device = sequence, device
        self.blocks = blocks(sequence, axis.rank, axis.size)
        positions = self.cut(torch.arange(sequence)[None]).to(device) if axis.size > 1 else None
        self.plain = Microbatch(sequence=sequence // axis.size, positions=positions, length=sequence)

    def cut(self, samples: Tensor) -> Tensor:
        """The tokens held here of whole samples, one in a row, as one list."""
        return torch.cat([samples[:, block.start : block.stop] for block in self.blocks], dim=1).flatten()

    def microbatch(self, lengths: Sequence[Sequence[int]] = ()) -> Microbatch:
        """What layers must know of samples, given the lengths of the documents of each."""
        documents = whole_samples(lengths, self.sequence)
        if not documents:
            return self.plain
        positions = self.cut(positions_of(documents)).view(len(documents), -1)
        if self.device.type != "cpu":
            positions = positions.pin_memory().to(self.device, non_blocking=True)
        return replace(self.plain, documents=documents, positions=positions)
