"""Samples that are made of several documents: each attends only within itself, and counts its positions from 0.

Where documents begin is told by their lengths, which come with the data; no token has a meaning here. What the lengths
of a sample leave over at its end is padding, which is a document of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heddle.errors import HeddleError

Documents = tuple[tuple[int, ...], ...]  # lengths, sample by sample; empty: every sample is one document


def whole_samples(lengths: Sequence[Sequence[int]], sequence: int) -> Documents:
    """Lengths that fill samples of so many tokens, padding included."""
    found = []
    for number, each in enumerate(lengths):
        total = sum(each)
        if total > sequence or any(length < 1 for length in each):
            raise HeddleError(
                f"The documents of sample {number} of a microbatch have lengths {_shown(each)}.",
                f"Each is at least 1, and together they are at most the sample's {sequence} tokens.",
                "Prepare the data again with `heddle data prepare`, or use a longer train.sequence.",
            )
        found.append((*each, *([sequence - total] if total < sequence else [])))
    return tuple(found) if any(len(each) > 1 for each in found) else ()


def positions_of(documents: Documents) -> Tensor:
    """The place of each token in its document, [samples, sequence]."""
    return torch.stack([torch.cat([torch.arange(length) for length in each]) for each in documents])


def _shown(lengths: Sequence[int]) -> str:
    shown = ", ".join(map(str, lengths[:8]))
    return f"{shown}, …" if len(lengths) > 8 else shown
