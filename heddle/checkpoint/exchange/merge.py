"""Adapters that learned beside a base in four bits, added to weights: which base, and what that changes.

They learned to correct what the four bits compute. Added to the same numbers they give what was trained, but for the
rounding to the precision that is written; added to the original weights they give another model, which is often the
better one and sometimes not. Nobody can know without looking, so both are measured.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from heddle.checkpoint.exchange.agreement import TOKENS, obstacle
from heddle.checkpoint.index import DTYPE_OF
from heddle.checkpoint.load_model import load_model
from heddle.checkpoint.source import AdaptedSource, WeightSource
from heddle.errors import HeddleError
from heddle.models import Microbatch

Onto = Literal["trained", "original"]


@dataclass(frozen=True)
class MergeErrors:
    """How far the logits of both merged models are from the trained one's, relative to its largest."""

    tokens: int
    trained: float  # onto the numbers that adapters learned beside
    original: float

    def __str__(self) -> str:
        return (
            f"Logits of {self.tokens} tokens differ from the trained model's by {self.trained:.1e} of the largest if "
            f"adapters are added to the base in four bits, by {self.original:.1e} if to the original weights."
        )


def merged_onto(source: WeightSource, onto: Onto | None) -> WeightSource:
    """The same weights, with adapters added to that base; None: to the one that they learned beside."""
    if onto is None:
        return source
    if not isinstance(source, AdaptedSource) or not source.quantized:
        raise HeddleError(
            f"--onto {onto} is for runs with tune.base = 'nf4'.",
            "Other runs have one base, to which adapters are added.",
            "Leave --onto out.",
        )
    return replace(source, quantized=onto == "trained")


def merge_errors(source: WeightSource, dtype: torch.dtype | None) -> MergeErrors | None:
    """Compare both with what was trained; None where there is one base, or no memory for it."""
    if not isinstance(source, AdaptedSource) or not source.quantized or obstacle(source.model) is not None:
        return None
    kept = dtype or DTYPE_OF[next(iter(source.tensors.values())).dtype]
    count = min(TOKENS, source.model.sequence)
    ids = torch.arange(1, count + 1) * 7919 % source.model.vocab
    exact = _logits(source, ids, None)
    largest = float(exact.abs().max())
    errors = {
        onto: float((_logits(merged_onto(source, onto), ids, kept) - exact).abs().max()) / largest
        for onto in get_args(Onto)
    }
    return MergeErrors(count, **errors)


@torch.no_grad()
def _logits(source: WeightSource, ids: Tensor, rounded: torch.dtype | None) -> Tensor:
    model = load_model(source, torch.float32, torch.device("cpu"), rounded=rounded)
    made: Tensor = model(ids, Microbatch(sequence=len(ids)))
    del model
    gc.collect()  # one at a time
    return made
